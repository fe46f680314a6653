"""A cache of vectors on disk, keyed by image content: it lets a run resume, and makes a second run fast."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from locum.embed.backbone import Backbone
from locum.errors import DataError
from locum.io import STATE_FOLDER, private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAGIC = b"SQLite format 3\0"
_COLUMNS = ["model", "content", "vector"]
# Parameters per query, well below SQLite's limit.
_PER_QUERY = 500


class VectorStore:
    """A private SQLite file of vectors, keyed by weights, preprocessing, device and the image's content.

    A vector is on disk when `put` returns, and the next process can open the file that a killed one leaves. Two
    processes may share a file. It holds no names, but its vectors are as private as the images: mode 0600. An
    existing file that is not such a store is refused and not changed. Without a file, vectors go to SQLite's unnamed
    temporary database, which disappears with the process however that ends.
    """

    def __init__(self, file: Path | None, backbone: Backbone) -> None:
        self.file = file
        self.dim = backbone.dim
        info = backbone.info
        # Weights and pixels determine a vector; the model's name does not. A GPU rounds differently: a run that is
        # resumed elsewhere must not mix vectors of two devices.
        where = () if backbone.device == "cpu" else (backbone.device,)
        # What is done about alpha is part of an image's content, where there is alpha: other vectors stay valid.
        pixels = replace(backbone.preprocessing, alpha="dropped").text
        identity = "\n".join((info.revision or info.backbone, pixels, *where))
        self._model = hashlib.sha256(identity.encode()).digest()
        with self._told():
            self._db = sqlite3.connect("", isolation_level=None) if file is None else _opened(file)
            # A page holds the vector of a typical backbone: it is written once and never moved.
            self._db.execute("PRAGMA page_size=8192")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS vectors "
                "(model BLOB, content BLOB, vector BLOB, PRIMARY KEY (model, content))"
            )

    def known(self) -> set[bytes]:
        """Contents whose vectors are stored."""
        with self._told():
            rows = self._db.execute("SELECT content FROM vectors WHERE model = ?", (self._model,))
            return {row[0] for row in rows}

    def put(self, pairs: Iterable[tuple[bytes, npt.NDArray[np.float32]]]) -> None:
        """Store vectors by content, all of them or none."""
        rows = [(self._model, content, vector.astype("<f4").tobytes()) for content, vector in pairs]
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")

    def get(self, contents: Sequence[bytes]) -> npt.NDArray[np.float32]:
        """The vectors of these contents as rows, in the same order."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(contents), _PER_QUERY):
            part = list(contents[start : start + _PER_QUERY])
            marks = ",".join("?" * len(part))
            with self._told():
                rows = self._db.execute(
                    f"SELECT content, vector FROM vectors WHERE model = ? AND content IN ({marks})",
                    (self._model, *part),
                )
                found.update(rows.fetchall())
        out = np.empty((len(contents), self.dim), dtype=np.float32)
        for i, content in enumerate(contents):
            raw = found.get(content, b"")
            if len(raw) != 4 * self.dim:
                raise DataError(f"The cache {self._name} has lost a vector or was altered: delete it, and run again.")
            out[i] = np.frombuffer(raw, dtype="<f4")
        return out

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"The cache {self._name} cannot be used ({_plain(error)}): free some space, wait for another "
                "run to end, or delete the file if it is damaged."
            ) from None

    @property
    def _name(self) -> str:
        return "in the folder of temporary files" if self.file is None else repr(str(self.file))


def _opened(file: Path) -> sqlite3.Connection:
    """The database in `file`, created if there is none; nothing is changed before it is known to be ours."""
    handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a file")
        start = os.read(handle, len(_MAGIC))
    finally:
        os.close(handle)
    if start not in (b"", _MAGIC):
        raise _foreign(file)
    db = sqlite3.connect(file, timeout=60, isolation_level=None)
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if tables and (tables, [row[1] for row in db.execute("PRAGMA table_info(vectors)")]) != (
            ["vectors"],
            _COLUMNS,
        ):
            raise _foreign(file)
        file.chmod(0o600)
    except BaseException:
        db.close()
        raise
    return db


def _foreign(file: Path) -> DataError:
    return DataError(
        f"{str(file)!r} is not a cache of vectors: name another file, or delete the file if it is not needed."
    )


def can_keep(home: Path | None) -> bool:
    """Whether private files can be kept beside the data; the folder for them is made on the way.

    Parameters
    ----------
    home
        The folder in which `.locum` is, or will be; None for images in a store.

    Returns
    -------
    bool
        False if that folder cannot be made or written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import can_keep
    >>> can_keep(Path())
    True
    """
    if home is None:
        return False
    try:
        private_folder(home / STATE_FOLDER)
    except OSError:
        return False
    return True


def _plain(error: Exception) -> str:
    return (error.strerror or "not accessible") if isinstance(error, OSError) else str(error)[:80]
