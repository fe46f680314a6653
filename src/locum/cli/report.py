"""`locum report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import (
    BACKBONE_HELP,
    WHERE,
    Force,
    HeadName,
    Json,
    ReleaseFolder,
    existing,
    unused_file,
)


class MapName(StrEnum):
    """Methods for the map."""

    auto = "auto"
    tsne = "tsne"
    pca = "pca"


def report(
    release: ReleaseFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=".html, .md or .json (default: RELEASE-report.html).",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The records: adds map, distances, counts and baselines.",
            rich_help_panel="What to show",
            callback=existing,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Real data that were not used: adds scores and, with --train, the membership check.",
            rich_help_panel="What to show",
            callback=existing,
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Findings of `locum audit` about this release, as JSON.",
            rich_help_panel="What to show",
            callback=existing,
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share",
            help="Make a page that can be sent: no real point, no exact count.",
            rich_help_panel="Who may read it",
        ),
    ] = False,
    include_measured: Annotated[
        bool,
        typer.Option(
            "--include-measured",
            help="With --share: add rounded figures, measured on DATA or from --audit.",
            rich_help_panel="Who may read it",
        ),
    ] = False,
    map: Annotated[MapName, typer.Option(help="How to draw the map.", rich_help_panel="What to show")] = MapName.auto,
    head: Annotated[
        HeadName, typer.Option(help="Classifier to train on samples.", rich_help_panel="What to show")
    ] = HeadName.linear,
    seeds: Annotated[int, typer.Option(help="Repetitions behind each interval.", rich_help_panel="What to show")] = 3,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP, rich_help_panel="What to show")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write one self-contained page about a release.

    The page is internal: it shows real points and exact counts of the data that you give. With --share it holds
    neither.
    """
    from locum.recipes import default_report_path, make_report

    target = out or default_report_path(release, share=share)
    with output.progress_bar("reporting") as progress:
        made = make_report(
            release,
            target,
            train=train,
            test=test,
            audit=audit,
            share=share,
            include_measured=include_measured,
            map=map.value,
            seeds=seeds,
            head=head.value,
            backbone=backbone,
            overwrite=force,
            progress=progress,
        )
    # Otherwise a user who gave data could mistake an empty section for a finding.
    unread = share and not include_measured and (train is not None or test is not None)
    if as_json:
        output.print_json(_digest(made, target, unread))
    else:
        _show(made, target, unread)


def _digest(made: dict[str, Any], target: Path, unread: bool) -> dict[str, Any]:
    return {
        "file": str(target),
        "audience": made["audience"],
        "fingerprint": made["release"]["fingerprint"],
        "claim": made["claim"]["kind"],
        "map": None if made["map"] is None else made["map"]["method"],
        "membership": None if made["membership"] is None else made["membership"]["verdict"],
        "audit": None if made["audit"] is None else made["audit"]["verdict"],
        "missing": sorted(made["missing"]),
        "data_not_opened": unread,
    }


def _show(made: dict[str, Any], target: Path, unread: bool) -> None:
    output.say(f"report      {target}", "bold")
    output.say(f"            {made['audience'].upper()}. {made['banner']}")
    if made["membership"] is not None:
        output.say(f"membership  {made['membership']['words']}")
    if made["audit"] is not None:
        output.say(f"audit       {made['audit']['title']}. {made['audit']['answer']}".rstrip())
    if unread:
        output.say("            --train and --test were not opened: add --include-measured to use them.")
