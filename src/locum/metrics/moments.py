"""Counts, means and the scatter around them, from pieces of data in any number of passes or places."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

Array = npt.NDArray[np.float64]


class Moments:
    """Counts and means of groups of vectors, and how vectors scatter around the mean of their group.

    Pieces are added one by one, and sums over parts of the data merge into those of all of it, up to rounding in
    double precision: no number larger than the scatter itself is subtracted.

    Parameters
    ----------
    groups
        How many groups there are.
    d
        The length of a vector.

    Attributes
    ----------
    counts
        Vectors of each group.
    means
        The mean of each group (groups, d); 0 for an empty one.
    scatter
        The sum over all vectors of the products of their differences from the mean of their group (d, d).
    low, high
        The smallest and the largest value of each feature.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import Moments
    >>> X = np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 2.0]])
    >>> one, two = Moments(1, 2), Moments(1, 2)
    >>> one.add(X[:2])
    >>> two.add(X[2:])
    >>> one.merge(two)
    >>> one.means.tolist(), one.covariance().round(3).tolist()
    ([[3.0, 0.6666666666666666]], [[4.0, 2.0], [2.0, 1.333]])
    """

    def __init__(self, groups: int, d: int) -> None:
        self.counts: npt.NDArray[np.int64] = np.zeros(groups, dtype=np.int64)
        self.means: Array = np.zeros((groups, d))
        self.scatter: Array = np.zeros((d, d))
        self.low: Array = np.full(d, np.inf)
        self.high: Array = np.full(d, -np.inf)

    @property
    def rows(self) -> int:
        """How many vectors were added."""
        return int(self.counts.sum())

    def add(self, X: npt.NDArray[np.floating], codes: npt.NDArray[np.int64] | None = None) -> None:
        """Add vectors (n, d) with the number of their group; None: all are of the first."""
        if not len(X):
            return
        rows = np.asarray(X, dtype=np.float64)
        codes = np.zeros(len(rows), dtype=np.int64) if codes is None else codes
        piece = type(self)(*self.means.shape)
        piece.low, piece.high = (np.asarray(end, dtype=np.float64) for end in (X.min(axis=0), X.max(axis=0)))
        piece.counts = np.bincount(codes, minlength=len(self.counts)).astype(np.int64)
        if len(piece.counts) > len(self.counts):
            raise ConfigError(f"`codes` must lie below {len(self.counts)}; got {int(codes.max())}.")
        member = (codes[None, :] == np.arange(len(self.counts))[:, None]).astype(np.float64)
        piece.means = (member @ rows) / np.maximum(piece.counts, 1)[:, None]
        rows = rows - piece.means[codes]
        piece.scatter = rows.T @ rows
        self.merge(piece)

    def merge(self, other: Self) -> None:
        """Add what another part of the data has."""
        if self.means.shape != other.means.shape:
            raise ConfigError("Only moments of as many groups and features can be merged.")
        total = self.counts + other.counts
        weight = other.counts / np.maximum(total, 1)
        step = other.means - self.means
        self.scatter = self.scatter + other.scatter + (step * (self.counts * weight)[:, None]).T @ step
        self.means = self.means + weight[:, None] * step
        self.counts = total
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)

    def covariance(self) -> Array:
        """The covariance around the means of the groups, each of which costs one degree of freedom."""
        return self.scatter / max(self.rows - int((self.counts > 0).sum()), 1)
