"""`locum plan`."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import Json, RelationName, UnitName, sensible_epsilon
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON


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
            help="auto, gaussian (one noisy sum), cvae, cgan or sgd (noisy training steps).",
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
    explain: Annotated[bool, typer.Option("--explain", help="Explain the numbers and how to choose them.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a private fit would do and cost. No data are read."""
    from locum.recipes import explain as in_words, make_plan
    from locum.types import DP

    budget = DP(epsilon, delta, unit.value, n_public, relation.value)
    words = in_words(budget) if explain else []
    # The explanation alone needs no size.
    made = (
        {}
        if explain and n_public is None
        else make_plan(budget, generator=generator, batch=batch, epochs=epochs, clip=clip)
    )
    if as_json:
        output.print_json({**made, **({"explanation": words} if words else {})})
        return
    if made:
        show_plan(made)
    for line in words:
        output.say(textwrap.fill(line, width=100, subsequent_indent="    "))


def show_plan(made: dict[str, Any]) -> None:
    """Print the settings, then the cost by step and by delta, rounded up."""
    from locum.accounting import events_from_json
    from locum.types import at_least

    names = ("steps", "sampling_rate", "expected_batch", "clip", "sensitivity", "noise_multiplier")
    rows = [[name.replace("_", " "), f"{made[name]:.6g}"] for name in names if name in made]
    rows += [["also paid for", str(event)] for event in events_from_json(made["events"])[1:]]
    rows += [["epsilon spent", at_least(made["epsilon_spent"])]]
    rows += [[f"epsilon after step {step}", at_least(cost)] for step, cost in made.get("epsilon_by_step", [])]
    rows += [[f"epsilon at delta {delta:g}", at_least(cost)] for delta, cost in made["curve"]]
    output.show_table(["what", "value"], rows)
    output.say("The epsilons hold for all deltas at once. No data were read and nothing was spent.")
