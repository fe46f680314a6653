"""`locum sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import (
    MOST_SEED,
    WHERE,
    Force,
    Json,
    ReleaseFolder,
    class_counts,
    existing,
    unused_file,
)
from locum.errors import ConfigError


def _is_folder(out: Path) -> bool:
    """Whether files are to be written into it; a name with another ending is more likely a mistake."""
    return not out.suffix or out.is_dir()


def _unused(ctx: typer.Context, value: Path | None) -> Path | None:
    """A file that can be written; a folder is checked where it is filled, since it may be half full."""
    return value if value is not None and _is_folder(value) else unused_file(ctx, value)


def sample(
    release: ReleaseFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE|FOLDER",
            help=".npz, .parquet, .safetensors or .csv; a name without an ending is a folder of Parquet files.",
            rich_help_panel=WHERE,
            callback=_unused,
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "-n", help="How many vectors; labels follow the released class shares.", rich_help_panel="What to draw"
        ),
    ] = None,
    per_class: Annotated[
        str | None, typer.Option(help="Exact counts: benign=500,malignant=500.", rich_help_panel="What to draw")
    ] = None,
    variance: Annotated[
        float | None, typer.Option(help="Below 1: more typical vectors.", rich_help_panel="What to draw")
    ] = None,
    min_distance: Annotated[
        float | None,
        typer.Option(
            help="Keep this far from --real records (data holder only; see docs).", rich_help_panel="What to draw"
        ),
    ] = None,
    real: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="The records, for --min-distance.", rich_help_panel="What to draw", callback=existing
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SEED,
            help="Seed to repeat the same draw (default: a new one each time).",
            rich_help_panel="What to draw",
        ),
    ] = None,
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Into a folder: rows per file (default: 1,000,000).", rich_help_panel=WHERE
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Into a folder: threads that draw (default: one per core). The rows do not depend on it.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw vectors from a release into a file, or into a folder of Parquet files.

    An interrupted draw into a folder resumes if you run the same command again.
    """
    if _is_folder(out):
        _into_folder(release, out, n, per_class, variance, min_distance, real, seed, rows_per_file, workers, as_json)
        return
    if rows_per_file is not None or workers is not None:
        raise ConfigError(f"--rows-per-file and --workers are for a folder; {str(out)!r} is a file: leave them out.")
    from locum.recipes import sample_to_file

    result = sample_to_file(
        release,
        out,
        n=n,
        per_class=None if per_class is None else class_counts(per_class),
        variance=variance,
        min_distance=min_distance,
        real=real,
        seed=seed,
        overwrite=force,
    )
    output.show(result, as_json, show_sample)


def _into_folder(
    release: Path,
    out: Path,
    n: int | None,
    per_class: str | None,
    variance: float | None,
    min_distance: float | None,
    real: str | None,
    seed: int | None,
    rows_per_file: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    if per_class is not None or min_distance is not None or real is not None:
        raise ConfigError("--per-class, --min-distance and --real are for a file: name one, such as -o out.parquet.")
    if n is None:
        raise ConfigError("Say how many vectors to draw into the folder: add -n.")
    from locum.recipes import sample_to_folder

    settings = {} if rows_per_file is None else {"rows_per_file": rows_per_file}
    with output.resumable(), output.progress_bar("sampling") as progress:
        result = sample_to_folder(
            release, out, n=n, variance=variance, seed=seed, workers=workers, progress=progress, **settings
        )
    output.show(result, as_json, _show_folder)


def _show_folder(result: dict[str, Any]) -> None:
    output.say(
        f"{result['rows']} vectors of {result['features']} features written to {result['folder']}, in "
        f"{result['files']} files"
    )
    if result["resumed"]:
        output.say(f"{result['resumed']} of the files were there already")


def show_sample(result: dict[str, Any]) -> None:
    """What was drawn and where it was written."""
    output.say(f"{result['rows']} vectors of {result['features']} features written to {result['file']}")
    if result["not_covered"]:
        output.say(f"not covered: {result['not_covered']}")
