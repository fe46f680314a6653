"""`locum plan`."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import Json, RelationName, UnitName, sensible_epsilon
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON

if TYPE_CHECKING:
    from locum.recipes import Forecast
    from locum.types import DP

FORECAST = "Forecast"


def plan(
    epsilon: Annotated[
        float,
        typer.Option(
            help="Budget: how much one unit may change the result.",
            rich_help_panel="Budget",
            callback=sensible_epsilon,
        ),
    ] = DEFAULT_EPSILON,
    delta: Annotated[
        float, typer.Option(help="Budget: probability of failure, at most 1 / (10 n).", rich_help_panel="Budget")
    ] = DEFAULT_DELTA,
    n_public: Annotated[
        int | None,
        typer.Option(help="About how many units, as a public number; training needs it.", rich_help_panel="Budget"),
    ] = None,
    unit: Annotated[
        UnitName,
        typer.Option(
            help="What is protected: one record, or a subject with all its records.", rich_help_panel="Budget"
        ),
    ] = UnitName.record,
    relation: Annotated[
        RelationName,
        typer.Option(
            help="add-or-remove hides the presence of a unit; replace-one only its values.", rich_help_panel="Budget"
        ),
    ] = RelationName.add_or_remove,
    generator: Annotated[
        str,
        typer.Option(
            help="auto, gaussian (noisy sums), cvae, cgan or sgd (noisy training steps).",
            rich_help_panel="Mechanism",
        ),
    ] = "auto",
    batch: Annotated[
        int | None, typer.Option(help="Training: units per step, on average.", rich_help_panel="Mechanism")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Training: passes over the data.", rich_help_panel="Mechanism")
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Training: bound on the contribution of one unit to a step.", rich_help_panel="Mechanism"),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Forecast what a release of about N units keeps of the usefulness of real data.",
            rich_help_panel=FORECAST,
        ),
    ] = None,
    classes: Annotated[int, typer.Option(min=2, help="Number of classes.", rich_help_panel=FORECAST)] = 2,
    features: Annotated[
        int, typer.Option(min=1, help="Number of features of a vector.", rich_help_panel=FORECAST)
    ] = 1280,
    real_auc: Annotated[
        float,
        typer.Option(help="AUC of a classifier trained on the real data, if you know it.", rich_help_panel=FORECAST),
    ] = 0.95,
    want_auc: Annotated[
        float | None,
        typer.Option(
            help="With --records: find the epsilon that is expected to give this AUC.", rich_help_panel=FORECAST
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the numbers and how to choose them.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a private fit would do, cost and achieve. No data are read."""
    from locum.errors import ConfigError
    from locum.recipes import explain as in_words, make_plan
    from locum.types import DP

    if want_auc is not None and records is None:
        raise ConfigError("--want-auc needs to know about how many records there are: add --records N.")
    budget = DP(epsilon, delta, unit.value, n_public, relation.value)
    expected: list[Forecast] = []
    if records is not None:
        known = {"units": records, "classes": classes, "features": features, "real_auc": real_auc}
        budget, expected = _forecasts(budget, want_auc, known)
    words = in_words(budget) if explain else []
    # The explanation alone needs no size.
    made = (
        {}
        if explain and n_public is None
        else make_plan(budget, generator=generator, batch=batch, epochs=epochs, clip=clip)
    )
    if as_json:
        more = {"forecast": [one.to_dict() for one in expected]} if expected else {}
        output.print_json({**made, **more, **({"explanation": words} if words else {})})
        return
    if expected:
        _show_forecasts(expected, budget, f"{records:,} {unit.value}s, {classes} classes", want_auc)
    if made:
        show_plan(made)
    for line in words:
        output.say(textwrap.fill(line, width=100, subsequent_indent="    ", break_on_hyphens=False))


def _forecasts(budget: DP, want_auc: float | None, known: dict[str, Any]) -> tuple[DP, list[Forecast]]:
    """The budget, with the epsilon that is wanted, and forecasts for it and for a few others."""
    from locum.recipes import epsilon_for, forecast

    if want_auc is not None:
        budget = replace(budget, epsilon=epsilon_for(want_auc, budget, **known).epsilon)
    every = sorted({0.3, 1.0, 3.0, 8.0, budget.epsilon})
    return budget, [forecast(replace(budget, epsilon=epsilon), **known) for epsilon in every]


def _show_forecasts(expected: list[Forecast], budget: DP, what: str, want_auc: float | None) -> None:
    rows = [
        [f"{one.epsilon:g}" + (" *" if one.epsilon == budget.epsilon else ""), f"{one.auc:.3f}", f"{one.kept:.2f}"]
        for one in expected
    ]
    output.show_table(["epsilon", "AUC", "kept of real data, above chance"], rows)
    if want_auc is not None:
        output.say(f"* An AUC of {want_auc:g} is expected from epsilon {budget.epsilon:g} on, for {what}.")
    output.say(
        f"Expected for {what}, if real data give an AUC of {expected[0].real_auc:g}; ranges are those of measured "
        "releases of EfficientNet-Lite 0 vectors (docs/guides/differential-privacy.md)."
    )


def show_plan(made: dict[str, Any]) -> None:
    """Print the settings, then the cost by step and by delta, rounded up."""
    from locum.accounting import PLAN_COLUMNS, PLAN_NOTE, plan_rows

    output.show_table(PLAN_COLUMNS, plan_rows(made))
    output.say(PLAN_NOTE)
