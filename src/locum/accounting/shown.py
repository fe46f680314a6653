"""Plans and ledgers as rows of text: terminal and notebook show the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from locum.accounting.events import events_from_json
from locum.accounting.holding import Holding, left_figures
from locum.types import at_least, at_most, html_card

PLAN_COLUMNS = ("what", "value")
PLAN_NOTE = "The epsilons hold for all deltas at once. No data were read and nothing was spent."
_HOLDING_COLUMNS = ("holding", "unit", "relation", "budget", "spent", "left")
_LEDGER_STAYS = "epsilon / delta. Private: it stays with the data holder, and so does a notebook that shows it."


def plan_rows(made: Mapping[str, Any]) -> list[list[str]]:
    """The settings of a plan, then its cost by step and by delta, rounded up.

    Parameters
    ----------
    made
        What a plan's `to_dict` gives.

    Returns
    -------
    list of list of str
        What, and its value.

    Examples
    --------
    >>> from locum.accounting import plan_query, plan_rows
    >>> from locum.types import DP
    >>> plan_rows(plan_query(DP(1.0, 1e-5)).to_dict())[0]
    ['sensitivity', '1']
    """
    names = ("steps", "sampling_rate", "expected_batch", "clip", "sensitivity", "noise_multiplier")
    rows = [[name.replace("_", " "), f"{made[name]:.6g}"] for name in names if name in made]
    rows += [["also paid for", str(event)] for event in events_from_json(made["events"])[1:]]
    rows += [["epsilon spent", at_least(made["epsilon_spent"])]]
    rows += [[f"epsilon after step {step}", at_least(cost)] for step, cost in made.get("epsilon_by_step", [])]
    return rows + [[f"epsilon at delta {delta:g}", at_least(cost)] for delta, cost in made["curve"]]


def _holding_rows(holdings: Iterable[Holding]) -> list[list[str]]:
    """Budget, spent and left of each holding, as epsilon / delta; what is spent is rounded up, what is left down."""
    return [
        [
            one.name,
            one.unit,
            one.relation,
            f"{at_most(one.epsilon)} / {at_most(one.delta)}",
            f"{at_least(one.spent[0])} / {at_least(one.spent[1])}",
            left_figures(one.left, (one.epsilon, one.delta)),
        ]
        for one in holdings
    ]


def plan_html(made: Mapping[str, Any]) -> str:
    """A plan as a card for notebooks."""
    budget = f"epsilon {made['epsilon']:g}, delta {made['delta']:g}, unit: {made['unit']}"
    return html_card([("plan", budget)], table=plan_rows(made), columns=PLAN_COLUMNS, notes=[PLAN_NOTE])


def ledger_html(file: str, holdings: Iterable[Holding], tip: str, looks: int) -> str:
    """A ledger as a card for notebooks."""
    lines = [("ledger", file), ("tip", tip)]
    if looks:
        lines.append(("looks", f"{looks} (previews on the records; claims of later releases say so)"))
    return html_card(lines, table=_holding_rows(holdings), columns=_HOLDING_COLUMNS, notes=[_LEDGER_STAYS])
