"""`locum obfuscate fit`, `apply` and `trade-off`, and what they print."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from locum.cli import output
from locum.cli.options import (
    MOST_SEED,
    PRIVACY,
    WHERE,
    DeviceName,
    Force,
    Json,
    existing,
    existing_obfuscator,
    listed,
    unused_folder,
)
from locum.cli.verb import Group

if TYPE_CHECKING:
    from locum.recipes import AppliedSummary, ObfuscatorSummary, TradeOffSummary


group = Group("Keep what a receiver needs of each record and hide the rest, with two knobs that are set at each use.")


DATA_HELP = (
    "A .csv or .parquet table, UCI Adult's folder, CelebA's folder, an .npz of images, or a folder of images with "
    "--attributes; DATA#train selects a split."
)
Attributes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", callback=existing, help="For a folder of images: a .csv or .parquet table about them."
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only the first N records.")]
Saved = Annotated[
    Path,
    typer.Argument(metavar="OBFUSCATOR", help="A folder that `obfuscate fit` wrote.", callback=existing_obfuscator),
]


class PresetName(StrEnum):
    """The presets of an obfuscator."""

    substitute = "substitute"
    calibrated = "calibrated"
    paper = "paper"


@group.verb()
def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, callback=existing)],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="OBFUSCATOR",
            help="Folder to write.",
            rich_help_panel=WHERE,
            callback=unused_folder,
        ),
    ],
    utility: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN",
            help="What must stay useful; removed from a table. Repeat for more.",
            rich_help_panel="What to keep",
        ),
    ],
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Tables: leave this column out. Repeat for more.", rich_help_panel="What to keep"
        ),
    ] = None,
    preset: Annotated[
        PresetName | None,
        typer.Option(
            help="Default: calibrated for tables, substitute for images. paper: the adjustable paper's.",
            rich_help_panel="Training",
        ),
    ] = None,
    donors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE_OR_FOLDER",
            help="substitute: images that may be shown as they are, in place of collages of DATA.",
            callback=existing,
            rich_help_panel="What to keep",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="At most this many (default: by preset).", rich_help_panel="Training")
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="calibrated, tables: larger hides more and rebuilds less well.", rich_help_panel="Training"
        ),
    ] = None,
    authors_compat: Annotated[
        bool,
        typer.Option(
            "--authors-compat", help="paper: what its authors ran, faults included.", rich_help_panel="Training"
        ),
    ] = False,
    attributes: Attributes = None,
    side: Annotated[
        int | None,
        typer.Option(
            help="CelebA and folders of images: side in pixels, a multiple of 16 (64).", rich_help_panel="Training"
        ),
    ] = None,
    gray: Annotated[
        bool, typer.Option("--gray", help="Folders of images: convert to grayscale.", rich_help_panel="Training")
    ] = False,
    limit: Limit = None,
    resume: Annotated[
        bool, typer.Option(help="Keep a private checkpoint beside the data, to resume from.", rich_help_panel=WHERE)
    ] = True,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed for weights and batches.", rich_help_panel="Training")
    ] = 0,
    device: Annotated[
        DeviceName,
        typer.Option(help="Where to train; auto takes a GPU if there is one.", rich_help_panel="Training"),
    ] = DeviceName.auto,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn to obfuscate records, without knowing what is private.

    If the data have splits, `train` is used. Nothing is guaranteed about the records an obfuscator was fitted on.
    """
    from locum.recipes import fit_obfuscator

    summary = fit_obfuscator(
        data,
        out,
        utility=utility,
        drop=drop or (),
        preset=None if preset is None else preset.value,
        donors=donors,
        epochs=epochs,
        beta=beta,
        authors_compat=authors_compat,
        attributes=attributes,
        side=side,
        channels=1 if gray else 3,
        limit=limit,
        seed=seed,
        device=device.value,
        overwrite=force,
        resume=resume,
        verbose=not (as_json or output.is_quiet()),
    )
    output.show(summary, as_json, show_obfuscator)


@group.verb()
def apply(
    obfuscator: Saved,
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP + " Default: all splits.", callback=existing)],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Tables: .csv or .parquet; images: .npz or a folder.",
            rich_help_panel=WHERE,
        ),
    ],
    noise: Annotated[
        float,
        typer.Option(help="How much is hidden: 0 least; inf all but the utility labels.", rich_help_panel="Knobs"),
    ],
    lambda_: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            metavar="NUMBER|own",
            help="How plainly labels are written: 0 not at all, -50 fully (default).",
            rich_help_panel="Knobs",
        ),
    ] = None,
    true_label: Annotated[
        bool,
        typer.Option(
            "--true-label/--no-true-label",
            help="Write the true utility labels, or the obfuscator's prediction.",
            rich_help_panel="Knobs",
        ),
    ] = True,
    keep_order: Annotated[
        bool,
        typer.Option(
            "--keep-order", help="Keep the order of DATA, which shows which record is whose.", rich_help_panel=WHERE
        ),
    ] = False,
    delta: Annotated[float, typer.Option(help="The delta of the local epsilon.", rich_help_panel=PRIVACY)] = 1e-5,
    attributes: Attributes = None,
    limit: Limit = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SEED,
            help="For tests: anyone who guesses it can remove the noise.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write obfuscated records, with the utility labels and a claim beside them.

    Columns that the obfuscator does not know are left out. Measure first: `locum obfuscate trade-off`.
    """
    from locum.recipes import apply_obfuscator

    summary = apply_obfuscator(
        obfuscator,
        data,
        out,
        noise=noise,
        lambda_=_lambda(lambda_),
        true_label=true_label,
        delta=delta,
        keep_order=keep_order,
        attributes=attributes,
        limit=limit,
        seed=seed,
        overwrite=force,
    )
    output.show(summary, as_json, show_applied)


@group.verb("trade-off")
def trade_off(
    obfuscator: Saved,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Records to train judges on. " + DATA_HELP, callback=existing)
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder for curve, table and report.", rich_help_panel=WHERE
        ),
    ],
    private: Annotated[
        str, typer.Option(metavar="COLUMN", help="What an attacker wants to know.", rich_help_panel="Judges")
    ],
    noise: Annotated[
        str, typer.Option(metavar="A,B,...", help="Values of the noise.", rich_help_panel="Knobs")
    ] = "0,1,2,5",
    lambda_: Annotated[
        str | None,
        typer.Option("--lambda", metavar="A,B,...", help="Values of lambda (default: -50).", rich_help_panel="Knobs"),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Records to test judges on (default: split test, or --holdout).",
            rich_help_panel="Judges",
            callback=existing,
        ),
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Without test records: share of DATA to test judges on.", rich_help_panel="Judges")
    ] = 0.2,
    attacker_at_most: Annotated[
        float | None,
        typer.Option(
            help="Pick the least noise that keeps the strongest attacker at this or below; else exit 3.",
            rich_help_panel="Knobs",
        ),
    ] = None,
    true_label: Annotated[
        bool,
        typer.Option(
            "--true-label/--no-true-label",
            help="Write the true utility labels, or the obfuscator's prediction.",
            rich_help_panel="Knobs",
        ),
    ] = True,
    judges: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="network, trees, patches, backbone (default: all that read the records).",
            rich_help_panel="Judges",
        ),
    ] = None,
    copies: Annotated[
        int,
        typer.Option(
            min=1, help="Releases of each record that the averaging attacker has.", rich_help_panel="Judges"
        ),
    ] = 10,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="For judges that are networks (default: the adjustable paper's).", rich_help_panel="Judges"
        ),
    ] = None,
    attributes: Attributes = None,
    test_attributes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The same for a folder passed as --test.",
            rich_help_panel="Judges",
            callback=existing,
        ),
    ] = None,
    limit: Limit = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_SEED, help="Seed for judges and for the releases they see.", rich_help_panel="Judges"
        ),
    ] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure what attackers and receivers find, at every setting of the knobs.

    An interrupted run resumes; values can be added later. The report is internal: it holds figures measured on real
    records and, for images, some of them.
    """
    from locum.recipes import measure_trade_off

    with (
        output.resumable(starts_over="--force" if force else ""),
        output.progress_bar("judging") as progress,
    ):
        summary = measure_trade_off(
            obfuscator,
            data,
            out,
            private=private,
            noises=_numbers(noise, "--noise"),
            lambdas=None if lambda_ is None else _numbers(lambda_, "--lambda"),
            test=test,
            holdout=holdout,
            attacker_at_most=attacker_at_most,
            true_label=true_label,
            judges=None if judges is None else listed(judges),
            copies=copies,
            epochs=epochs,
            attributes=attributes,
            test_attributes=test_attributes,
            limit=limit,
            seed=seed,
            overwrite=force,
            progress=progress,
        )
    output.show(summary, as_json, show_trade_off)
    if summary.problem:
        raise typer.Exit(3)


def show_obfuscator(summary: ObfuscatorSummary) -> None:
    """Print the summary of a fit."""
    size = f"{summary.parameters:,} parameters, {summary.megabytes:.2f} MB, {summary.seconds:.0f} s"
    output.say(f"obfuscator  {summary.obfuscator} ({summary.preset}, {size})", "bold")
    output.say(f"fingerprint {summary.fingerprint}")
    for name, values in summary.utility.items():
        shown = ", ".join(map(str, values[:12])) + (", ..." if len(values) > 12 else "")
        output.say(f"keeps       {name}: {shown}")
    takes = " x ".join(summary.takes) if summary.kind == "image" else ", ".join(summary.takes)
    output.say(f"takes       {takes}")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    trained = f", best epoch {summary.epochs}" if summary.epochs else ""
    output.say(f"records     {summary.records} used{trained} (do not share this number)")
    output.show_claim(summary.claim)


def show_applied(summary: AppliedSummary) -> None:
    """Print where the records are, and their claim."""
    knobs = summary.about["knobs"]
    output.say(f"obfuscated  {summary.records} records in {summary.file}", "bold")
    output.say(
        f"knobs       noise {knobs['noise']:g}" if isinstance(knobs["noise"], float) else "knobs       noise inf"
    )
    output.say(f"            lambda {knobs['lambda']}, {knobs['labels']} labels")
    if summary.left_out:
        output.say(f"left out    {', '.join(summary.left_out)}")
    output.say(f"claim       {summary.claim.title}, in {summary.claim_file}", "bold")
    output.say_indented("Measured, not proven: send it only if what `obfuscate trade-off` found is acceptable.")
    for item in summary.claim.not_covered:
        output.say_indented(f"not covered: {item}")


def show_trade_off(summary: TradeOffSummary) -> None:
    """Print the table with its baselines, and where the report is."""
    report, found = summary.report, summary.found
    rows = [
        [p.name, output.short_estimate(p.judgment.attacker), p.judgment.attacker_name,
         output.short_estimate(p.judgment.utility), "picked" if shown["picked"] else ""]
        for p, shown in zip(found.points, report["points"], strict=True)
    ]  # fmt: skip
    first, (private, utility) = found.points[0].judgment, found.original()
    rows.append(["original records", output.short_estimate(private), "", output.short_estimate(utility), ""])
    rows.append(["utility label alone", output.short_estimate(first.label_only), "", "", ""])
    guesses = [output.short_estimate(e) for e in (first.majority, first.utility_majority)]
    rows.append(["most frequent", guesses[0], "", guesses[1], ""])
    measured = report["measured"]
    output.show_table(
        ["setting", f"attacker on {measured['private']}", "who", f"utility {report['obfuscator']['utility']}", ""],
        rows,
    )
    output.say(f"tested on   {measured['test records']} records. {measured['tested on']}")
    if report["caution"] and report["caution"] != summary.problem:
        output.say(f"caution     {report['caution']}", "red")
    if summary.problem:
        output.say(f"not met     {summary.problem}", "red")
    elif report["target"] is not None:
        output.say(f"picked      {report['target']['picked']}: measure it again on other records", "bold")
    output.say(f"report      {Path(summary.folder) / 'report.html'}", "bold")
    output.say(f"            INTERNAL. {report['banner']}")


def _lambda(text: str | None) -> float | Literal["own"] | None:
    return None if text is None else "own" if text == "own" else _numbers(text, "--lambda")[0]


def _numbers(text: str, option: str) -> list[float]:
    from locum.errors import ConfigError

    try:
        values = [float(part) for part in listed(text)]
    except ValueError:
        raise ConfigError(f"{option} takes numbers, separated by commas; got {text!r}.") from None
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{option} takes one or more different numbers; got {text!r}.")
    return values
