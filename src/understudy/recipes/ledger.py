"""`ledger`: look at what was spent, decide on a budget, take a copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from understudy.accounting import Holding, Ledger, check_chain
from understudy.data.files import write_atomically
from understudy.errors import DataError
from understudy.types import Relation, Unit

__all__ = ["export_ledger", "set_budget", "show_ledger"]


def show_ledger(file: Path, holding: str | None = None) -> dict[str, Any]:
    """Budget, spent and left of each holding, with every charge, and the head; the chain is checked."""
    ledger = _existing(file)
    shown = ledger.holdings() if holding is None else {holding: ledger.holding(holding)}
    return {"ledger": str(file), "head": ledger.head, "holdings": [_to_dict(known) for known in shown.values()]}


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
    """Open a holding, or change its budget; a ledger that does not exist is made.

    Unit and relation are kept if they are not given. Before a budget is raised, `confirm` is called with a sentence on
    what that means; an exception out of it leaves all as it was.
    """
    ledger = Ledger(file)
    known = ledger.holdings().get(holding)
    if known is not None and (epsilon > known.epsilon or delta > known.delta):
        confirm(
            f"Raising the budget of {holding!r} from epsilon {known.epsilon:g}, delta {known.delta:g} to epsilon "
            f"{epsilon:g}, delta {delta:g} lets more be learnt about each {known.unit}, on top of what earlier releases "
            "tell, and cannot be taken back once it is spent."
        )
    changed = ledger.set_budget(
        holding,
        epsilon=epsilon,
        delta=delta,
        unit=unit or (known.unit if known else "record"),
        relation=relation or (known.relation if known else "add-or-remove"),
    )
    return {"ledger": str(file), "head": ledger.head, "holdings": [_to_dict(changed)]}


def export_ledger(file: Path, out: Path | None = None, *, overwrite: bool = False) -> dict[str, Any]:
    """Every entry with its hashes, and the head: `understudy.accounting.check_chain` checks it anywhere.

    With `out` it is written there too, for its owner alone.
    """
    ledger = _existing(file)
    entries = ledger.export()
    copy = {"head": check_chain(entries), "entries": entries}
    if out is not None:
        if out.exists() and (out.samefile(file) or not overwrite):
            raise DataError(f"{out} is there already: name another file, or say --force if it is not the ledger.")
        text = json.dumps(copy, indent=2, sort_keys=True).encode()
        write_atomically(str(out), lambda stream: _put(stream, text))
    return copy


def _put(stream: BinaryIO, text: bytes) -> None:
    stream.write(text)


def _existing(file: Path) -> Ledger:
    # Looking must not make an empty ledger, which would seem to say that nothing was spent.
    if not file.is_file():
        raise DataError(
            f"There is no ledger {str(file)!r}: name one with --ledger. The first private fit makes it beside the data."
        )
    return Ledger(file)


def _to_dict(known: Holding) -> dict[str, Any]:
    return {
        "holding": known.name,
        "unit": known.unit,
        "relation": known.relation,
        "budget": {"epsilon": known.epsilon, "delta": known.delta},
        "spent": dict(zip(("epsilon", "delta"), known.spent, strict=True)),
        "left": dict(zip(("epsilon", "delta"), known.left, strict=True)),
        "charges": [
            {
                "purpose": charge.purpose,
                "events": [str(event) for event in charge.events],
                "epsilon": charge.epsilon,
                "delta": charge.delta,
                "identity": charge.identity,
                "head": charge.head,
            }
            for charge in known.charges
        ],
    }
