"""`locum evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import BACKBONE_HELP, DATA_HELP, HeadName, Json, ReleaseFolder, existing, listed

if TYPE_CHECKING:
    from locum.recipes import Breakdown, Evaluation
    from locum.types import Estimate


# As many columns as fit into 120 characters; other scores are in the JSON and on the page.
_SHOWN = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced acc.",
    "calibration_error": "calib. error",
}


def evaluate(
    release: ReleaseFolder,
    test: Annotated[
        str,
        typer.Option(
            metavar="DATA", help="Real data to test on. " + DATA_HELP, rich_help_panel="Real data", callback=existing
        ),
    ],
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The records: adds real data, k-Same, distances and the membership check.",
            rich_help_panel="Real data",
            callback=existing,
        ),
    ] = None,
    head: Annotated[
        HeadName, typer.Option(help="Classifier to train on samples.", rich_help_panel="The classifier")
    ] = HeadName.linear,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Vectors to draw (default: as many as --train, or 5000).", rich_help_panel="The classifier"
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Repetitions behind each interval.", rich_help_panel="The classifier")
    ] = 3,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ATTRIBUTE",
            help="Also score each group of an attribute of the test data; may be repeated, or A,B.",
            rich_help_panel="Real data",
        ),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP, rich_help_panel="Real data")] = None,
    as_json: Json = False,
) -> None:
    """Train a classifier on the release, test it on real data, and compare with real data and k-Same."""
    from locum.recipes import evaluate_release

    with output.progress_bar("evaluating") as progress:
        result = evaluate_release(
            release,
            test,
            train=train,
            head=head.value,
            samples=samples,
            seeds=seeds,
            by=[name for part in by or () for name in listed(part)],
            backbone=backbone,
            progress=progress,
        )
    output.show(result, as_json, show_evaluation)


def show_evaluation(result: Evaluation) -> None:
    """Print the table, the groups, then the membership check."""
    metrics = [m for m in _SHOWN if m in result.rows[0].scores]
    far = any(row.distance_ratio is not None for row in result.rows)
    rows = [
        [
            row.method,
            str(row.rows),
            *(output.short_estimate(row.scores[m]) for m in metrics),
            *([_multiple(row.distance_ratio)] if far else []),
        ]
        for row in result.rows
    ]
    head = ["trained on", "rows", *(_SHOWN[m] for m in metrics), *(["nearest record, ×"] if far else [])]
    title = f"A classifier ({result.head}) on {result.test_records:,} real records, by what it was trained on"
    output.show_table(head, rows, title=title)
    over = (
        "Figures are of one run."
        if result.seeds == 1
        else (f"Figures are means over {result.seeds} seeds ± half of their 95% interval.")
    )
    output.say(f"{over} AUC: 0.5 is chance and 1 is perfect. Calib. error: less is better.")
    if far:
        output.say_indented(
            "Nearest record: how far away it is on average, as a multiple of the usual distance between a record and "
            "the nearest other one."
        )
    for found in result.groups:
        _show_groups(found)
    if result.membership is not None:
        output.show_membership(result.membership)


def _multiple(ratio: Estimate | None) -> str:
    """No decimals that nobody reads."""
    return output.short_estimate(ratio, 2 if ratio is None or ratio.value < 10 else 0)


def _show_groups(found: Breakdown) -> None:
    """One attribute: a table of its groups, and how far the best is from the worst."""
    metrics = [m for m in _SHOWN if any(m in group.scores for group in found.groups)]
    by_subject = any(group.subjects is not None for group in found.groups)
    rows = [
        [
            group.value or "(empty)",
            str(group.records),
            *([str(group.subjects)] if by_subject else ()),
            *(output.short_estimate(group.scores.get(m)) for m in metrics),
            group.reason,
        ]
        for group in found.groups
    ]
    columns = [found.attribute, "records", *(["subjects"] if by_subject else ()), *(_SHOWN[m] for m in metrics)]
    if any(group.reason for group in found.groups):
        columns.append("no score because")
    else:
        rows = [row[:-1] for row in rows]
    output.show_table(columns, rows, title=f"by {found.attribute}, trained on: {found.method}")
    for m in metrics if found.gaps else ():
        gap = found.gaps[m]
        chance = "" if gap.difference.low > 0 else "; it may be chance"
        output.say(
            f"gap         {_SHOWN[m]} {output.estimate(gap.difference)}: "
            f"{gap.best or '(empty)'} is best, {gap.worst or '(empty)'} worst{chance}"
        )
    drawn = "subjects" if by_subject else "records"
    output.say(f"            Intervals cover seeds and test {drawn}; a gap's also the choice of the two groups.")
