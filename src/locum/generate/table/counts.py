"""The counts of a private table: what each unit adds to the tables that are counted, as integers.

A record adds one to a single cell of each table. A subject adds the mean of its records, or at most `rows` records'
worth: each of its n records weighs 1 / max(rows, n). The tables share the squared length of a contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, PrivacyError
from locum.mechanisms import ExactSums

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# A whole record; its square has room for sums of millions in 64 bits.
_GRID = 2**30
_FULL = _GRID - 1
# Cells of all tables of one draw together: each gets a draw of noise.
MOST_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class CountQuery:
    """Tables of counts over columns, each column merged into groups of cells. Everything in here is public.

    Parameters
    ----------
    tables
        For each table the positions of its columns.
    groups
        For each column the group of each of its cells.
    shares
        The share of each table in the squared length of a contribution; they sum to at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import CountQuery, row_weights
    >>> query = CountQuery(((0,), (0, 1)), (np.arange(2), np.arange(3)), (0.5, 0.5))
    >>> sums = query.sums(np.array([[0, 2], [1, 2], [1, 2]]), row_weights(3))
    >>> [table.round(6).tolist() for table in query.tables_of(sums.to_array())]
    [[1.0, 2.0], [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]]
    """

    tables: tuple[tuple[int, ...], ...]
    groups: tuple[Codes, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.tables or len(self.shares) != len(self.tables) or min(self.shares) <= 0:
            raise ConfigError("A query of counts needs tables, each with a share above 0.")
        # In rational numbers: a rounded sum could hide an excess.
        if sum(map(Fraction, self.shares)) > 1:
            raise PrivacyError("The shares of the tables of a query sum to more than 1: nothing was counted.")
        if self.size > MOST_CELLS:
            raise ConfigError(
                f"The tables have {self.size} cells, and at most {MOST_CELLS} can be counted: declare fewer columns "
                "or values."
            )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many groups each column has."""
        return tuple(int(group.max()) + 1 for group in self.groups)

    def shape(self, table: Sequence[int]) -> tuple[int, ...]:
        """The shape of a table."""
        return tuple(self.widths[column] for column in table)

    @cached_property
    def size(self) -> int:
        """How many numbers all tables hold."""
        return sum(prod(self.shape(table)) for table in self.tables)

    @property
    def steps(self) -> Floats:
        """The step of the grid for each number: so a unit moves them by at most 1 in all.

        A root is rounded up by less than one part in 2**52; a whole record is one part in 2**30 less than 1.
        """
        return np.concatenate(
            [
                np.full(prod(self.shape(table)), sqrt(share) / _GRID)
                for table, share in zip(self.tables, self.shares, strict=True)
            ]
        )

    def sums(self, codes: Codes, weights: Codes) -> ExactSums:
        """The counts before the noise, in integers. Private.

        Parameters
        ----------
        codes
            The cell of each value (n, columns).
        weights
            What each row weighs, by `row_weights`.

        Returns
        -------
        ExactSums
            All tables, one after the other.
        """
        out, start = ExactSums(self.steps), 0
        found = np.zeros(self.size, dtype=np.int64)
        merged = [group[codes[:, column]] for column, group in enumerate(self.groups)]
        for table in self.tables:
            shape = self.shape(table)
            place = np.ravel_multi_index([merged[column] for column in table], shape)
            np.add.at(found, start + place, weights)
            start += prod(shape)
        out.add(found)
        return out

    def tables_of(self, numbers: Floats) -> list[Floats]:
        """Counts of whole records' worth, from sums with or without noise."""
        out, start = [], 0
        for table, share in zip(self.tables, self.shares, strict=True):
            shape = self.shape(table)
            part = numbers[start : start + prod(shape)] / (sqrt(share) * (_FULL / _GRID))
            out.append(part.reshape(shape))
            start += prod(shape)
        return out

    def deviations(self, noise: float) -> list[float]:
        """The standard deviation of the noise in each table of `tables_of`."""
        return [noise / (sqrt(share) * (_FULL / _GRID)) for share in self.shares]


def row_weights(n: int, subject: Codes | None = None, rows: int = 1) -> Codes:
    """What each row adds to its cells: a whole record, or a part of one if its subject has several rows.

    Parameters
    ----------
    n
        How many rows there are.
    subject
        The subject of each row as a whole number, if the unit is the subject; None: each row is a unit.
    rows
        How many rows' worth a subject may add, 1 or more. A row then weighs 1 / `rows` at most.

    Returns
    -------
    ndarray of int64
        Parts of 2**30 - 1. The rows of a unit sum to at most that, and each depends on its own unit alone.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import row_weights
    >>> (row_weights(3, np.array([0, 1, 1])) / (2**30 - 1)).round(6).tolist()
    [1.0, 0.5, 0.5]
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 1000:
        raise ConfigError(f"`rows_per_subject` must be a whole number from 1 to 1000; got {rows!r}.")
    if subject is None:
        return np.full(n, _FULL, dtype=np.int64)
    held = np.bincount(subject)
    out: Codes = _FULL // np.maximum(held, rows)[subject]
    total = np.zeros(len(held), dtype=np.int64)
    np.add.at(total, subject, out)
    if (total > _FULL).any():
        # Cannot happen; if it did, no noise would hide the unit.
        raise PrivacyError("A contribution is longer than its bound: this is a bug in Locum, and nothing was used.")
    return out
