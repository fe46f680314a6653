"""`locum fit`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
    Backbone,
    Classes,
    ClassesPublic,
    Data,
    Delta,
    DeviceName,
    EngineName,
    Epsilon,
    FitUnitName,
    Force,
    GeneratorName,
    Holding,
    Json,
    LedgerFile,
    Relation,
    RelationName,
    address_option,
    existing,
    listed,
    unused_folder,
)
from locum.errors import ConfigError
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON

if TYPE_CHECKING:
    from locum.recipes import FitSummary
    from locum.types import DP

# Options that mean nothing without a guarantee.
_GUARANTEE = (
    "epsilon", "delta", "n_public", "classes", "classes_public", "unit", "relation", "holding", "ledger",
    "duplicates_removed", "mechanism", "reference", "condition_values",
)  # fmt: skip
# Less epsilon than this is what rounding leaves.
_NOTHING = 1e-4


def fit(
    ctx: typer.Context,
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
        typer.Option(
            help="Gaussian, CVAE: attributes besides the class, separated by commas.", rich_help_panel=SETTINGS
        ),
    ] = None,
    device: Annotated[
        DeviceName,
        typer.Option(
            help="CVAE, CGAN: where to train; auto takes a GPU if there is one. With a guarantee, always the CPU.",
            rich_help_panel=SETTINGS,
        ),
    ] = DeviceName.auto,
    authors_compat: Annotated[
        bool,
        typer.Option(
            "--authors-compat",
            help="CVAE: do what the papers' authors ran, faults included.",
            rich_help_panel=SETTINGS,
        ),
    ] = False,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="Gaussian with a guarantee: auto, head, means (its sums can be merged over sites) or covariance.",
            rich_help_panel=SETTINGS,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Public statistics for whitening, or a .csv of each column's range (default: the backbone's).",
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
    backbone: Backbone = None,
    no_dp: Annotated[
        bool,
        typer.Option(
            "--no-dp",
            help="Make a release without differential privacy, and so without a guarantee.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
    epsilon: Epsilon = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    unit: Annotated[
        FitUnitName,
        typer.Option(
            help="What is protected: one record, or a subject with all its records. auto: the subject, if the data "
            "have subjects.",
            rich_help_panel=PRIVACY,
        ),
    ] = FitUnitName.auto,
    classes: Classes = None,
    classes_public: ClassesPublic = False,
    condition_values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B",
            help="All values that an attribute of --condition-on can have; they become public. May be repeated. "
            "Without it, --classes-public covers the values in the data.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    n_public: Annotated[
        int | None,
        typer.Option(help="CVAE, CGAN: about how many units, as a public number.", rich_help_panel=PRIVACY),
    ] = None,
    relation: Relation = RelationName.add_or_remove,
    holding: Holding = "default",
    ledger: LedgerFile = None,
    holdout: Annotated[
        float,
        typer.Option(help="With --no-dp: share of records held out for the membership check.", rich_help_panel=CHECK),
    ] = 0.1,
    non_members: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Records that the fit does not use, for that check, instead of --holdout.",
            rich_help_panel=CHECK,
            callback=existing,
        ),
    ] = None,
    fail_on_leak: Annotated[
        bool,
        typer.Option(
            "--fail-on-leak",
            help="With --no-dp: if the check finds a leak, write nothing and exit with code 3.",
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
            help="You already removed copies from the data; the claim says so.",
            rich_help_panel=PRIVACY,
        ),
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(help="Keep a private checkpoint next to the data and resume from it.", rich_help_panel=WHERE),
    ] = True,
    engine: Annotated[
        EngineName,
        typer.Option(help="Read large data in this process, or on a Ray cluster.", rich_help_panel=WHERE),
    ] = EngineName.local,
    address: Annotated[
        str | None,
        address_option(WHERE),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed for weights, batches and splits.", rich_help_panel=WHAT)
    ] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a generator to records and write a release that anyone can sample.

    The release has a guarantee of differential privacy, paid from the budget of the data, except with --no-dp. One
    simple attack is then run on it, with records that the fit did not use: those of --non-members, else the
    validation or test split, else, with --no-dp, a held-out share.
    """
    # Checked first: nothing heavy is imported for a mistyped budget.
    budget = None if no_dp else _budget(epsilon, delta, n_public, unit.value, relation.value)
    if no_dp:
        _check_no_guarantee(ctx)
    if engine is not EngineName.ray and address is not None:
        raise ConfigError("--address is for a Ray cluster: add --engine ray, or leave it out.")
    from locum.data import RayEngine
    from locum.recipes import fit_release

    settings: dict[str, Any] = {
        "preset": preset,
        "decoder_noise": decoder_noise,
        "max_epochs": epochs,
        "device": None if device is DeviceName.auto else device.value,
        "condition_on": listed(condition_on) if condition_on else None,
        "condition_values": _values(condition_values) if condition_values else None,
        "authors_compat": authors_compat or None,
        "mechanism": mechanism,
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
            no_dp=no_dp,
            unit_from_data=unit is FitUnitName.auto,
            classes=None if classes is None else [name.strip() for name in classes.split(",")],
            classes_public=classes_public,
            confirm_classes=confirm_names if output.can_ask() else None,
            ledger=ledger,
            holding=holding,
            drop_duplicates=drop_duplicates,
            duplicates_removed=duplicates_removed,
            refuse_leak=fail_on_leak,
            overwrite=force,
            resume=resume,
            engine=RayEngine(address or "local") if engine is EngineName.ray else None,
            verbose=not (as_json or output.is_quiet()),
            seed=seed,
            progress=progress,
            announce=output.say_aside,
        )
    # With a guarantee, copies that are used are announced before it is paid for.
    output.show(summary, as_json, partial(show_fit, copies_told=budget is not None and summary.kept > 0))


def show_fit(summary: FitSummary, *, copies_told: bool = False) -> None:
    """Print the result of a fit for the data holder; a release without a guarantee says so first.

    `copies_told` says that copies were announced before the fit: they are not told twice.
    """
    if summary.claim.warning:
        output.say(summary.claim.warning, "red")
    output.say(
        f"release     {summary.release} ({summary.generator}, {summary.megabytes:.2f} MB, {summary.seconds:.0f} s)",
        "bold",
    )
    output.say(f"fingerprint {summary.fingerprint}")
    output.say(f"records     {summary.records} used, {summary.held_out} not used (not part of the release)")
    # Copies that were left out, or that are non-members too, were not announced.
    if not copies_told or summary.dropped or summary.shared:
        _show_duplicates(summary)
    _show_guarantee(summary)
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
    by_subject = summary.claim.dp is not None and summary.claim.unit == "subject"
    if summary.dropped and summary.kept and not by_subject:
        out += (
            f"; {summary.kept} records were used although they equal another: --drop-duplicates leaves those out too"
        )
    if summary.kept and by_subject:
        out += (
            "; with a guarantee per subject, copies of different subjects are kept, since no subject may affect what "
            "happens to the records of others: if you remove those yourself, say so with --duplicates-removed"
        )
    output.say_indented(out)


def _show_guarantee(summary: FitSummary) -> None:
    """The claim; with a guarantee also its proven limit and what is left of the budget."""
    if summary.limit is None or summary.left is None:
        output.show_claim(summary.claim)
        return
    from locum.types import at_most

    output.show_guarantee(summary.claim)
    output.say_indented(f"What it does not cover: {summary.release / 'README.md'}")
    output.say("limit       what that means for any attack")
    output.say_indented(summary.limit.sentence)
    epsilon, delta = (at_most(value) for value in summary.left)
    if summary.left[0] < _NOTHING:
        output.say(f"budget      nothing is left for {summary.holding!r}: another release needs a larger budget")
    else:
        output.say(f"budget      epsilon {epsilon} and delta {delta} are left for {summary.holding!r}")
    if summary.forecasts:
        here, *wider = summary.forecasts
        more = f"; epsilon {wider[0].epsilon:g} would keep {wider[0].kept.value:.0%}" if wider else ""
        output.say(
            f"usefulness  expected to keep about {here.kept.value:.0%} ({here.kept.low:.0%} to {here.kept.high:.0%}) "
            f"of what real data gain over chance in AUC{more}"
        )
        output.say_indented("Based on measured releases of other data, not of yours: `locum evaluate` measures it.")
    else:
        output.say("usefulness  no forecast for such a release: `locum evaluate` measures it")


def _check_no_guarantee(ctx: typer.Context) -> None:
    """Refuse options of a guarantee together with --no-dp."""
    from click.core import ParameterSource

    given = [name for name in _GUARANTEE if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} belongs to a guarantee, which --no-dp rules out: leave one of them out."
        )


def confirm_names(names: Sequence[str]) -> bool:
    """Ask in a terminal whether names in the data may become public; how many records each has is not shown."""
    import click

    shown = output.plain(", ".join(names))
    return click.confirm(
        f"The release will show these names from the data: {shown}. May everyone know these names?", err=True
    )


def _values(texts: Sequence[str]) -> dict[str, list[str]]:
    """The values of each attribute, from words such as sex=F,M."""
    out: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.strip() or name.strip() in out:
            raise ConfigError(
                f"--condition-values takes an attribute and its values, such as sex=F,M, once for each attribute; "
                f"got {text!r}."
            )
        out[name.strip()] = listed(values)
    return out


def _budget(epsilon: float, delta: float, n_public: int | None, unit: str, relation: str) -> DP:
    from locum.types import DP

    known = "record" if unit == "auto" else unit
    return DP(epsilon, delta, known, n_public, relation)  # type: ignore[arg-type]  # one of two words each
