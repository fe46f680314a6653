"""`locum evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import BACKBONE_HELP, DATA_HELP, HeadName, Json, ReleaseFolder, existing

if TYPE_CHECKING:
    from locum.recipes import Evaluation


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
            help="The records: adds real data, k-Same, D and the membership check.",
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
            backbone=backbone,
            progress=progress,
        )
    output.show(result, as_json, show_evaluation)


def show_evaluation(result: Evaluation) -> None:
    """Print the table, then the membership check."""
    shown = {"auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced acc.", "f1_macro": "F1"}
    metrics = [m for m in shown if m in result.rows[0].scores]
    rows = [
        [
            row.method,
            str(row.rows),
            *(output.short_estimate(row.scores[m]) for m in metrics),
            output.short_estimate(row.distance, 2),
        ]
        for row in result.rows
    ]
    output.show_table(["trained on", "rows", *(shown[m] for m in metrics), "D"], rows)
    output.say(
        f"{result.head} head, tested on {result.test_records} real records; mean and half of the 95 % interval over "
        f"{result.seeds} seeds. D: mean distance to the nearest record, z-scored."
    )
    if result.membership is not None:
        output.show_membership(result.membership)
