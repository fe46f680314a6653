"""`understudy plan`."""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli import output

if TYPE_CHECKING:
    from understudy.accounting import QueryPlan, SGDPlan

__all__ = ["RelationName", "UnitName", "plan"]


class PrivateName(StrEnum):
    """Generators that can make a promise."""

    gaussian = "gaussian"
    cvae = "cvae"


class UnitName(StrEnum):
    """Whose presence is hidden."""

    record = "record"
    subject = "subject"


class RelationName(StrEnum):
    """What neighbours are."""

    add_or_remove = "add-or-remove"
    replace_one = "replace-one"


def plan(
    epsilon: Annotated[float, typer.Option(help="How much may be learnt about one unit; 1 is a usual choice.")],
    delta: Annotated[float, typer.Option(help="The chance that the promise fails: at most 1 / (10 n).")],
    n_public: Annotated[int, typer.Option(help="About how many units there are, as a number that may be known.")],
    unit: Annotated[UnitName, typer.Option(help="Whose presence is hidden.")] = UnitName.record,
    relation: Annotated[RelationName, typer.Option(help="What neighbours are.")] = RelationName.add_or_remove,
    generator: Annotated[PrivateName, typer.Option(help="What will be fitted.")] = PrivateName.gaussian,
    batch: Annotated[int, typer.Option(help="CVAE: expected size of a batch.")] = 256,
    epochs: Annotated[float, typer.Option(help="CVAE: passes over the data.")] = 10,
    clip: Annotated[float, typer.Option(help="How far one unit may move a sum.")] = 1.0,
    explain: Annotated[bool, typer.Option("--explain", help="Say what the numbers mean, and how to choose.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
) -> None:
    """Show what a private fit will do and cost; no record is read."""
    from understudy.recipes.plan import explain as in_words
    from understudy.recipes.plan import make_plan
    from understudy.types import DP

    wish = DP(epsilon, delta, unit.value, n_public, relation.value)
    made = make_plan(wish, generator.value, batch=batch, epochs=epochs, clip=clip)
    if as_json:
        words = {"explanation": in_words(made)} if explain else {}
        output.print_json({"generator": generator.value, **made.to_dict(), **words})
        return
    show_plan(made)
    for line in in_words(made) if explain else ():
        output.say()
        output.say(textwrap.fill(line, width=100))


def show_plan(made: QueryPlan | SGDPlan) -> None:
    """The settings, then what they cost by step and by delta."""
    from understudy.accounting.holding import at_least

    facts: dict[str, Any] = made.to_dict()
    by_step = facts.get("epsilon_by_step", [])
    output.say(
        f"budget      epsilon {facts['epsilon']:g}, delta {facts['delta']:g}, unit {facts['unit']}, "
        f"{facts['relation']}, n_public {facts['n_public']}",
        "bold",
    )
    if by_step:
        output.say(f"steps       {facts['steps']}")
        output.say(f"sampling    rate {facts['sampling_rate']:.4g}, expected batch {facts['expected_batch']}")
        output.say(f"clip        {facts['clip']:g}")
    else:
        output.say("steps       1: every unit joins one noisy sum")
        output.say("sampling    rate 1")
        output.say(f"clip        {facts['sensitivity']:g}")
    output.say(f"noise       {facts['noise_multiplier']:.4g} times the clip")
    output.say(f"costs       epsilon {at_least(facts['epsilon_spent'])} at delta {facts['delta']:g}")
    if by_step:
        output.show_table(["after step", "epsilon"], [[str(step), at_least(cost)] for step, cost in by_step])
    output.show_table(["at delta", "epsilon"], [[f"{delta:g}", at_least(cost)] for delta, cost in facts["curve"]])
    output.say("All of these hold at once. Nothing was read and nothing was spent.")
