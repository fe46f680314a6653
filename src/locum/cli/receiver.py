"""The receiver's verbs: train a classifier on a release, and predict the receiver's own records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import (
    DATA_HELP,
    MOST_SEED,
    WHERE,
    DeviceName,
    Force,
    Json,
    ReleaseBackbone,
    ReleaseFolder,
    TrainedName,
    existing,
    existing_head,
    unused_file,
)

if TYPE_CHECKING:
    from locum.recipes import PredictSummary, TrainSummary
    from locum.types import Estimate


_METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "f1_macro": "F1",
    "calibration_error": "calibration error",
}


def train(
    release: ReleaseFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="HEAD",
            help="File to write; ends in .safetensors.",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ],
    head: Annotated[
        TrainedName,
        typer.Option(
            help="The release's own rule (bayes), or a classifier trained on samples; auto: bayes if the release "
            "carries a private head.",
            rich_help_panel="The classifier",
        ),
    ] = TrainedName.auto,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Vectors to draw (default: 10000, or all rows of a fixed table).", rich_help_panel="The classifier"
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_SEED, help="Seeds draws, weights and batches.", rich_help_panel="The classifier"
        ),
    ] = 0,
    device: Annotated[
        DeviceName,
        typer.Option(
            help="Where to train; auto takes a GPU if there is one.",
            rich_help_panel="The classifier",
        ),
    ] = DeviceName.auto,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Fit probabilities to fresh samples of the release; real records differ from these.",
            rich_help_panel="The classifier",
        ),
    ] = False,
    balanced: Annotated[
        bool,
        typer.Option(
            "--balanced",
            help="Assume classes of equal size, so that rare classes are predicted more often.",
            rich_help_panel="The classifier",
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a classifier on a release alone, and save it for `predict`.

    Its scores are measured on samples of the release. Only real data can show how good it is: see `predict`.
    """
    from locum.recipes import train_head

    with output.progress_bar("training") as progress:
        summary = train_head(
            release,
            out,
            head=head.value,
            samples=samples,
            seed=seed,
            device=device.value,
            calibrate=calibrate,
            balanced=balanced,
            overwrite=force,
            progress=progress,
        )
    output.show(summary, as_json, show_training)


def show_training(summary: TrainSummary) -> None:
    """The result of training."""
    from locum.recipes import SCORED_ON

    output.say(
        f"head        {summary.head} ({summary.kind}, {len(summary.classes)} classes, {summary.megabytes:.2f} MB, "
        f"{summary.seconds:.0f} s)",
        "bold",
    )
    made_of = f"the release {summary.release[:12]} ({summary.generator})"
    if summary.kind == "bayes":
        output.say(f"rule        the Bayes rule of {made_of}; nothing was trained")
    else:
        output.say(f"trained on  {summary.rows} vectors of {made_of}")
    if summary.left_out:
        output.say(f"left out    {_listed(summary.left_out)}: the release has no vectors of these classes")
    if summary.scores:
        output.say(f"scores      on {SCORED_ON} ({summary.fresh_rows} were drawn):")
        _scores(output.say, summary.scores)
    else:
        output.say("scores      none: the release has too few rows to hold some out")
    if summary.calibration is not None:
        found = summary.calibration
        output.say(
            f"calibrated  temperature {found.temperature:.3g}, fitted on {found.rows} other samples; calibration "
            f"error {output.estimate(found.before)} before, {output.estimate(found.after)} after"
        )
        output.say("            Fitted to the release: real records differ from its samples.")
    output.show_claim(summary.claim)
    output.say("            The head was made from the release alone, so this is the release's claim.")


def predict(
    head: Annotated[Path, typer.Argument(metavar="HEAD", help="A file that `train` wrote.", callback=existing_head)],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help=DATA_HELP + " Without one: test, else val, else all.", callback=existing),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A .csv to write (default: standard output).",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    backbone: ReleaseBackbone = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict the class of each record, as CSV; with scores if labels are known.

    Images are embedded exactly as the release requires.

    Without -o the table goes to standard output and everything else to standard error.
    """
    from locum.recipes import predict_records

    with output.progress_bar("embed") as progress:
        summary = predict_records(head, data, out=out, backbone=backbone, overwrite=force, progress=progress)
    if as_json:
        output.print_json(summary.to_dict())
        return
    if out is None:
        sys.stdout.flush()
        summary.write_csv(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    show_predictions(summary)


def show_predictions(summary: PredictSummary) -> None:
    """What was predicted and how good it was; on standard error if the table goes to standard output."""
    from collections import Counter

    tell: Callable[[str], None] = output.say_aside if summary.file is None else output.say
    where = f" ({summary.skipped_file} names them)" if summary.skipped_file else ""
    images = "1 image" if summary.skipped == 1 else f"{summary.skipped} images"
    skipped = f", {images} could not be read{where}" if summary.skipped else ""
    tell(f"records     {len(summary.names)} predicted with {summary.head}{skipped}")
    tell(f"predicted   {_listed([f'{name}: {count}' for name, count in Counter(summary.labels).most_common()])}")
    if summary.scores:
        tell(f"scores      on {summary.scored_records} labeled records:")
        _scores(tell, summary.scores)
        tell("            Intervals cover chance among records from the same source, nothing else.")
    if summary.unknown_labels:
        tell(f"not scored  {summary.unknown_labels} records with a label unknown to the head")
    if summary.file is not None:
        tell(f"written to  {summary.file} (only you may read it)")


def _scores(tell: Callable[[str], None], scores: Mapping[str, Estimate]) -> None:
    for name, title in _METRICS.items():
        if name in scores:
            tell(f"{'':12}{title:18}{output.estimate(scores[name])}")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
