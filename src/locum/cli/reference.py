"""`locum reference make|show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import MOST_SEED, WHERE, Force, Json, existing, unused_file
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.recipes import ReferenceSummary

group = Group("Public statistics, which private fits use to whiten vectors.")


@group.verb()
def make(
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The .safetensors file to write.",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Of this vision model, from drawn images; see `embed --backbones`.",
            rich_help_panel="What to describe",
        ),
    ] = None,
    ranges: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of a table: a .csv with name,low,high, the public range of each feature, in their order.",
            rich_help_panel="What to describe",
            callback=existing,
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=2, help="With --backbone: how many images to draw (3000).", rich_help_panel="What to describe"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST_SEED, help="With --backbone: seed of the drawing (0).", rich_help_panel="What to describe"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make public statistics of a backbone, from images that a program draws, or of a table, from declared ranges."""
    from locum.recipes import make_reference

    with output.progress_bar("draw") as progress:
        made = make_reference(
            out,
            backbone=backbone,
            ranges=ranges,
            images=images,
            seed=seed,
            overwrite=force,
            tell=output.say_aside,
            progress=progress,
        )
    output.show(made, as_json, show_summary)


@group.verb()
def show(
    name: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file, or the name of shipped statistics.")],
    as_json: Json = False,
) -> None:
    """Where public statistics come from, what they describe, and the hash that names them."""
    from locum.recipes import show_reference

    output.show(show_reference(name), as_json, show_summary)


def show_summary(summary: ReferenceSummary) -> None:
    """Print what public statistics say about themselves."""
    output.say(f"reference   {summary.name}", "bold")
    output.say(f"source      {summary.source}")
    output.say(
        f"vectors     {summary.features} features, {summary.directions} directions with a variance of their own"
    )
    if summary.backbone != "unknown":
        output.say(f"backbone    {summary.backbone} (weights {summary.revision[:16]})")
        output.say(f"pixels      {summary.preprocessing}")
    output.say(f"sha256      {summary.sha256}")
