"""`ledger` and `plan`: what was spent, what may be spent, and what a fit would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from understudy.accounting import Ledger, events_to_json, plan_query, plan_sgd
from understudy.errors import ConfigError
from understudy.types import DP

__all__ = ["export_ledger", "make_plan", "set_budget", "show_ledger"]


def show_ledger(file: Path) -> dict[str, Any]:
    """Every holding with its budget, what is spent and left, and its charges; the chain is checked on the way."""
    with _open(file) as ledger:
        holdings = [
            {
                "name": h.name,
                "unit": h.unit,
                "relation": h.relation,
                "budget": {"epsilon": h.epsilon, "delta": h.delta},
                "spent": dict(zip(("epsilon", "delta"), h.spent, strict=True)),
                "left": dict(zip(("epsilon", "delta"), h.left, strict=True)),
                "charges": [
                    {"purpose": c.purpose, "epsilon": c.epsilon, "delta": c.delta, "events": events_to_json(c.events)}
                    for c in h.charges
                ],
            }
            for h in ledger.holdings().values()
        ]
        return {"file": str(file), "head": ledger.head, "holdings": holdings}


def set_budget(file: Path, holding: str, wish: DP) -> dict[str, Any]:
    """Open a holding, or change its budget: a decision that the chain keeps."""
    with Ledger(file) as ledger:
        ledger.set_budget(holding, epsilon=wish.epsilon, delta=wish.delta, unit=wish.unit, relation=wish.relation)
    return show_ledger(file)


def export_ledger(file: Path) -> list[dict[str, Any]]:
    """Every entry with its hashes."""
    with _open(file) as ledger:
        return ledger.export()


def make_plan(
    wish: DP, *, generator: str = "gaussian", batch: int = 256, epochs: float = 10, clip: float = 1.0
) -> dict[str, Any]:
    """What a fit would do and cost, from public numbers alone; no data are read."""
    if generator == "gaussian":
        wish.size()
        return plan_query(wish).to_dict()
    return plan_sgd(wish, batch=batch, epochs=epochs, clip=clip).to_dict()


def _open(file: Path) -> Ledger:
    if not file.is_file():
        raise ConfigError(f"There is no ledger {str(file)!r}: name it with --ledger, or open one with set-budget.")
    return Ledger(file)
