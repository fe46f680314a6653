"""The ledger's file: entries tied together by hashes, only ever added, one writer at a time."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from locum.errors import DataError, PrivacyError
from locum.io import check_local, one_line, sync_folder

# "UDSL": tells a ledger from any other database.
_OURS, _VERSION = 0x5544534C, 1
_SCHEMA = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, previous TEXT NOT NULL, body TEXT NOT NULL, "
    "hash TEXT NOT NULL UNIQUE)",
    # They stop a slip of the hand; who wants to get around them can, and then breaks the chain.
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append only'); END",
    f"PRAGMA application_id={_OURS}",
    f"PRAGMA user_version={_VERSION}",
)
_WAIT_SECONDS = 60.0
_ALL = "SELECT number, previous, body, hash FROM entries ORDER BY number"


@dataclass(slots=True)
class Turn:
    """What one writer sees and adds while everybody else waits."""

    entries: list[dict[str, Any]]
    added: list[tuple[int, str, str, str]] = field(default_factory=list)

    def append(self, body: dict[str, Any]) -> str:
        """Add an entry and return its hash; it is on disk when the turn ends without an error, or not at all."""
        previous = self.added[-1][3] if self.added else self.entries[-1]["hash"] if self.entries else FIRST
        # The salt keeps others from guessing the body by its hash, which leaves with a release.
        salted = {**body, "time": int(time.time()), "salt": secrets.token_hex(16)}
        self.added.append(link(len(self.entries) + len(self.added) + 1, previous, salted))
        return self.added[-1][3]


class EntryFile:
    """Entries in a SQLite file, mode 0600, made on first use; opened for each question and closed after it.

    So threads and forked processes may share one object. Whoever finds the file of a process that was killed halfway
    finds it as it was before: SQLite takes the half-written turn back.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        check_local(file)
        self.file = Path(file)
        with self._told():
            fresh = not self.file.exists()
            if not fresh and not self.file.is_file():
                raise DataError(f"The ledger {str(self.file)!r} is not a regular file: name another file.")
            if fresh and not self.file.parent.exists():
                self.file.parent.mkdir(mode=0o700, exist_ok=True)
                sync_folder(self.file.absolute().parent.parent)
            with self._opened("rwc" if fresh else "rw") as database:
                self._prepare(database)

    def read(self) -> list[dict[str, Any]]:
        """All entries; their chain is whole."""
        with self._told(), self._opened() as database:
            return self._entries(database)

    def copy(self) -> bytes:
        """The bytes of the file while nobody writes; their chain is complete."""
        with self._told(), self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            self._entries(database)
            return database.serialize()

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Read and append with nobody in between; an error inside takes everything back."""
        with self._told(), self._opened() as database:
            database.execute("BEGIN EXCLUSIVE")
            turn = Turn(self._entries(database))
            yield turn
            database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", turn.added)
            database.execute("COMMIT")

    def _entries(self, database: sqlite3.Connection) -> list[dict[str, Any]]:
        return _checked(database.execute(_ALL).fetchall(), self.file)

    @contextmanager
    def _opened(self, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        # "rw" never makes a file: one that vanished must not come back empty, with a fresh budget.
        with closing(_connected(self.file, mode)) as database:
            # What a charge pays for begins right after it, so a charge must outlive a power cut.
            database.execute("PRAGMA synchronous=EXTRA")
            database.execute("PRAGMA fullfsync=ON")
            yield database

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the table in a new file, or see that an old one is a ledger that this version understands."""
        # Both at one moment: another process may be making the table.
        database.execute("BEGIN")
        marks = _marks(database)
        database.execute("COMMIT")
        if os.access(self.file, os.W_OK):
            # By name, and before the first entry: a handle of our own, once closed, would drop SQLite's locks. The
            # journal takes the mode of the file.
            if stat.S_IMODE(self.file.stat().st_mode) & 0o077:
                self.file.chmod(0o600)
            # No write-ahead log: with a rollback journal the file is whole by itself, and can be copied.
            database.execute("PRAGMA journal_mode=DELETE")
        if marks == (0, 0):
            database.execute("BEGIN EXCLUSIVE")
            # Another process may have been quicker.
            if _marks(database) == (0, 0) and not database.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in _SCHEMA:
                    database.execute(statement)
            database.execute("COMMIT")
            sync_folder(self.file.absolute().parent)
            marks = _marks(database)
        if marks[0] != _OURS:
            raise DataError(f"The file {str(self.file)!r} is a database, but not a ledger: name another file.")
        if marks[1] != _VERSION:
            raise DataError(
                f"The ledger {str(self.file)!r} was written by a newer Locum (its version is {marks[1]}, this "
                f"one reads {_VERSION}): update before anything is spent."
            )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        # Python decodes the text of an error in a damaged schema, and fails.
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                reason = error.strerror or reason
            elif isinstance(error, UnicodeDecodeError):
                reason = "damaged"
            raise DataError(
                f"The ledger {str(self.file)!r} cannot be used ({one_line(reason)[:80]}): without it nothing can be "
                "spent. --ledger names another place."
            ) from None


def entries_held(file: Path) -> int:
    """How many entries a ledger file holds, damaged or not.

    Parameters
    ----------
    file
        The ledger.

    Returns
    -------
    int
        The number of entries; 0 if it cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.accounting import Ledger, entries_held
    >>> opened = Ledger("held.sqlite").set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> entries_held(Path("held.sqlite")), entries_held(Path("nowhere.sqlite"))
    (1, 0)
    """
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])
    except (sqlite3.Error, UnicodeDecodeError):
        return 0


def entries_read_only(file: Path) -> list[dict[str, Any]]:
    """The entries of a ledger that somebody else may own; nothing is written, not even its mode.

    Parameters
    ----------
    file
        The ledger.

    Returns
    -------
    list of dict
        Its entries; none if there is no ledger at that place that this user may read.

    Raises
    ------
    PrivacyError
        If its chain is broken.
    DataError
        If it cannot be read for another reason, such as a process that does not let go of it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.accounting import entries_read_only
    >>> entries_read_only(Path("nowhere.sqlite"))
    []
    """
    if not (os.path.isfile(file) and os.access(file, os.R_OK) and file.stat().st_size):
        return []
    try:
        with closing(_connected(file, "ro")) as database:
            if _marks(database)[0] != _OURS:
                return []
            rows = database.execute(_ALL).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"The ledger {str(file)!r} cannot be read ({one_line(str(error))[:80]}), so nobody knows what it has "
            f"paid for: `locum ledger show --ledger {shlex.quote(str(file))}` tells its owner more; or move it away."
        ) from None
    return _checked(rows, file)


def _connected(file: Path, mode: str) -> sqlite3.Connection:
    address = f"{file.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)


def _checked(rows: Sequence[tuple[Any, ...]], file: Path) -> list[dict[str, Any]]:
    entries = [{"number": n, "previous": p, "body": _loaded(b), "hash": h} for n, p, b, h in rows]
    check_chain(entries, repr(str(file)))
    return entries


def _marks(database: sqlite3.Connection) -> tuple[int, int]:
    ours, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return ours, version


def _loaded(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return None


FIRST = "0" * 64


def link(number: int, previous: str, body: Mapping[str, Any]) -> tuple[int, str, str, str]:
    """One entry: its number, the hash before it, its body as text, and its own hash over the three."""
    text = json.dumps(body, sort_keys=True, allow_nan=False)
    return number, previous, text, hashlib.sha256(f"{number}\n{previous}\n{text}".encode()).hexdigest()


def check_chain(entries: Sequence[Mapping[str, Any]], whose: str = "copy") -> str:
    """Check the entries of a ledger, as `Ledger.export` gives them, and return its tip.

    It cannot see what was cut off at the end: compare the tip with the one in the newest release.

    Parameters
    ----------
    entries
        All entries, from the first on.
    whose
        How an error names the ledger.

    Returns
    -------
    str
        Hash of the last entry; 64 zeros if there is none.

    Raises
    ------
    PrivacyError
        At the first entry that was altered, moved or left out.

    Examples
    --------
    >>> from locum.accounting import Ledger, check_chain
    >>> ledger = Ledger("chain.sqlite")
    >>> opened = ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> check_chain(ledger.export()) == ledger.tip
    True
    """
    tip = FIRST
    for place, entry in enumerate(entries, start=1):
        try:
            expected = link(place, tip, entry["body"])[3]
            whole = (entry["number"], entry["previous"], entry["hash"]) == (place, tip, expected)
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise PrivacyError(
                f"Entry {place} of the ledger {whose} was altered or is missing, so it is unknown what was spent: "
                "put the file back from a copy whose tip is in the latest release."
            )
        tip = expected
    return tip
