"""`locum embed`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import WHERE, DeviceName, Force, Json, existing, unused_file

if TYPE_CHECKING:
    from locum.recipes import EmbedSummary


IMAGES_HELP = "A folder with one folder per class, a .csv with a column `path`, or an .npz of images."


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
    images: Annotated[str, typer.Argument(metavar="IMAGES", help=IMAGES_HELP, callback=existing)],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File of vectors to write, best .npz.",
            rich_help_panel=WHERE,
            callback=unused_file,
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
            help="16-bit and DICOM: values that become black and white (default: each image its own).",
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
            help="Where vectors are kept to resume from (default: beside the images).",
            rich_help_panel=WHERE,
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Keep nothing: an interrupted run starts over.", rich_help_panel=WHERE)
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads (default: one per core).", rich_help_panel="Images")
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(
            help="Where the model runs; auto takes a CUDA GPU if there is one. Stay with one for all data.",
            rich_help_panel="Images",
        ),
    ] = DeviceName.auto,
    no_reference: Annotated[
        bool,
        typer.Option(
            "--no-reference",
            help="Make no public statistics of the backbone, which private fits need if none ship with Locum.",
            rich_help_panel="Images",
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn images into vectors with a frozen vision model; a killed run resumes where it stopped.

    Unreadable images are left out and listed in FILE.skipped.csv, copies are kept and listed in FILE.duplicates.csv.
    Both stay with you: names can be patients' names.
    """
    limits = _window(window)
    if cache is not None and no_cache:
        from locum.errors import ConfigError

        raise ConfigError("--cache and --no-cache exclude each other; leave one out.")
    with output.resumable(not no_cache), output.progress_bar("embed") as progress:
        from locum.recipes import embed_to_file

        summary = embed_to_file(
            images,
            out,
            backbone=backbone,
            window=limits,
            cache=cache or not no_cache,
            strict=strict,
            workers=workers,
            device=device.value,
            index=index,
            reference=not no_reference,
            overwrite=force,
            tell=output.say_aside,
            progress=progress,
        )
    output.show(summary, as_json, show_embed)


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
    from locum.errors import ConfigError

    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--window takes LOW,HIGH, two numbers; got {text!r}.") from None
    return low, high
