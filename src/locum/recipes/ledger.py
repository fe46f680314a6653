"""`ledger`: show what was spent, set a budget, export, back up, restore."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locum.accounting import Holding, Ledger, check_name, entries_held, events_to_json
from locum.data import ledger_for
from locum.errors import ConfigError, DataError, PrivacyError
from locum.io import check_output_file, split_path, write_bytes
from locum.release import load
from locum.types import DP, Relation, Unit


def find_ledger(data: str | None, file: Path | None) -> Path:
    """Find the ledger of a data file, or take the one that is named.

    Parameters
    ----------
    data
        File or folder of records, also as `FILE#split`; its ledger lies beside it unless the file names another.
    file
        A ledger. Exactly one of the two must be given: no folder is assumed.

    Returns
    -------
    Path
        The ledger's file, which need not exist yet.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import find_ledger
    >>> find_ledger(None, Path("clinic.sqlite")).name
    'clinic.sqlite'
    """
    if (data is None) == (file is None):
        raise ConfigError("Say which ledger: give DATA, the file or folder that it belongs to, or --ledger FILE.")
    if file is not None:
        return file
    place = split_path(str(data))[0]
    if not place or not Path(place).exists():
        raise ConfigError(f"There is no {place!r}: check the name of the data whose ledger you mean.")
    return ledger_for(place)


def show_ledger(file: Path, holding: str | None = None) -> dict[str, Any]:
    """Show the budget of every holding (or of one), what is spent and left, and its charges; the chain is checked.

    A holding that was looked at and has no budget is not listed; `looks` counts what was noted for it.

    Parameters
    ----------
    file
        An existing ledger.
    holding
        Name of the holding to show; None: all.

    Returns
    -------
    dict
        `file`, `tip` (the hash of the last entry), `looks` (previews on the records, over all holdings) and
        `holdings`, a list, each with its own `looks`. Private: it stays with the data holder.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import set_budget, show_ledger
    >>> _ = set_budget(Path("shown.sqlite"), "clinic", epsilon=2.0, delta=1e-5, confirm=print)
    >>> show_ledger(Path("shown.sqlite"), "clinic")["holdings"][0]["left"]
    {'epsilon': 2.0, 'delta': 1e-05}
    """
    ledger = existing_ledger(file)
    shown = ledger.holdings().values() if holding is None else [ledger.holding(holding)]
    return {
        "file": str(file),
        "tip": ledger.tip,
        "looks": ledger.looks(),
        "holdings": [_to_dict(known, ledger.looks(known.name)) for known in shown],
    }


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
    """Open a holding, or change its budget; the chain of entries keeps the decision.

    Parameters
    ----------
    file
        The ledger; it is created if it does not exist.
    holding
        Name of the data holding.
    epsilon, delta
        The total that all releases of the holding may cost together.
    unit
        "record" or "subject"; None: as it is, or "record" for a new holding.
    relation
        "add-or-remove" or "replace-one"; None: as it is, or "add-or-remove" for a new holding.
    confirm
        Called before a budget is raised, with a sentence on what that means. An exception from it leaves everything
        as it was.

    Returns
    -------
    dict
        The holding, as `show_ledger` shows it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import set_budget
    >>> shown = set_budget(Path("new.sqlite"), "clinic", epsilon=1.0, delta=1e-6, unit="subject", confirm=print)
    >>> shown["holdings"][0]["budget"], shown["holdings"][0]["unit"]
    ({'epsilon': 1.0, 'delta': 1e-06}, 'subject')
    """
    # Before there is a file: wrong numbers must not leave an empty ledger.
    check_name(holding)
    DP(epsilon, delta)
    ledger = Ledger(file)
    known = ledger.holdings().get(holding)
    if known is not None and (epsilon > known.epsilon or delta > known.delta):
        confirm(
            f"Raising the budget of {holding!r} from epsilon {known.epsilon:g}, delta {known.delta:g} to epsilon "
            f"{epsilon:g}, delta {delta:g} weakens the guarantee for everybody in it: more can be learned about each "
            f"{known.unit}, on top of what earlier releases reveal. What is then spent cannot be taken back."
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
    """Return every entry of a ledger with its hashes, which `locum.accounting.check_chain` checks anywhere.

    Parameters
    ----------
    file
        An existing ledger.
    out
        A JSON file to write the entries to, readable only by its owner; None: no file.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    list of dict
        The entries, oldest first.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.accounting import check_chain
    >>> from locum.recipes import export_ledger, set_budget
    >>> _ = set_budget(Path("exported.sqlite"), "clinic", epsilon=1.0, delta=1e-6, confirm=print)
    >>> entries = export_ledger(Path("exported.sqlite"), Path("entries.json"))
    >>> check_chain(entries) == entries[-1]["hash"]
    True
    """
    entries = existing_ledger(file).export()
    if out is not None:
        _check_copy(out, file, overwrite=overwrite)
        write_bytes(out, json.dumps(entries, indent=2, sort_keys=True).encode())
    return entries


def backup_ledger(file: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Copy a ledger while nobody writes to it; only its owner can read the copy.

    Parameters
    ----------
    file
        An existing ledger.
    out
        File for the copy.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    dict
        `file`, `backup`, `entries` (how many the copy has) and `tip` (the hash of the last one).

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import backup_ledger, set_budget
    >>> _ = set_budget(Path("clinic.sqlite"), "clinic", epsilon=1.0, delta=1e-6, confirm=print)
    >>> backup_ledger(Path("clinic.sqlite"), Path("clinic.backup"))["entries"]
    1
    """
    ledger = existing_ledger(file)
    _check_copy(out, file, overwrite=overwrite)
    write_bytes(out, ledger.backup())
    copy = Ledger(out)
    return {"file": str(file), "backup": str(out), "entries": len(copy.export()), "tip": copy.tip}


def restore_ledger(file: Path, backup: Path, *, releases: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Put a backup back as a ledger, unless a charge would be forgotten.

    That is the case if the present ledger holds more than the backup, or if one of `releases` was paid for after the
    backup was made. A damaged ledger is kept beside the new one.

    Parameters
    ----------
    file
        The ledger to restore.
    backup
        A copy that `backup_ledger` made.
    releases
        Folders of releases whose charges the backup must have.

    Returns
    -------
    dict
        `file`, `backup`, `entries` (how many the backup has), `added` (how many of them were missing), `tip` (the
        hash of the last entry) and `damaged` (where a damaged ledger was put, or None).

    Raises
    ------
    PrivacyError
        If the restored ledger would forget a charge.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import backup_ledger, restore_ledger, set_budget
    >>> _ = set_budget(Path("lost.sqlite"), "clinic", epsilon=1.0, delta=1e-6, confirm=print)
    >>> _ = backup_ledger(Path("lost.sqlite"), Path("kept.backup"))
    >>> Path("lost.sqlite").unlink()
    >>> restore_ledger(Path("lost.sqlite"), Path("kept.backup"))["added"]
    1
    """
    entries = existing_ledger(backup).export()
    known = {entry["hash"] for entry in entries}
    for release in releases:
        paid = load(release).claim.dp
        if paid is not None and paid.ledger not in known:
            raise PrivacyError(
                f"{str(release)!r} was paid for after this backup was made: restoring it would forget that charge. "
                "Find a newer backup."
            )
    aside = None
    if file.exists():
        try:
            Ledger(file).export()
        except (PrivacyError, DataError):
            if (held := entries_held(file)) > len(entries):
                raise PrivacyError(
                    f"The ledger {str(file)!r} is damaged, and holds {held} entries where the backup has "
                    f"{len(entries)}: restoring it would forget what the others spent. Find a newer backup."
                ) from None
            aside = next(p for i in range(1, 1000) if not (p := file.with_name(f"{file.name}.damaged-{i}")).exists())
            file.rename(aside)
    ledger = Ledger(file)
    added = ledger.restore(entries)
    return {
        "file": str(file),
        "backup": str(backup),
        "entries": len(entries),
        "added": added,
        "tip": ledger.tip,
        "damaged": None if aside is None else str(aside),
    }


def ledger_knows(file: Path, tip: str) -> bool:
    """Whether a ledger has an entry, such as the charge that a release names.

    Parameters
    ----------
    file
        The ledger.
    tip
        Hash of the entry.

    Returns
    -------
    bool
        False also if there is no ledger, or it cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import ledger_knows
    >>> ledger_knows(Path("nowhere.sqlite"), "0" * 64)
    False
    """
    try:
        return existing_ledger(file).knows(tip)
    except (ConfigError, DataError, PrivacyError):
        return False


def existing_ledger(file: Path) -> Ledger:
    """A ledger that is there: looking must not make an empty one, which would say that nothing was spent."""
    if not file.is_file():
        raise ConfigError(f"There is no ledger {str(file)!r}: name it with --ledger, or open one with set-budget.")
    return Ledger(file)


def _check_copy(out: Path, file: Path, *, overwrite: bool) -> None:
    if out.exists() and out.samefile(file):
        raise ConfigError(f"{str(out)!r} is the ledger itself: name another file for the copy.")
    check_output_file(out, overwrite=overwrite)


def _to_dict(known: Holding, looks: int) -> dict[str, Any]:
    return {
        "name": known.name,
        "unit": known.unit,
        "relation": known.relation,
        "budget": {"epsilon": known.epsilon, "delta": known.delta},
        "spent": dict(zip(("epsilon", "delta"), known.spent, strict=True)),
        "left": dict(zip(("epsilon", "delta"), known.left, strict=True)),
        "looks": looks,
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
