"""`ledger`: look at what was spent, decide on a budget, take a copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locum.accounting import Holding, Ledger, events_to_json
from locum.errors import ConfigError
from locum.io import write_bytes
from locum.types import Relation, Unit


def show_ledger(file: Path, holding: str | None = None) -> dict[str, Any]:
    """Every holding (or one) with its budget, what is spent and left, and its charges; the chain is checked."""
    ledger = existing_ledger(file)
    shown = ledger.holdings().values() if holding is None else [ledger.holding(holding)]
    return {"file": str(file), "tip": ledger.tip, "holdings": [_to_dict(known) for known in shown]}


def set_budget(
    file: Path,
    holding: str,
    *,
    epsilon: float,
    delta: float,
    unit: Unit | None = None,
    relation: Relation | None = None,
    confirm: Callable[[str], object],
) -> dict[str, Any]:
    """Open a holding, or change its budget: a decision that the chain keeps.

    Unit and relation stay as they are if they are not given. Before a budget is raised, `confirm` is called with a
    sentence on what that means; an exception out of it leaves everything as it was.
    """
    ledger = Ledger(file)
    known = ledger.holdings().get(holding)
    if known is not None and (epsilon > known.epsilon or delta > known.delta):
        confirm(
            f"Raising the budget of {holding!r} from epsilon {known.epsilon:g}, delta {known.delta:g} to epsilon "
            f"{epsilon:g}, delta {delta:g} weakens the promise to everybody in it: more can be learnt about each "
            f"{known.unit}, on top of what earlier releases tell. What is then spent cannot be taken back."
        )
    ledger.set_budget(
        holding,
        epsilon=epsilon,
        delta=delta,
        unit=unit or (known.unit if known else "record"),
        relation=relation or (known.relation if known else "add-or-remove"),
    )
    return show_ledger(file, holding)


def export_ledger(file: Path, out: Path | None = None, *, overwrite: bool = False) -> list[dict[str, Any]]:
    """Every entry with its hashes, which `locum.accounting.check_chain` checks anywhere.

    With `out` they are written there, for their owner alone.
    """
    entries = existing_ledger(file).export()
    if out is not None:
        if out.exists() and (out.samefile(file) or not overwrite):
            raise ConfigError(f"{out} is there already: name another file, or say --force if it is not the ledger.")
        text = json.dumps(entries, indent=2, sort_keys=True).encode()
        write_bytes(str(out), text)
    return entries


def existing_ledger(file: Path) -> Ledger:
    # Looking must not make an empty ledger, which would seem to say that nothing was spent.
    if not file.is_file():
        raise ConfigError(f"There is no ledger {str(file)!r}: name it with --ledger, or open one with set-budget.")
    return Ledger(file)


def _to_dict(known: Holding) -> dict[str, Any]:
    return {
        "name": known.name,
        "unit": known.unit,
        "relation": known.relation,
        "budget": {"epsilon": known.epsilon, "delta": known.delta},
        "spent": dict(zip(("epsilon", "delta"), known.spent, strict=True)),
        "left": dict(zip(("epsilon", "delta"), known.left, strict=True)),
        "charges": [
            {
                "purpose": charge.purpose,
                "what": "; ".join(map(str, charge.events)),
                "events": events_to_json(charge.events),
                "epsilon": charge.epsilon,
                "delta": charge.delta,
                "tip": charge.tip,
            }
            for charge in known.charges
        ],
    }
