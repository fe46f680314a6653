"""Which files and folders a ledger has paid for, so that a part of them cannot open a second budget."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from locum.accounting.store import entries_read_only
from locum.errors import LocumError, PrivacyError
from locum.io import LEDGER, STATE_FOLDER

# Where the data lie that charges pay for; empty: nowhere on this machine.
_PLACE: ContextVar[str] = ContextVar("place", default="")
_SECOND = "a second ledger would be a second budget for the same people"


@contextmanager
def paying_for(place: str) -> Iterator[None]:
    """Let every charge inside also note that the data at `place` were paid for, in the same transaction.

    Parameters
    ----------
    place
        The file or folder, without links; empty if the data are not on this machine.

    Returns
    -------
    context manager
        It ends with the block.

    Examples
    --------
    >>> from locum.accounting import Gaussian, Ledger, paying_for
    >>> ledger = Ledger("data.sqlite")
    >>> opened = ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> with paying_for("/data/scans"):
    ...     paid = ledger.charge("scans", [Gaussian(5.0)], delta=1e-6, purpose="means")
    >>> [place.as_posix() for place in ledger.data()]
    ['/data/scans']
    """
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


def data_entry(entries: Sequence[Mapping[str, Any]], holding: str, ledger: Path) -> dict[str, Any] | None:
    """What a charge of `ledger` adds to its entries; None if nothing is to be noted, or it was noted before.

    Places beside the ledger are relative, so that both can move together.
    """
    if not (place := _PLACE.get()):
        return None
    home = _home(ledger)
    text = Path(place).relative_to(home).as_posix() if Path(place).is_relative_to(home) else place
    return None if text in _texts(entries) else {"kind": "data", "holding": holding, "place": text}


def places_noted(entries: Sequence[Mapping[str, Any]], ledger: Path) -> tuple[Path, ...]:
    """The files and folders that the entries of `ledger` note."""
    home = _home(ledger)
    return tuple(home / text for text in _texts(entries))


def _texts(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    places = (entry["body"].get("place") for entry in entries if entry["body"].get("kind") == "data")
    return [place for place in places if isinstance(place, str)]


def check_one_ledger(place: str, ledger: Path) -> None:
    """Refuse data that are a part of others, or hold others, that another ledger has paid for.

    A folder and a folder in it have different places for a ledger, and would have a budget each for the same records.
    Found are ledgers at their usual places, `.locum/ledger.sqlite`, above and below the data.

    Parameters
    ----------
    place
        The file or folder, without links; empty if the data are not on this machine.
    ledger
        The ledger that is to pay.

    Raises
    ------
    PrivacyError
        If another ledger has paid for some of these records, or is damaged.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.accounting import Gaussian, Ledger, check_one_ledger, paying_for
    >>> whole, part = Path("scans").resolve(), Path("scans/train").resolve()
    >>> ledger = Ledger(".locum/ledger.sqlite")
    >>> opened = ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> with paying_for(str(whole)):
    ...     paid = ledger.charge("scans", [Gaussian(5.0)], delta=1e-6, purpose="means")
    >>> check_one_ledger(str(part), Path(".locum/ledger.sqlite"))
    >>> check_one_ledger(str(part), Path("scans/.locum/ledger.sqlite"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    locum.errors.PrivacyError: The ledger '...' has paid for a release of 'scans', in which 'train' lies: ...
    """
    if not place:
        return
    here, own = Path(place), Path(os.path.realpath(ledger))

    def covers(file: Path) -> Path | None:
        """What `file` has paid for that is the data, or holds them."""
        return next((known for known in _paid(file) if known == here or known in here.parents), None)

    # It pays for what it has paid for already: whoever got here with two ledgers must have a way on.
    if covers(own) is not None:
        return
    for above in here.parents:
        file = _usual(above)
        known = None if file == own else covers(file)
        if known is not None:
            lies = "" if known == here else f", in which {here.name!r} lies"
            raise PrivacyError(
                f"The ledger {str(file)!r} has paid for a release of {known.name!r}{lies}: {_SECOND}. "
                f"{_way_out(file)}"
            )

    def paid_inside(file: Path) -> bool:
        return any(here == known or here in known.parents for known in _paid(file))

    others = [file for file in _below(here) if file != own and paid_inside(file)]
    if not others:
        return
    several = len(others) > 1 or paid_inside(own)
    parts = "Another one has paid for other parts: release the parts one by one, each with its own."
    raise PrivacyError(
        f"{here.name!r} holds data that the ledger {str(others[0])!r} has paid for: {_SECOND}. "
        f"{parts if several else _way_out(others[0])}"
    )


def _way_out(file: Path) -> str:
    return (
        f"Pay from that one, with `locum fit --ledger {shlex.quote(str(file))}` or `ledger` in a site.toml, and name "
        "a holding of its own (--holding) if nobody is in both."
    )


def _home(ledger: Path) -> Path:
    folder = Path(os.path.realpath(ledger)).parent
    return folder.parent if folder.name == STATE_FOLDER else folder


def _below(place: Path) -> Iterator[Path]:
    """Ledgers in a folder, at their usual places."""
    for folder, names, _ in os.walk(place):
        if STATE_FOLDER in names:
            names.remove(STATE_FOLDER)
            yield _usual(Path(folder))


def _usual(folder: Path) -> Path:
    """The usual place of a ledger, without links."""
    return Path(os.path.realpath(folder / STATE_FOLDER / LEDGER))


def _paid(ledger: Path) -> tuple[Path, ...]:
    """What a ledger has paid for; nothing if it is not there, or if others own it and it cannot be read."""
    try:
        return places_noted(entries_read_only(ledger), ledger)
    except LocumError:
        # One file of another user in a shared folder must not stop all who work below it.
        if ledger.stat().st_uid == getattr(os, "getuid", int)():
            raise
        return ()
