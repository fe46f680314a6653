"""`locum obfuscate fit`, `apply`, `sample`, `domain` and `trade-off`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from locum.cli import output
from locum.cli.obfuscate_output import (
    show_applied,
    show_domain,
    show_obfuscator,
    show_private_table,
    show_sampled,
    show_trade_off,
)
from locum.cli.options import (
    MOST_SEED,
    PRIVACY,
    WHERE,
    Delta,
    DeviceName,
    FitUnitName,
    Force,
    Holding,
    Json,
    LedgerFile,
    Relation,
    RelationName,
    existing,
    existing_obfuscator,
    listed,
    sensible_epsilon,
    unused_folder,
)
from locum.cli.verb import Group
from locum.errors import ConfigError
from locum.types import DEFAULT_DELTA, DP

# Options that mean nothing without a guarantee, and those that mean nothing with one.
_OF_GUARANTEES = (
    "delta", "unit", "subject", "rows_per_subject", "domain", "domain_public", "relation", "holding", "ledger",
)  # fmt: skip
_OF_OBFUSCATORS = (
    "preset", "donors", "show_quarters", "epochs", "beta", "authors_compat", "attributes", "side", "gray", "limit",
    "seed", "device",
)  # fmt: skip


group = Group("Keep what a receiver needs of each record and hide the rest, with two knobs that are set at each use.")


DATA_HELP = (
    "A .csv or .parquet table, the folder of UCI Adult, UCI Diabetes or CelebA, an .npz of images, or a folder of "
    "images with --attributes; DATA#train selects a split."
)
TABLE_HELP = "A .csv or .parquet table, or the folder of UCI Adult or UCI Diabetes; DATA#train selects a split."
Attributes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        callback=existing,
        help="For a folder of images: a .csv or .parquet table about them.",
        rich_help_panel="Records",
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only the first N records.", rich_help_panel="Records")]
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
    ctx: typer.Context,
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
            help="substitute: images that anyone may see as they are; they are shown instead of those in DATA.",
            callback=existing,
            rich_help_panel="What to keep",
        ),
    ] = None,
    show_quarters: Annotated[
        bool,
        typer.Option(
            "--show-quarters",
            help="substitute: one quarter of each image in DATA may be shown unchanged, in collages.",
            rich_help_panel="What to keep",
        ),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="At most this many (default: by preset).", rich_help_panel="Training")
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="calibrated, tables: a larger value hides more and rebuilds records less well.",
            rich_help_panel="Training",
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
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Tables: make a private table, whose sampled rows carry a guarantee of this epsilon.",
            rich_help_panel=PRIVACY,
            callback=sensible_epsilon,
        ),
    ] = None,
    delta: Delta = DEFAULT_DELTA,
    unit: Annotated[
        FitUnitName,
        typer.Option(
            help="What is protected: one record, or a subject with all its records. auto: the subject, if a column "
            "says who a record belongs to.",
            rich_help_panel=PRIVACY,
        ),
    ] = FitUnitName.auto,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says who a record belongs to; not part of the table.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    rows_per_subject: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Rows that a subject may add; more rows need more noise.",
            rich_help_panel=PRIVACY,
        ),
    ] = 1,
    domain: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Declares columns, categories and ranges, which become public (see `obfuscate domain`).",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    domain_public: Annotated[
        bool,
        typer.Option(
            "--domain-public",
            help="Categories and ranges in the data are public: use those. The claim says that it assumes this.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
    relation: Relation = RelationName.add_or_remove,
    holding: Holding = "default",
    ledger: LedgerFile = None,
    resume: Annotated[
        bool, typer.Option(help="Keep a private checkpoint next to the data, to resume from.", rich_help_panel=WHERE)
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
    With --epsilon a private table is learned instead: rows from `obfuscate sample` carry a guarantee of differential
    privacy, paid from the budget of the data.
    """
    _check_options(ctx, epsilon is not None)
    if epsilon is not None:
        _fit_table(
            data, out, utility, drop or (), DP(epsilon, delta, relation=relation.value), domain, domain_public,
            subject, unit.value, rows_per_subject, ledger, holding, force, resume, as_json,
        )  # fmt: skip
        return
    from locum.recipes import fit_obfuscator

    summary = fit_obfuscator(
        data,
        out,
        utility=utility,
        drop=drop or (),
        preset=None if preset is None else preset.value,
        donors=donors,
        show_quarters=show_quarters,
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
        float | None,
        typer.Option(help="How much is hidden: 0 least; inf all but the utility labels.", rich_help_panel="Knobs"),
    ] = None,
    lambda_: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            metavar="NUMBER|own",
            help="How clearly labels are written: 0 not at all, -50 fully (default).",
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
    """Write obfuscated records, with the utility labels and a claim next to them.

    Columns that the obfuscator does not know are left out. Measure first: `locum obfuscate trade-off`.

    A private table takes no knobs; its guarantee covers `obfuscate sample`, not one row for each record.
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


@group.verb()
def sample(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE", help="A folder that `obfuscate fit --epsilon` wrote.", callback=existing_obfuscator
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="A .csv or .parquet file.", rich_help_panel=WHERE)
    ],
    n: Annotated[
        int | None,
        typer.Option(
            "-n",
            min=1,
            help="How many rows (default: the noisy count that was paid for).",
            rich_help_panel="Sampling",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST_SEED, help="Seed of the sampling; it need not be secret.", rich_help_panel="Sampling"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write rows drawn from a private table, with its guarantee in a claim next to them.

    No record is read and nothing is paid: draw as often as you like.
    """
    from locum.recipes import sample_table

    output.show(sample_table(table, out, n=n, seed=seed, overwrite=force), as_json, show_sampled)


@group.verb()
def domain(
    data: Annotated[str, typer.Argument(metavar="DATA", help=TABLE_HELP, callback=existing)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .json file.", rich_help_panel=WHERE)],
    utility: Annotated[
        str, typer.Option(metavar="COLUMN", help="The label that must stay useful.", rich_help_panel="What to keep")
    ],
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Leave this column out. Repeat for more.", rich_help_panel="What to keep"
        ),
    ] = None,
    holding: Annotated[
        str, typer.Option(help="Name of the data holding that notes the look.", rich_help_panel=PRIVACY)
    ] = "default",
    ledger: LedgerFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draft the domain of a table from its records, for you to check and correct before you declare it.

    The file is private: it shows values of records. What you declare with it becomes public. The ledger notes
    this look, and later claims mention it.
    """
    from locum.recipes import draft_domain

    given = {"ledger": ledger, "holding": holding, "overwrite": force}
    written = draft_domain(data, out, utility=utility, drop=drop or (), **given)  # type: ignore[arg-type]
    output.show({"file": str(written)}, as_json, show_domain)


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
            min=1,
            help="Epochs of judges that are networks (default: the adjustable paper's).",
            rich_help_panel="Judges",
        ),
    ] = None,
    attributes: Attributes = None,
    test_attributes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Like --attributes, for a folder passed as --test.",
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


def _check_options(ctx: typer.Context, private: bool) -> None:
    """Refuse options of a guarantee without --epsilon, and options of networks and images with it."""
    from click.core import ParameterSource

    given = [
        name
        for name in (_OF_OBFUSCATORS if private else _OF_GUARANTEES)
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if not given:
        return
    option = f"--{given[0].replace('_', '-')}"
    if private:
        raise ConfigError(f"{option} is for obfuscators, and --epsilon makes a private table: leave one of them out.")
    raise ConfigError(f"{option} belongs to a guarantee: add --epsilon, or leave it out.")


def _fit_table(
    data: str,
    out: Path,
    utility: Sequence[str],
    drop: Sequence[str],
    privacy: DP,
    domain: Path | None,
    domain_public: bool,
    subject: str | None,
    unit: Literal["auto", "record", "subject"],
    rows_per_subject: int,
    ledger: Path | None,
    holding: str,
    force: bool,
    resume: bool,
    as_json: bool,
) -> None:
    """Learn a private table, and show it."""
    if len(utility) != 1:
        raise ConfigError(f"A private table has one label: name one column with --utility; got {len(utility)}.")
    from locum.recipes import fit_private_table

    summary = fit_private_table(
        data,
        out,
        utility=utility[0],
        privacy=privacy,
        domain=domain,
        domain_public=domain_public,
        confirm_domain=_confirm_domain if output.can_ask() else None,
        subject=subject,
        unit=unit,
        rows_per_subject=rows_per_subject,
        drop=drop,
        ledger=ledger,
        holding=holding,
        overwrite=force,
        resume=resume,
    )
    output.show(summary, as_json, show_private_table)


def _confirm_domain(shown: Sequence[str]) -> bool:
    """Ask in a terminal whether categories and ranges in the data may become public."""
    import click

    listed_ = output.plain("; ".join(shown))
    return click.confirm(f"The table will show these from the data: {listed_}. May everyone know them?", err=True)


def _lambda(text: str | None) -> float | Literal["own"] | None:
    return None if text is None else "own" if text == "own" else _numbers(text, "--lambda")[0]


def _numbers(text: str, option: str) -> list[float]:
    try:
        values = [float(part) for part in listed(text)]
    except ValueError:
        raise ConfigError(f"{option} takes numbers, separated by commas; got {text!r}.") from None
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{option} takes one or more different numbers; got {text!r}.")
    return values
