"""Minibatches in random order from records that do not fit in memory, and the share of them that is held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from locum.errors import DataError
from locum.train.loop import batch_sizes
from locum.train.moments import ClassMoments
from locum.types import Batches, EmbeddingSet

Units = npt.NDArray[np.uint64]
# Vectors, and one column of whole numbers per label or condition.
Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]

# Bytes of vectors that are mixed at a time: 26,000 records of 1,280 features.
BUFFER = 2**27
# Rows that are given in order at a time: what is computed from them takes several times their memory.
_BLOCK = 4096
# One unit in ten is held out for early stopping, but not more records than are needed to compare epochs.
FOLDS = 10
_MOST_HELD = 65_536
_MOST_HELD_BYTES = 2**26
# Up to this many units, the held-out ones are counted; more are numerous enough for a share by chance.
_MOST_COUNTED = 10_000


def record_units(piece: EmbeddingSet, part: int, start: int, key: int) -> Units:
    """A random number for each record that is the same in every pass, and the same for all records of a subject.

    Parameters
    ----------
    piece
        Records.
    part, start
        Where they lie: the position of their part, and of the first one in it. Not used where subjects are known.
    key
        Seed.

    Returns
    -------
    ndarray of uint64
        One number per record.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import record_units
    >>> from locum.types import EmbeddingSet
    >>> scans = EmbeddingSet.from_arrays(np.eye(3), [0, 1, 0], subject=["ann", "bob", "ann"])
    >>> a, b, c = record_units(scans, part=0, start=0, key=7)
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    if piece.subject is None:
        seeds = np.array([key, part], dtype=np.uint64)
        rows: Units = np.arange(start, start + len(piece)).astype(np.uint64)
        return _mixed(_mixed(_mixed(seeds[:1]) + seeds[1:]) + rows)
    found, place = np.unique(piece.subject, return_inverse=True)
    salt = int(key).to_bytes(8, "little")
    hashes = [hashlib.blake2b(str(one).encode(), digest_size=8, key=salt).digest() for one in found.tolist()]
    return np.array([int.from_bytes(one, "little") for one in hashes], dtype=np.uint64)[place.reshape(-1)]


def _mixed(x: Units) -> Units:
    """The finalizer of splitmix64: neighbors become unrelated numbers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Which records are held out for early stopping: the same in every pass, and never a part of a subject.

    Parameters
    ----------
    key
        Seed of `record_units`.
    below
        Records whose number is at most this are held out.
    spared
        Numbers that are not.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import HeldOut
    >>> HeldOut(key=0, below=10, spared=np.array([4], np.uint64)).mask(np.array([3, 4, 12], np.uint64)).tolist()
    [True, False, False]
    """

    key: int
    below: int
    spared: Units

    def mask(self, units: Units) -> npt.NDArray[np.bool_]:
        """Whether each record is held out."""
        out: npt.NDArray[np.bool_] = (units <= np.uint64(self.below)) & ~np.isin(units, self.spared)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one pass over all records finds.

    Parameters
    ----------
    moments
        Count, mean and range of each class.
    units
        Of each class, all numbers of `record_units` if they are fewer than ten; otherwise ten or more.
    known
        All numbers, if they are at most 10,000; otherwise more than that.
    key
        Seed of those numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import survey
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> data = EmbeddingSet.from_arrays(np.arange(200.0)[:, None], [0, 1] * 100)
    >>> found = survey(SetBatches(data, rows=30).parts(), lambda piece: (piece.X, piece.y[:, None]), 2, key=0)
    >>> found.moments.counts.tolist(), len(found.units[0]) >= 10
    ([100, 100], True)
    """

    moments: ClassMoments
    units: tuple[set[int], ...]
    known: set[int]
    key: int

    def held_out(self) -> HeldOut | None:
        """About a tenth of the units, or fewer of very many; None if none can be spared.

        Nothing is taken from a class of fewer than ten records or from its subjects, and no class as a whole.
        """
        if len(self.known) < FOLDS:
            return None
        counts = self.moments.counts
        share = min(1 / FOLDS, _most_held(self.moments.means.shape[1]) / int(counts.sum()))
        below, few = int(share * 2**64), len(self.known) <= _MOST_COUNTED
        if few:
            below = sorted(self.known)[max(1, round(share * len(self.known))) - 1]
        spared: set[int] = set()
        for own, count in zip(self.units, counts.tolist(), strict=True):
            if count < FOLDS or (len(own) < FOLDS and max(own, default=0) <= below):
                spared |= own
        if few and all(unit > below for unit in self.known - spared):
            return None
        return HeldOut(self.key, below, np.array(sorted(spared), dtype=np.uint64))


def survey(parts: Sequence[Batches], read: Callable[[EmbeddingSet], Rows], classes: int, key: int) -> Survey:
    """Read all records once.

    Parameters
    ----------
    parts
        Parts that can be read alone, from `Batches.parts()`.
    read
        Gives vectors and columns of codes of a piece; the first column is the class.
    classes
        The number of classes; some may not occur.
    key
        Seed of `record_units`.

    Returns
    -------
    Survey
        Moments of the classes, and what decides which records can be held out. It depends on records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import survey
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> data = EmbeddingSet.from_arrays(np.array([[1.0], [3.0], [8.0]]), ["a", "a", "b"])
    >>> survey(SetBatches(data, rows=2).parts(), lambda p: (p.X, p.y[:, None]), 2, key=0).moments.means.tolist()
    [[2.0], [8.0]]
    """
    moments: ClassMoments | None = None
    known: set[int] = set()
    of_class: tuple[set[int], ...] = tuple(set() for _ in range(classes))
    for part, batches in enumerate(parts):
        start = 0
        for piece in batches:
            X, codes = read(piece)
            labels, units = codes[:, 0], record_units(piece, part, start, key)
            start += len(piece)
            moments = moments or ClassMoments.empty(classes, X.shape[1])
            moments.add(X, labels)
            if len(known) <= _MOST_COUNTED:
                known.update(np.unique(units).tolist())
            for c in np.unique(labels).tolist():
                # As many as decide; a set of all units could be too large.
                if len(of_class[c]) < FOLDS:
                    of_class[c].update(np.unique(units[labels == c])[:FOLDS].tolist())
    if moments is None:
        raise DataError("There are no records: name files that hold some.")
    return Survey(moments, of_class, known, key)


def _most_held(dim: int) -> int:
    """Held-out records are kept in memory: more than this are not needed to compare epochs."""
    return min(_MOST_HELD, _MOST_HELD_BYTES // (4 * dim))


def held_out_records(parts: Sequence[Batches], held: HeldOut) -> list[EmbeddingSet]:
    """The held-out records, in order, in pieces; at most twice as many as expected.

    Where a few subjects have most of the records, the rest of what is held out is not used at all.

    Parameters
    ----------
    parts
        Parts that can be read alone, from `Batches.parts()`.
    held
        What is held out.

    Returns
    -------
    list of EmbeddingSet
        Pieces of one record or more.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import held_out_records, survey
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> parts = SetBatches(EmbeddingSet.from_arrays(np.arange(200.0)[:, None], [0, 1] * 100), rows=30).parts()
    >>> held = survey(parts, lambda piece: (piece.X, piece.y[:, None]), 2, key=0).held_out()
    >>> sum(len(piece) for piece in held_out_records(parts, held))
    20
    """
    kept: list[EmbeddingSet] = []
    rows = 0
    for part, batches in enumerate(parts):
        start = 0
        for piece in batches:
            mask = held.mask(record_units(piece, part, start, held.key))
            start += len(piece)
            most = 2 * _most_held(piece.dim) - rows
            if mask.any() and most > 0:
                kept.append(piece.take(np.flatnonzero(mask)[:most]))
                rows += len(kept[-1])
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class ShuffledRows:
    """Minibatches of an epoch, in random order, from a buffer of bounded size.

    An epoch reads the parts in random order into the buffer. When the buffer is full, a random half of its rows
    leaves in minibatches and further rows take their place. So rows are mixed over all parts that share the buffer,
    and over the whole data if the buffer holds them all. Every record that is not held out comes exactly once. The
    order depends on the state of the generator at the start of the epoch alone.

    Parameters
    ----------
    parts
        Parts that can be read alone, from `Batches.parts()`.
    read
        Gives vectors and columns of codes of a piece.
    batch_size
        Rows of a minibatch. The last one may be smaller; if it had one row, that row joins the one before.
    held
        What to leave out; None: nothing.
    buffer
        The size of the buffer in bytes of vectors; it never holds fewer than four minibatches.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import ShuffledRows, seeded
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> data = EmbeddingSet.from_arrays(np.arange(10.0)[:, None], [0, 1] * 5)
    >>> rows = ShuffledRows(SetBatches(data, rows=3).parts(), lambda piece: (piece.X, piece.y[:, None]), 4)
    >>> epoch = list(rows(seeded(0)))
    >>> [len(X) for X, codes in epoch], sorted(np.concatenate([X for X, _ in epoch])[:, 0].tolist())[:3]
    ([4, 4, 2], [0.0, 1.0, 2.0])
    """

    parts: Sequence[Batches]
    read: Callable[[EmbeddingSet], Rows]
    batch_size: int
    held: HeldOut | None = None
    buffer: int = field(default=BUFFER)

    def __call__(self, rng: torch.Generator) -> Iterator[Rows]:
        """The minibatches of one epoch."""
        # One draw: whatever else draws from the generator during the epoch does not change the order.
        order = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        source = self._rows(order.permutation(len(self.parts)))
        # One more than all rows: a buffer that is never full gives them all at once.
        most = sum(map(len, self.parts)) + 1
        capacity = min(most, max(self.buffer // (4 * self.parts[0].dim), 4 * self.batch_size))
        X, codes = np.empty((0, 0), dtype=np.float32), np.empty((0, 0), dtype=np.int64)
        free, used, done = np.arange(capacity), np.empty(0, dtype=np.int64), False
        new: Rows | None = None
        while not done:
            while len(free) and not done:
                new = new or next(source, None)
                if new is None:
                    done = True
                    break
                if not len(X):
                    # Untouched pages take no memory, so small data do not pay for a large buffer.
                    X = np.empty((capacity, new[0].shape[1]), dtype=np.float32)
                    codes = np.empty((capacity, new[1].shape[1]), dtype=np.int64)
                to, free = np.split(free, [len(new[0])]) if len(new[0]) < len(free) else (free, free[:0])
                X[to], codes[to] = new[0][: len(to)], new[1][: len(to)]
                used = np.concatenate([used, to])
                new = (new[0][len(to) :], new[1][len(to) :]) if len(new[0]) > len(to) else None
            used = order.permutation(used)
            if done and len(used):
                sizes = batch_sizes(len(used), self.batch_size)
            else:
                sizes = [self.batch_size] * (len(used) // 2 // self.batch_size)
            leaving, used = np.split(used, [sum(sizes)])
            for i in np.split(leaving, np.cumsum(sizes)[:-1]) if sizes else ():
                yield X[i], codes[i]
            free = np.concatenate([free, leaving])

    def in_order(self) -> Iterator[Rows]:
        """The same rows in the order of the parts, at most 4096 at a time."""
        for X, codes in self._rows(np.arange(len(self.parts))):
            for start in range(0, len(X), _BLOCK):
                yield X[start : start + _BLOCK], codes[start : start + _BLOCK]

    def _rows(self, order: npt.NDArray[np.int64]) -> Iterator[Rows]:
        for part in order.tolist():
            start = 0
            for piece in self.parts[part]:
                X, codes = self.read(piece)
                if self.held is not None:
                    kept = ~self.held.mask(record_units(piece, part, start, self.held.key))
                    X, codes = X[kept], codes[kept]
                start += len(piece)
                if len(X):
                    yield X, codes
