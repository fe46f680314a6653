"""`locum rebalance [run]` and `locum rebalance compare`, and what they print."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer

from locum.cli import output
from locum.cli.options import (
    DATA_HELP,
    MOST_SEED,
    WHERE,
    Data,
    DeviceName,
    Force,
    Json,
    class_counts,
    existing,
    listed,
    unused_file,
)
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.recipes import Comparison, RebalanceSummary
    from locum.types import Estimate


_SCORES = {
    "balanced_accuracy": "all classes",
    "accuracy": "all records",
    "many": "many",
    "medium": "medium",
    "few": "few",
}


class HeadSettings(StrEnum):
    """How the head of a comparison is trained."""

    default = "default"
    thesis = "thesis"


class _RunUnlessNamed(Group):
    """A group with a default command: a first word that is not a command is an argument of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.list_commands(ctx) and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


group = _RunUnlessNamed(
    "Rare classes: fill them up with generated records, or compare methods. The word `run` is optional.",
    subcommand_metavar="[run] DATA -o FILE | compare DATA --test DATA",
)


@group.verb()
def run(
    data: Data,
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
    generator: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="gaussian, cvae-small, cvae-large, or a release folder.",
            rich_help_panel="What to add",
        ),
    ] = "gaussian",
    amount: Annotated[
        float, typer.Option(help="How far to go: 0 adds nothing, 1 balances fully.", rich_help_panel="What to add")
    ] = 1.0,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Which classes grow to the size of the largest: auto (all), minority (the smallest), "
            "'not minority', or for two classes a ratio.",
            rich_help_panel="What to add",
        ),
    ] = "auto",
    per_class: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=COUNT,...",
            help="Exact sizes instead, including real records.",
            rich_help_panel="What to add",
        ),
    ] = None,
    variance: Annotated[
        float | None,
        typer.Option(
            help="Below 1: more typical records (default: the generator's own).", rich_help_panel="What to add"
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="For images: the vision model (efflite0), or where the release's model is.",
            rich_help_panel="What to add",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_SEED, help="Seed for the generator and its samples.", rich_help_panel="What to add"
        ),
    ] = 0,
    device: Annotated[
        DeviceName,
        typer.Option(help="CVAE: where to train; auto takes a GPU if there is one.", rich_help_panel="What to add"),
    ] = DeviceName.auto,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the records and, after them, generated ones that fill up rare classes.

    The word `run` is optional. The file holds the real records: it guarantees no privacy.
    """
    from locum.recipes import rebalance_to_file

    with output.progress_bar("embed") as progress:
        summary = rebalance_to_file(
            data,
            out,
            generator=generator,
            amount=amount,
            strategy=strategy,
            per_class=None if per_class is None else class_counts(per_class),
            variance=variance,
            backbone=backbone,
            seed=seed,
            device=device.value,
            overwrite=force,
            verbose=not (as_json or output.is_quiet()),
            progress=progress,
        )
    output.show(summary, as_json, show_rebalanced)


def show_rebalanced(summary: RebalanceSummary) -> None:
    """Print one line per class, then where the file is and that it is private."""
    from locum.recipes import PRIVATE

    rows = [[c.name, str(c.records), str(c.added), str(c.records + c.added)] for c in summary.classes]
    output.show_table(["class", "real", "generated", "in all"], rows)
    made = f"{summary.records} real and {summary.added} generated records ({summary.generator})"
    output.say(f"{made} written to {summary.file}", "bold")
    output.say(PRIVATE)


@group.verb()
def compare(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Records to learn from. " + DATA_HELP, callback=existing)
    ],
    test: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Real data to test on, in their true proportions.",
            rich_help_panel="What to compare",
            callback=existing,
        ),
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Only these (default: all that do not train a CVAE).",
            rich_help_panel="What to compare",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Every method; those with a CVAE are slow.", rich_help_panel="What to compare"),
    ] = False,
    seeds: Annotated[
        int, typer.Option(help="Repetitions behind each interval.", rich_help_panel="What to compare")
    ] = 3,
    head: Annotated[
        HeadSettings,
        typer.Option(
            help="Settings of the linear head: ours, or those of the thesis.", rich_help_panel="What to compare"
        ),
    ] = HeadSettings.default,
    figure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw accuracy by class: .png, .svg or .pdf.",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="For images: the vision model (default: efflite0).", rich_help_panel="What to compare"),
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(help="Where to train; auto takes a GPU if there is one.", rich_help_panel="What to compare"),
    ] = DeviceName.auto,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a linear head with each method for rare classes, and test all on the same real data.

    The command chooses nothing. Choose a method on validation data, and report it on test data not used for that.
    """
    from locum.recipes import compare_methods

    with output.progress_bar("comparing") as progress:
        result = compare_methods(
            data,
            test,
            methods=None if methods is None else listed(methods),
            every=every,
            seeds=seeds,
            head=head.value,
            figure=figure,
            backbone=backbone,
            device=device.value,
            overwrite=force,
            progress=progress,
        )
    output.show(result, as_json, show_comparison)


# How to read the last column.
_VERDICTS = {
    "several": "Better or worse: that interval excludes 0, and so does the one over the {seeds} seeds (in --json). "
    "Tie: at least one of the two includes 0, so the difference may come from these test records or these seeds, "
    "even if the interval shown excludes 0.",
    "one run": "One run: with one seed it is unknown how much another seed would change it. Use --seeds 3 or more.",
}


def show_comparison(result: Comparison) -> None:
    """Print the table in percent, then how to read it."""
    shown = [name for name in _SCORES if name in result.rows[0].scores]
    rows = [
        [
            row.method,
            *(output.short_estimate(_percent(row.scores[name]), 1) for name in shown),
            row.verdict if row.difference is None else f"{row.verdict:7} {_percent(row.difference):+.1f}",
        ]
        for row in result.rows
    ]
    output.show_table(["method", *(_SCORES[name] for name in shown), f"against {result.reference}"], rows)
    output.say(
        f"Accuracy in %, {result.head} linear head, {result.records} records, tested on {result.test_records}; mean "
        f"and half of the 95 % interval over {result.seeds} seeds. All classes: each counts the same. Many, medium, "
        "few: classes with over 100, 21 to 100, up to 20 training records."
    )
    why = f", the best of {', '.join(result.simple)} in cross-validation on the records" if result.simple[1:] else ""
    output.say(
        f"Against {result.reference}{why}: the difference over all classes, with its 95 % interval over test "
        "records. " + _VERDICTS["one run" if result.seeds == 1 else "several"].format(seeds=result.seeds)
    )
    for row in result.rows:
        if row.note:
            output.say(f"{row.method}: {row.note}")
    if result.left_out:
        output.say(f"Left out because they train a CVAE: {', '.join(result.left_out)}. --all adds them.")
    if result.figure is not None:
        output.say(f"Accuracy by class drawn in {result.figure} (only you may read it)")


def _percent(value: Estimate) -> Estimate:
    from locum.types import Estimate

    return Estimate(100 * value.value, 100 * value.low, 100 * value.high, value.n)
