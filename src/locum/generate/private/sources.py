"""Where a private fit gets its sums before the noise: from arrays in memory, or from data in pieces.

Both give the same integers: a sum over pieces that hold whole units is the sum over all of them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locum.data import Engine, Reference, total
from locum.errors import DataError
from locum.generate.coding import Coder
from locum.generate.private.gradients import HeadQuery, SoftmaxRule
from locum.generate.private.guarantee import subjects
from locum.generate.private.paid_sums import identity_of
from locum.generate.private.query import Shares, exact_query
from locum.mechanisms import ExactSums
from locum.types import Batches, EmbeddingSet

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class HeadSums(Protocol):
    """The sums that a private head asks for, one after the other; see `HeadQuery`."""

    def first(self, shares: Shares) -> ExactSums:
        """The pooled sum of all vectors, the counts of the classes, and the sum of lengths."""

    def recenter(self, center: Array) -> None:
        """Take a public center off the vectors; all later sums use these."""

    def class_sums(self) -> ExactSums:
        """The sum of the vectors of each class."""

    def gradient(self, rule: SoftmaxRule, clip: float) -> ExactSums:
        """The gradient of the softmax loss at a public rule, each unit's cut to length 1."""


class Source(Protocol):
    """Records of a private fit, as sums."""

    def head(self, cells: int, reference: Reference) -> HeadSums:
        """The sums for a head."""

    def query(self, cells: int, reference: Reference, shares: Shares) -> ExactSums:
        """The sums of one query."""

    def early(self, sums: Callable[[], ExactSums]) -> Callable[[], ExactSums]:
        """The first sums, added up before anything is paid if that can find faults in the records."""

    def identity(self, settings: Mapping[str, Any]) -> str:
        """A hash of settings and records, for a checkpoint. It stays local."""


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """Records in memory: vectors, the cell of each (class and conditions), and subjects if they are the unit."""

    X: npt.NDArray[np.float32]
    cells: Codes
    subject: Codes | None

    def head(self, cells: int, reference: Reference) -> HeadSums:
        """The sums for a head; vectors are whitened once."""
        return HeadQuery(self.X, self.cells, self.subject, cells, reference)

    def query(self, cells: int, reference: Reference, shares: Shares) -> ExactSums:
        """The sums of one query."""
        return exact_query(self.X, self.cells, self.subject, cells, reference, shares)

    def early(self, sums: Callable[[], ExactSums]) -> Callable[[], ExactSums]:
        """The sums themselves: these records are checked already."""
        return sums

    def identity(self, settings: Mapping[str, Any]) -> str:
        """A hash of settings and records."""
        return identity_of(settings, self.X, self.cells, self.subject)


@dataclass(frozen=True, slots=True, eq=False)
class BatchSource:
    """Records in pieces, one pass over them per sum.

    With `by_subject` every piece must hold all records of each of its subjects (`locum.data.by_subject`). `whole` are
    the data with all columns, and `state` is theirs when they were checked.
    """

    batches: Batches
    coder: Coder
    by_subject: bool
    engine: Engine
    whole: Batches
    state: str

    def head(self, cells: int, reference: Reference) -> HeadSums:
        """The sums for a head; vectors are whitened in every pass."""
        return _BatchHead(self, cells, reference)

    def query(self, cells: int, reference: Reference, shares: Shares) -> ExactSums:
        """The sums of one query."""
        return self.total(_Query(cells, reference, shares))

    def total(self, ask: Callable[[npt.NDArray[np.float32], Codes, Codes | None], ExactSums]) -> ExactSums:
        """The sum of what every piece answers."""
        found = total(self.engine, self.batches, _OfPart(ask, self.coder, self.by_subject))
        # What was found about other data, such as that each subject is in one piece, need not be true of these.
        if self.whole.state() != self.state:
            raise DataError(
                "The data changed while they were read, so these sums are not used: put the data back as they were "
                "and run the same command again."
            )
        return found

    def early(self, sums: Callable[[], ExactSums]) -> Callable[[], ExactSums]:
        """The sums, added up now: a record that cannot be used is found before anything is paid."""
        found = sums()
        return lambda: found

    def identity(self, settings: Mapping[str, Any]) -> str:
        """A hash of settings and of the state of the files."""
        return identity_of({**settings, "records": self.batches.state()})


@dataclass(frozen=True, slots=True, eq=False)
class _OfPart:
    """The exact sums of one part of the data."""

    ask: Callable[[npt.NDArray[np.float32], Codes, Codes | None], ExactSums]
    coder: Coder
    by_subject: bool

    def __call__(self, part: Batches) -> ExactSums:
        out: ExactSums | None = None
        for piece in part:
            found = self.ask(*_columns(piece, self.coder, self.by_subject))
            if out is None:
                out = found
            else:
                out.merge(found)
        assert out is not None, "a part has a piece"
        return out


def _columns(
    piece: EmbeddingSet, coder: Coder, by_subject: bool
) -> tuple[npt.NDArray[np.float32], Codes, Codes | None]:
    cells = coder.cells(piece.y, piece.attributes)
    return piece.X, cells, subjects(piece.subject) if by_subject else None


@dataclass(frozen=True, slots=True, eq=False)
class _Query:
    cells: int
    reference: Reference
    shares: Shares

    def __call__(self, X: npt.NDArray[np.float32], codes: Codes, subject: Codes | None) -> ExactSums:
        return exact_query(X, codes, subject, self.cells, self.reference, self.shares)


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One query of a head: the first, the class sums, or a gradient."""

    cells: int
    reference: Reference
    shares: Shares | None = None
    center: Array | None = None
    rule: SoftmaxRule | None = None
    clip: float = 1.0

    def __call__(self, X: npt.NDArray[np.float32], codes: Codes, subject: Codes | None) -> ExactSums:
        query = HeadQuery(X, codes, subject, self.cells, self.reference)
        if self.shares is not None:
            return query.first(self.shares)
        assert self.center is not None, "the center comes from the first query"
        query.recenter(self.center)
        return query.class_sums() if self.rule is None else query.gradient(self.rule, self.clip)


class _BatchHead:
    """The sums for a head from data in pieces."""

    def __init__(self, source: BatchSource, cells: int, reference: Reference) -> None:
        self._source, self._cells, self._reference = source, cells, reference
        self._center: Array | None = None

    def first(self, shares: Shares) -> ExactSums:
        return self._source.total(_Step(self._cells, self._reference, shares))

    def recenter(self, center: Array) -> None:
        self._center = center

    def class_sums(self) -> ExactSums:
        return self._source.total(_Step(self._cells, self._reference, center=self._center))

    def gradient(self, rule: SoftmaxRule, clip: float) -> ExactSums:
        step = _Step(self._cells, self._reference, center=self._center, rule=rule, clip=clip)
        return self._source.total(step)
