"""Classes and conditions of records in pieces, as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.data import Distinct
from locum.errors import DataError
from locum.metrics import Moments
from locum.release import Condition, cell_of, to_space
from locum.types import Batches

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Coder:
    """Which class and which value of each condition a record has, as whole numbers from 0.

    Parameters
    ----------
    classes
        The class codes of the data that count, in order.
    conditions
        The attributes that samples can be drawn for, with their values.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import Coder
    >>> Coder((0, 2), ()).codes(np.array([2, 0]), {}).tolist()
    [[1], [0]]
    """

    classes: tuple[int, ...]
    conditions: tuple[Condition, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """How many classes and values there are."""
        return (len(self.classes), *(len(condition.values) for condition in self.conditions))

    @property
    def count(self) -> int:
        """How many combinations there can be."""
        return math.prod(self.widths)

    def codes(self, y: Codes, attributes: Mapping[str, npt.NDArray[Any]]) -> Codes:
        """One row per record: its class, then its value of each condition."""
        place = np.full(max(int(y.max(initial=0)), *self.classes) + 1, -1, dtype=np.int64)
        place[list(self.classes)] = np.arange(len(self.classes))
        columns = [place[y]]
        if (columns[0] < 0).any():
            raise DataError("A label is not among `classes`: name every class that can occur.")
        for condition in self.conditions:
            texts, inverse = np.unique(attributes[condition.name].astype(np.str_), return_inverse=True)
            known = {value: code for code, value in enumerate(condition.values)}
            own = np.array([known.get(text, -1) for text in texts.tolist()], dtype=np.int64)[inverse]
            if (own < 0).any():
                raise DataError(
                    f"A value of {condition.name!r} is not among `condition_values` (--condition-values): name every "
                    "value that can occur."
                )
            columns.append(own)
        return np.stack(columns, axis=1)

    def cells(self, y: Codes, attributes: Mapping[str, npt.NDArray[Any]]) -> Codes:
        """The combination of class and conditions of each record."""
        return cell_of(self.codes(y, attributes), self.widths)


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """What one pass over the facts of records counts. Private.

    Attributes
    ----------
    records
        How many records there are.
    units
        How many distinct subjects there are; without subjects, how many records.
    counts
        Records of each combination of class and conditions that a coder knows.
    lone
        Combinations whose records all belong to one subject; without subjects, those with one record.
    state
        What the data said of their state when counting began.
    """

    records: int
    units: int
    counts: Codes
    lone: npt.NDArray[np.bool_]
    state: str


def census(batches: Batches, coder: Coder) -> Census:
    """Count records and subjects in one pass that reads no vectors."""
    state = batches.state()
    counts = np.zeros(coder.count, dtype=np.int64)
    first: dict[int, str] = {}
    several = np.zeros(coder.count, dtype=bool)
    seen = Distinct()
    for facts in batches.facts():
        cells = coder.cells(facts.y, facts.attributes)
        counts += np.bincount(cells, minlength=coder.count)
        if facts.subject is None:
            continue
        seen.add(facts.subject)
        for cell in np.flatnonzero(np.bincount(cells, minlength=coder.count)).tolist():
            if not several[cell]:
                own = set(facts.subject[cells == cell].astype(np.str_).tolist())
                known = first.setdefault(cell, next(iter(own)))
                several[cell] = len(own | {known}) > 1
    records = int(counts.sum())
    subjects = batches.has_subjects
    lone = (counts > 0) & (~several if subjects else counts == 1)
    return Census(records, len(seen) if subjects else records, counts, lone, state)


def values_that_occur(batches: Batches, names: Sequence[str]) -> tuple[Condition, ...]:
    """The values of attributes in the data, sorted, from one pass that reads no vectors."""
    found: dict[str, set[str]] = {name: set() for name in names}
    if not names:
        return ()
    for facts in batches.only(subject=False, attributes=names).facts():
        for name in names:
            found[name].update(np.unique(facts.attributes[name].astype(np.str_)).tolist())
    return tuple(Condition(name=name, values=tuple(sorted(values))) for name, values in found.items())


def classes_that_occur(batches: Batches) -> tuple[int, ...]:
    """The class codes in the data, sorted, from one pass that reads no vectors."""
    found: set[int] = set()
    for facts in batches.only(subject=False).facts():
        found.update(np.unique(facts.y).tolist())
    return tuple(sorted(found))


class GatheredCells:
    """Moments of the combinations of class and conditions, and whether all vectors of one are the same. Private."""

    def __init__(self, cells: int, d: int) -> None:
        self.moments = Moments(cells, d)
        self._first = np.zeros((cells, d), dtype=np.float32)
        self._differ = np.zeros(cells, dtype=bool)

    @property
    def same(self) -> npt.NDArray[np.bool_]:
        """Combinations whose records all hold the same vector."""
        return (self.moments.counts > 0) & ~self._differ

    def add(self, X: npt.NDArray[np.float32], cells: Codes) -> None:
        """Add vectors with their combinations."""
        own, where = np.unique(cells, return_index=True)
        new = self.moments.counts[own] == 0
        self._first[own[new]] = X[where[new]]
        # Only until a difference is found: then nothing is compared any more.
        open_ = ~self._differ[cells]
        if open_.any():
            other = (X[open_] != self._first[cells[open_]]).any(axis=1)
            self._differ[cells[open_][other]] = True
        self.moments.add(X, cells)

    def merge(self, other: Self) -> None:
        """Add what another part of the data has."""
        mine, theirs = self.moments.counts > 0, other.moments.counts > 0
        both = mine & theirs
        self._differ |= other._differ | (both & (self._first != other._first).any(axis=1))
        self._first[theirs & ~mine] = other._first[theirs & ~mine]
        self.moments.merge(other.moments)


@dataclass(frozen=True, slots=True, eq=False)
class CellMoments:
    """Work on a part of the data: the moments of its combinations, in a space."""

    coder: Coder
    space: str

    def __call__(self, part: Batches) -> GatheredCells:
        """What the records of the part add up to."""
        out = GatheredCells(self.coder.count, part.dim)
        for piece in part:
            out.add(to_space(piece.X, self.space), self.coder.cells(piece.y, piece.attributes))
        return out
