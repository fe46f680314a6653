"""Content hashes of records, and which of them occur more than once, in bounded memory.

Hashes of 16 bytes are kept in memory while they are few. Beyond that they go to private files, one per first bits of
the hash: equal hashes are in one file, so each file is looked at alone. Hashes are keyed with a random key that is
never written down: what a crash leaves on disk cannot be compared with records.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

# A hash is two numbers.
Hashes = npt.NDArray[np.uint64]

SIZE = 16
# 128 MB of hashes.
IN_MEMORY = 2**23
# Rows that are converted at a time, so that no second copy of the data is needed.
_BLOCK = 4096
_BITS = 6
# Hashes are written in pieces of so many.
_PIECE = 2**18


def contents(
    X: npt.NDArray[Any], y: npt.NDArray[Any] | None = None, *, key: bytes = b"", size: int = 32
) -> Iterator[bytes]:
    """A hash of each vector and, if given, its class code; -0.0 counts as 0.0.

    It is cryptographic: nobody can make two records that differ count as copies.
    """
    for start in range(0, len(X), _BLOCK):
        # Adding 0 turns -0.0 into 0.0.
        rows = np.ascontiguousarray(X[start : start + _BLOCK], dtype=np.float32) + np.float32(0)
        block = rows.view(np.uint8)
        if y is not None:
            codes = np.ascontiguousarray(y[start : start + _BLOCK], dtype=np.int64)
            block = np.concatenate([block, codes.view(np.uint8).reshape(len(rows), -1)], axis=1)
        for row in block:
            yield hashlib.blake2b(row.data, digest_size=size, key=key).digest()


def short_hashes(X: npt.NDArray[Any], y: npt.NDArray[Any] | None, key: bytes) -> Hashes:
    """Hashes of 16 bytes as an array (n, 2)."""
    joined = b"".join(contents(X, y, key=key, size=SIZE))
    return np.frombuffer(joined, dtype=np.uint64).reshape(-1, 2)


class HashStore:
    """Hashes of any number, which are read back in groups such that equal hashes are in one group.

    Use it in a `with` block: its files, mode 0600 in a folder with mode 0700, are removed at the end, also after an
    error.
    """

    def __init__(self, scratch: Path | None = None, in_memory: int = IN_MEMORY) -> None:
        if isinstance(in_memory, bool) or not isinstance(in_memory, int) or in_memory < 1:
            raise ConfigError(f"`in_memory` must be a number of records, 1 or more; got {in_memory!r}.")
        self._scratch, self._most = scratch, in_memory
        self._held: list[Hashes] = []
        self._count = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, hashes: Hashes) -> None:
        """Keep some more."""
        self._held.append(hashes)
        self._count += len(hashes)
        if self._count > (min(_PIECE, self._most) if self._folder is not None else self._most):
            self._spill()

    def groups(self) -> Iterator[Hashes]:
        """All hashes, one group at a time; no hash is in two groups."""
        if self._folder is None:
            yield np.concatenate([np.empty((0, 2), dtype=np.uint64), *self._held])
            return
        self._spill()
        for part in range(2**_BITS):
            path = Path(self._folder.name) / f"{part}"
            found = np.fromfile(path, dtype=np.uint64) if path.exists() else np.empty(0, dtype=np.uint64)
            yield found.reshape(-1, 2)

    def spread(self) -> None:
        """Write to files even if all fit in memory, so that the groups are those of another store with files."""
        self._spill()

    @property
    def has_files(self) -> bool:
        """Whether there were too many for memory."""
        return self._folder is not None

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="locum-hashes-", dir=self._scratch)
        for held in self._held:
            part = held[:, 0] >> np.uint64(64 - _BITS)
            for number in np.unique(part):
                place = os.path.join(self._folder.name, f"{number}")
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                with open(os.open(place, flags, 0o600), "ab") as f:
                    f.write(held[part == number].tobytes())
        self._held.clear()
        self._count = 0


def repeated(hashes: Hashes) -> tuple[Hashes, int]:
    """The hashes that occur more than once, each once, and how many entries are not the first of their kind."""
    first = hashes[:, 0]
    order = np.argsort(first)
    ordered = first[order]
    same = ordered[1:] == ordered[:-1]
    tied = np.zeros(len(hashes), dtype=bool)
    tied[1:] |= same
    tied[:-1] |= same
    # Few are left, unless there are many copies.
    kinds, counts = np.unique(hashes[order[tied]], axis=0, return_counts=True)
    several = counts > 1
    return kinds[several], int((counts[several] - 1).sum())


def known(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    """Which hashes are among the others."""
    out = np.isin(hashes[:, 0], others[:, 0])
    rows = np.flatnonzero(out)
    mine, theirs = hashes[rows], others[np.isin(others[:, 0], hashes[rows, 0])]
    _, kind = np.unique(np.concatenate([mine, theirs]), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    out[rows] = np.isin(kind[: len(mine)], kind[len(mine) :])
    return out
