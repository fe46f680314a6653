"""`locum report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import BACKBONE_HELP, Force, HeadName, Json


class MapName(StrEnum):
    """Ways to draw the map."""

    auto = "auto"
    tsne = "tsne"
    pca = "pca"


def report(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help=".html, .md or .json; RELEASE-report.html if not given."),
    ] = None,
    train: Annotated[
        str | None, typer.Option(metavar="DATA", help="The records: adds map, distances, counts, baselines.")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Real data that were not used: adds scores and, with --train, the check."),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `locum audit --json` wrote about this release.")
    ] = None,
    share: Annotated[
        bool, typer.Option("--share", help="A page that can be sent: no real point, no exact count.")
    ] = False,
    include_measured: Annotated[
        bool,
        typer.Option(
            "--include-measured", help="With --share: rounded figures, measured on DATA or told by --audit."
        ),
    ] = False,
    map: Annotated[MapName, typer.Option(help="How to draw the map.")] = MapName.auto,
    head: Annotated[HeadName, typer.Option(help="Classifier to train on samples.")] = HeadName.linear,
    seeds: Annotated[int, typer.Option(help="Repetitions behind each interval.")] = 3,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP)] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Put what is known of a release on one page that needs no network.

    The page is internal: it shows real points and exact counts. With --share it holds neither.
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
    # Said aloud, or somebody who gave data would take an empty section for a finding.
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
        output.say("            --train and --test were not opened: --include-measured adds what they give.")
