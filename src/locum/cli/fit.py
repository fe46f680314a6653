"""`locum fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import (
    CHECK,
    MOST_SEED,
    PRIVACY,
    SETTINGS,
    WHAT,
    WHERE,
    Data,
    Force,
    GeneratorName,
    Json,
    RelationName,
    UnitName,
    existing,
    listed,
    sensible_epsilon,
    unused_folder,
)

if TYPE_CHECKING:
    from locum.recipes import FitSummary
    from locum.types import DP


def fit(
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="RELEASE", help="Folder to write.", rich_help_panel=WHERE, callback=unused_folder
        ),
    ],
    generator: Annotated[
        GeneratorName,
        typer.Option(help="Generator to fit; see docs/guides/choosing-a-generator.md.", rich_help_panel=WHAT),
    ] = GeneratorName.auto,
    preset: Annotated[
        str | None, typer.Option(help="CVAE: replica, small, large, federated or private.", rich_help_panel=SETTINGS)
    ] = None,
    decoder_noise: Annotated[
        str | None, typer.Option(help="CVAE: none, diagonal or low-rank.", rich_help_panel=SETTINGS)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="CVAE: largest number of epochs.", rich_help_panel=SETTINGS)
    ] = None,
    condition_on: Annotated[
        str | None,
        typer.Option(help="CVAE: attributes besides the class, separated by commas.", rich_help_panel=SETTINGS),
    ] = None,
    authors_compat: Annotated[
        bool,
        typer.Option(
            "--authors-compat",
            help="CVAE: do what the papers' authors ran, faults included.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    covariance: Annotated[
        str | None,
        typer.Option(
            help="Gaussian with --epsilon: auto, own (half of the budget) or public.", rich_help_panel=SETTINGS
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="With --epsilon: public statistics for whitening (default: the backbone's, if any).",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(help="Gaussian: number of directions of the shared covariance.", rich_help_panel=SETTINGS),
    ] = None,
    k: Annotated[int | None, typer.Option(help="k-Same: smallest size of a group.", rich_help_panel=SETTINGS)] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="k-Same: group within each class.", rich_help_panel=SETTINGS)
    ] = False,
    variance: Annotated[
        float | None, typer.Option(help="Sampling variance; 1 is what training assumes.", rich_help_panel=WHAT)
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="raw, or unit: vectors scaled to length 1.", rich_help_panel=WHAT)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="For images: the vision model (default: efflite0; see `embed --backbones`).", rich_help_panel=WHAT
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Differential privacy: how much one unit may change the result.",
            rich_help_panel=PRIVACY,
            callback=sensible_epsilon,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="With --epsilon: probability of failure, at most 1/(10 n).", rich_help_panel=PRIVACY),
    ] = None,
    n_public: Annotated[
        int | None,
        typer.Option(help="With --epsilon: about how many units, as a public number.", rich_help_panel=PRIVACY),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="With --epsilon: all classes that can occur, separated by commas.", rich_help_panel=PRIVACY
        ),
    ] = None,
    unit: Annotated[
        UnitName,
        typer.Option(
            help="With --epsilon: what is protected, one record or a subject with all its records.",
            rich_help_panel=PRIVACY,
        ),
    ] = UnitName.record,
    relation: Annotated[
        RelationName,
        typer.Option(
            help="With --epsilon: add-or-remove hides the presence of a unit; replace-one only its values.",
            rich_help_panel=PRIVACY,
        ),
    ] = RelationName.add_or_remove,
    holding: Annotated[
        str, typer.Option(help="With --epsilon: name of the data holding whose budget pays.", rich_help_panel=PRIVACY)
    ] = "default",
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --epsilon: the ledger (default: next to the data).", rich_help_panel=PRIVACY
        ),
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of records held out for the membership check.", rich_help_panel=CHECK)
    ] = 0.1,
    non_members: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Records that are not used, for that check, instead of --holdout.",
            rich_help_panel=CHECK,
            callback=existing,
        ),
    ] = None,
    fail_on_leak: Annotated[
        bool,
        typer.Option(
            "--fail-on-leak",
            help="If the check finds a leak, write nothing and exit with code 3.",
            rich_help_panel=CHECK,
        ),
    ] = False,
    drop_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-duplicates",
            help="Leave out records that equal another; with --unit subject only among the records of one subject.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    duplicates_removed: Annotated[
        bool,
        typer.Option(
            "--duplicates-removed",
            help="With --epsilon: you removed copies from the data before; the claim names it.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(help="Keep a private checkpoint next to the data and resume from it.", rich_help_panel=WHERE),
    ] = True,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed for weights, batches and splits.", rich_help_panel=WHAT)
    ] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a generator to records and write a release that anyone can sample.

    One simple attack is then run on it, with records of the validation or test split, or a held-out share.
    """
    # Checked first: nothing heavy is imported for a mistyped budget.
    budget = _budget(epsilon, delta, n_public, unit.value, relation.value)
    from locum.recipes import fit_release

    settings: dict[str, Any] = {
        "preset": preset,
        "decoder_noise": decoder_noise,
        "max_epochs": epochs,
        "condition_on": listed(condition_on) if condition_on else None,
        "authors_compat": authors_compat or None,
        "covariance": covariance,
        "reference": reference,
        "rank": rank,
        "k": k,
        "per_class": per_class or None,
        "variance": variance,
        "space": space,
    }
    with output.progress_bar("embed") as progress:
        summary = fit_release(
            data,
            out,
            generator=generator.value,
            settings={name: value for name, value in settings.items() if value is not None},
            holdout=holdout,
            non_members=non_members,
            backbone=backbone,
            privacy=budget,
            classes=None if classes is None else [name.strip() for name in classes.split(",")],
            ledger=ledger,
            holding=holding,
            drop_duplicates=drop_duplicates,
            duplicates_removed=duplicates_removed,
            refuse_leak=fail_on_leak,
            overwrite=force,
            resume=resume,
            verbose=not (as_json or output.is_quiet()),
            seed=seed,
            progress=progress,
        )
    output.show(summary, as_json, show_fit)


def show_fit(summary: FitSummary) -> None:
    """Print the result of a fit for the data holder."""
    output.say(
        f"release     {summary.release} ({summary.generator}, {summary.megabytes:.2f} MB, {summary.seconds:.0f} s)",
        "bold",
    )
    output.say(f"fingerprint {summary.fingerprint}")
    output.say(f"records     {summary.records} used, {summary.held_out} not used (not part of the release)")
    _show_duplicates(summary)
    output.show_claim(summary.claim)
    if summary.membership is not None:
        output.show_membership(summary.membership)
    else:
        output.say(f"membership  not checked: {summary.problem}")


def _show_duplicates(summary: FitSummary) -> None:
    """Counts of copies, and the way out; which records they are is in a private file only."""
    if not (summary.repeated or summary.shared or summary.dropped):
        return
    listed = "" if summary.duplicates_file is None else f"; listed in {summary.duplicates_file} (private)"
    output.say(
        f"duplicates  {summary.repeated} records equal another of their class, {summary.shared} non-members equal a "
        f"record{listed}"
    )
    out = f"{summary.dropped} were left out" if summary.dropped else "none was left out: --drop-duplicates does that"
    if summary.kept and summary.claim.dp is not None and summary.claim.unit == "subject":
        out += (
            "; with a guarantee per subject, copies of different subjects are kept, since no subject may decide over "
            "the records of others: if you remove those yourself, say so with --duplicates-removed"
        )
    output.say_indented(out)


def _budget(epsilon: float | None, delta: float | None, n_public: int | None, unit: str, relation: str) -> DP | None:
    from locum.errors import ConfigError
    from locum.types import DP

    if epsilon is None:
        if delta is not None or n_public is not None:
            raise ConfigError("--delta and --n-public need --epsilon: add it, or leave them out.")
        return None
    if delta is None or n_public is None:
        raise ConfigError("--epsilon needs --delta and --n-public: `locum plan --explain` helps to choose them.")
    return DP(epsilon, delta, unit, n_public, relation)  # type: ignore[arg-type]  # one of two words each
