"""`locum embed`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output

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
    images: Annotated[str, typer.Argument(metavar="IMAGES", help=IMAGES_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File of vectors to write, best .npz.")],
    backbone: Annotated[str, typer.Option(help="The vision model; see --backbones.")] = "efflite0",
    backbones: Annotated[
        bool, typer.Option("--backbones", callback=_list, is_eager=True, help="List the vision models and exit.")
    ] = False,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="16-bit and DICOM: values that become black and white (default: each image its own).",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option(help="Stop at an image that cannot be read, instead of listing it.")
    ] = False,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write which row is which image (private: holds names).")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where vectors are kept to resume from (default: beside the images)."),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Keep nothing: an interrupted run starts over.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads (default: one per core).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Turn images into vectors with a frozen vision model; a killed run resumes where it stopped.

    Unreadable images are left out and listed in FILE.skipped.csv, which stays with you: names can be patients' names.
    """
    limits = _window(window)
    if cache is not None and no_cache:
        from locum.errors import ConfigError

        raise ConfigError("--cache and --no-cache exclude each other; leave one out.")
    with _stoppable(kept=not no_cache), output.progress_bar("embed") as progress:
        from locum.recipes import embed_to_file

        summary = embed_to_file(
            images,
            out,
            backbone=backbone,
            window=limits,
            cache=cache or not no_cache,
            strict=strict,
            workers=workers,
            index=index,
            overwrite=force,
            progress=progress,
        )
    if as_json:
        output.print_json(summary.to_dict())
    else:
        show_embed(summary)


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
    kept = summary.images - summary.computed
    output.say(
        f"computed    {summary.computed} in {summary.seconds:.1f} s" + (f"; {kept} were in the cache" if kept else "")
    )
    if summary.skipped:
        skipped = _counted(summary.skipped, "image", "images")
        output.say(f"skipped     {skipped} that cannot be read; listed in {summary.skipped_file} (private)")
    if summary.ignored:
        ignored = _counted(summary.ignored, "file without an image's suffix", "files without an image's suffix")
        output.say(f"ignored     {ignored}")


def _counted(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


@contextmanager
def _stoppable(*, kept: bool) -> Iterator[None]:
    """Make SIGINT and SIGTERM end the work with one line, after half-written files are removed."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as stopped:
        sys.stderr.write(f"stopped; {'run the same command again to resume' if kept else 'nothing was kept'}\n")
        number = stopped.args[0] if stopped.args else signal.SIGINT
        raise typer.Exit(128 + int(number)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _window(text: str | None) -> tuple[float, float] | None:
    from locum.errors import ConfigError

    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--window takes LOW,HIGH, two numbers; got {text!r}.") from None
    return low, high
