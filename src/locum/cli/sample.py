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


def sample(
    release: ReleaseFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=".npz, .parquet, .safetensors or .csv",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "-n", help="How many vectors, with labels by the released prior.", rich_help_panel="What to draw"
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
            help="Repeat the same draw; without it, fresh entropy.",
            rich_help_panel="What to draw",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw vectors from a release into a file."""
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


def show_sample(result: dict[str, Any]) -> None:
    """What was drawn and where it was written."""
    output.say(f"{result['rows']} vectors of {result['features']} features written to {result['file']}")
    if result["not_covered"]:
        output.say(f"not covered: {result['not_covered']}")
