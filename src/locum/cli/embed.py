"""`locum embed`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import WHERE, DeviceName, EngineName, Force, Json, address_option, existing, unused_file
from locum.errors import ConfigError
from locum.io import is_remote

if TYPE_CHECKING:
    from locum.embed import EmbeddingEngine
    from locum.recipes import EmbedSummary


ENGINE = "Where the work is done"
# What one file of vectors can be; `locum.data` would bring numpy.
_ENDINGS = (".csv", ".npz", ".parquet", ".safetensors")
IMAGES_HELP = (
    "A folder with one folder per class (also s3://...), a public set such as CIFAR or ChestX-ray14 as it is "
    "distributed, a .csv with a column `path`, or an .npz of images."
)


def _is_folder(out: str) -> bool:
    """Whether files are to be written into it; a folder whose name ends like a file is more likely a mistake."""
    return is_remote(out) or out.endswith("/") or (Path(out).is_dir() and Path(out).suffix.lower() not in _ENDINGS)


def _unused(ctx: typer.Context, value: str) -> str:
    """A file that can be written; a folder is checked where it is filled, since it may be half full."""
    if not ctx.resilient_parsing and not _is_folder(value):
        unused_file(ctx, Path(value))
    return value


def _there(ctx: typer.Context, value: str) -> str:
    """Images that are there; those in a store are looked for later."""
    return value if is_remote(value) else str(existing(ctx, value))


def _list(show: bool) -> None:
    if not show:
        return
    from locum.embed import BACKBONES

    rows = [[name, str(f.dim), f.parameters, f.needs] for name, f in BACKBONES.items()]
    rows.append(["hf:OWNER/MODEL", "-", "-", "locum[huggingface], a download; any vision model"])
    rows.append(["hf:FOLDER", "-", "-", "locum[huggingface]; the same files in a folder"])
    rows.append(["onnx:FILE", "-", "-", "your own model"])
    output.show_table(["backbone", "features", "parameters", "needs"], rows)
    raise typer.Exit


def embed(
    images: Annotated[str, typer.Argument(metavar="IMAGES", help=IMAGES_HELP, callback=_there)],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE|FOLDER/",
            help="File of vectors, preferably .npz; a name ending in / (also s3://...) is a folder of Parquet files.",
            rich_help_panel=WHERE,
            callback=_unused,
        ),
    ],
    backbone: Annotated[
        str, typer.Option(help="The vision model; see --backbones.", rich_help_panel="Images")
    ] = "efflite0",
    backbones: Annotated[
        bool,
        typer.Option(
            "--backbones",
            callback=_list,
            is_eager=True,
            help="List the vision models and exit.",
            rich_help_panel="Images",
        ),
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="16-bit and DICOM: values that become black and white (default: chosen per image).",
            rich_help_panel="Images",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Stop at an image that cannot be read, instead of listing it.", rich_help_panel="Images"
        ),
    ] = False,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write which row is which image (private: holds names).", rich_help_panel=WHERE
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where vectors are kept to resume from (default: next to the images).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Keep nothing: an interrupted run starts over.", rich_help_panel=WHERE)
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads (default: one per core); with the engine ray, CPUs per actor (default: 1).",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="Into a folder: embed in this process, or on a Ray cluster.", rich_help_panel=ENGINE),
    ] = EngineName.local,
    address: Annotated[
        str | None,
        address_option(ENGINE),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Processes on the Ray cluster (default: as many as fit).", rich_help_panel=ENGINE
        ),
    ] = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Into a folder: images per file (default: 10,000).", rich_help_panel=WHERE
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For images in a store: the ledger that pays for private fits of their vectors.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(
            help="Where the model runs; auto uses a CUDA GPU if there is one. Use the same device for all data.",
            rich_help_panel="Images",
        ),
    ] = DeviceName.auto,
    no_reference: Annotated[
        bool,
        typer.Option(
            "--no-reference",
            help="Do not make public statistics of the backbone. Private fits need them if none ship with Locum.",
            rich_help_panel="Images",
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn images into vectors with a frozen vision model; a killed run resumes where it stopped.

    Unreadable images are left out and listed in FILE.skipped.csv; copies are kept and listed in FILE.duplicates.csv.
    Both stay with you: names can be patients' names. If you write to a folder, copies are not listed.
    """
    limits = _window(window)
    if cache is not None and no_cache:
        raise ConfigError("--cache and --no-cache cannot be combined: leave one out.")
    if engine is not EngineName.ray and (address is not None or actors is not None):
        raise ConfigError("--address and --actors are for a Ray cluster: add --engine ray, or leave them out.")
    if _is_folder(out):
        _check_folder(out, cache, force)
        _into_folder(
            images,
            out,
            _engine(engine, address, actors, workers),
            as_json,
            backbone=backbone,
            window=limits,
            strict=strict,
            device=device.value,
            index=index,
            ledger=ledger,
            reference=not no_reference,
            **({} if rows_per_file is None else {"rows_per_file": rows_per_file}),
        )
        return
    if rows_per_file is not None or engine is EngineName.ray:
        raise ConfigError(
            f"--rows-per-file and --engine ray are for a folder; {out!r} is a file: end it in / to make a folder."
        )
    with (
        output.resumable(cache is not None or not (no_cache or is_remote(images))),
        output.progress_bar("embed") as progress,
    ):
        from locum.recipes import embed_to_file

        summary = embed_to_file(
            images,
            Path(out),
            backbone=backbone,
            window=limits,
            cache=cache or not no_cache,
            strict=strict,
            workers=workers,
            device=device.value,
            index=index,
            ledger=ledger,
            reference=not no_reference,
            overwrite=force,
            tell=output.say_aside,
            progress=progress,
        )
    output.show(summary, as_json, show_embed)


def _check_folder(out: str, cache: Path | None, force: bool) -> None:
    """Refuse what goes with a file only."""
    if is_remote(out) and not out.endswith("/") and Path(out).suffix.lower() in _ENDINGS:
        raise ConfigError(f"Only a folder of Parquet files can be written to a store: end {out!r} in /.")
    if cache is not None:
        raise ConfigError("A folder needs no --cache: a stopped run resumes with the next file. Leave it out.")
    if force:
        raise ConfigError("--force is for a file: remove the folder first, or choose another.")


def _engine(name: EngineName, address: str | None, actors: int | None, workers: int | None) -> EmbeddingEngine:
    from locum.embed import LocalEmbedding, RayEmbedding

    if name is EngineName.local:
        return LocalEmbedding(workers)
    return RayEmbedding(address or "local", actors, workers)


def _into_folder(images: str, out: str, engine: EmbeddingEngine, as_json: bool, **settings: Any) -> None:
    from locum.recipes import embed_to_folder

    with output.resumable(), output.progress_bar("embed") as progress:
        result = embed_to_folder(images, out, engine=engine, tell=output.say_aside, progress=progress, **settings)
    output.show(result, as_json, _show_folder)


def _show_folder(result: dict[str, Any]) -> None:
    """The same for a folder."""
    parts = ", ".join(f"{n} {split}" for split, n in result["splits"].items()) if len(result["splits"]) > 1 else ""
    images = _counted(result["images"], "image", "images")
    classes = _counted(len(result["classes"]), "class", "classes")
    files = _counted(result["files"], "file", "files")
    output.say(
        f"{images}{f' ({parts})' if parts else ''} of {classes} became vectors of {result['features']} numbers, in "
        f"{files}: {result['folder']}"
    )
    output.say(f"backbone    {result['backbone']} (weights {result['revision'][:16]})")
    output.say(f"pixels      {result['preprocessing']}")
    if result["reference"]:
        output.say(f"reference   {result['reference']} (public statistics for private fits)")
    if result["ledger"] is None:
        output.say("ledger      none: images in a store have none next to them")
        output.say_indented("with --ledger FILE all vectors of these images share one budget")
    kept = f"; {result['resumed']} of the files were there already" if result["resumed"] else ""
    output.say(f"computed    {result['computed']} in {result['seconds']:.1f} s{kept}")
    if result["skipped"]:
        skipped = _counted(result["skipped"], "image", "images")
        file = result["skipped_file"]
        where = "their rows are in _embedded.json" if file is None else f"listed in {file}"
        output.say(f"skipped     {skipped} that cannot be read; {where} (private)")
    if result["ignored"]:
        ignored = _counted(result["ignored"], "file without an image's suffix", "files without an image's suffix")
        output.say(f"ignored     {ignored}")


def show_embed(summary: EmbedSummary) -> None:
    """Print what was written and what was left out."""
    parts = ", ".join(f"{n} {split}" for split, n in summary.splits.items()) if len(summary.splits) > 1 else ""
    images = _counted(summary.images, "image", "images")
    classes = _counted(len(summary.classes), "class", "classes")
    output.say(
        f"{images}{f' ({parts})' if parts else ''} of {classes} became vectors of {summary.features} numbers: "
        f"{summary.file}"
    )
    if summary.subjects is not None:
        output.say(f"            they belong to {_counted(summary.subjects, 'subject', 'subjects')}")
    output.say(f"backbone    {summary.backbone} (weights {summary.revision[:16]})")
    output.say(f"pixels      {summary.preprocessing}")
    if summary.reference:
        output.say(f"reference   {summary.reference} (public statistics for private fits)")
    kept = summary.images - summary.computed
    output.say(
        f"computed    {summary.computed} in {summary.seconds:.1f} s" + (f"; {kept} were in the cache" if kept else "")
    )
    if summary.skipped:
        skipped = _counted(summary.skipped, "image", "images")
        output.say(f"skipped     {skipped} that cannot be read; listed in {summary.skipped_file} (private)")
    if summary.duplicates_file is not None:
        copies = _counted(summary.repeated, "image equals another", "images equal another")
        output.say(
            f"duplicates  {copies} of the same split, {summary.shared} one of an earlier split; listed in "
            f"{summary.duplicates_file} (private)"
        )
        output.say_indented("`locum fit --drop-duplicates` leaves them out, or remove the files and embed again")
    if summary.ignored:
        ignored = _counted(summary.ignored, "file without an image's suffix", "files without an image's suffix")
        output.say(f"ignored     {ignored}")


def _counted(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--window takes LOW,HIGH, two numbers; got {text!r}.") from None
    return low, high
