"""Means, spread and range of records that come piece by piece; the numbers of pieces can be merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Numbers that are widened to float64 at once: copies of a whole piece would take more memory than the piece.
_AT_ONCE = 2**20


@dataclass(slots=True, eq=False)
class ClassMoments:
    """Count, mean and range of each class, and the squared distance to class means per feature, in float64.

    Merging uses differences between means, not raw sums of squares: features far from zero lose no digits.

    Parameters
    ----------
    counts
        Records of each class (classes,).
    means
        The mean of each class (classes, d); zeros for a class without records.
    within
        The sum of squared distances to the class mean, per feature (d,).
    low, high
        The smallest and the largest value per class and feature (classes, d).

    Examples
    --------
    >>> import numpy as np
    >>> from locum.train import ClassMoments
    >>> moments = ClassMoments.empty(classes=2, dim=1)
    >>> moments.add(np.array([[1.0], [3.0]], np.float32), np.array([0, 0]))
    >>> moments.add(np.array([[5.0], [8.0]], np.float32), np.array([0, 1]))
    >>> moments.means.tolist(), moments.within.tolist()
    ([[3.0], [8.0]], [8.0])
    """

    counts: npt.NDArray[np.int64]
    means: Floats
    within: Floats
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]

    @classmethod
    def empty(cls, classes: int, dim: int) -> Self:
        """Before the first record."""
        return cls(
            np.zeros(classes, dtype=np.int64),
            np.zeros((classes, dim)),
            np.zeros(dim),
            np.full((classes, dim), np.inf, dtype=np.float32),
            np.full((classes, dim), -np.inf, dtype=np.float32),
        )

    def add(self, X: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> None:
        """Count further records, of vectors `X` and class codes `labels`."""
        rows = max(1, _AT_ONCE // X.shape[1])
        for start in range(0, len(X), rows):
            self._add(X[start : start + rows], labels[start : start + rows])

    def merge(self, other: Self) -> None:
        """Count the records of another pass over other records."""
        self._merge(np.arange(len(self.counts)), other)

    @property
    def mean(self) -> Floats:
        """The mean over all records (d,)."""
        out: Floats = self.counts @ self.means / self.counts.sum()
        return out

    @property
    def variance(self) -> Floats:
        """The variance over all records (d,), around their common mean."""
        between = self.counts @ np.square(self.means - self.mean)
        out: Floats = (self.within + between) / self.counts.sum()
        return out

    def _add(self, X: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> None:
        order = np.argsort(labels, kind="stable")
        present, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
        rows = X[order]
        wide = rows.astype(np.float64)
        means = np.add.reduceat(wide, starts, axis=0) / counts[:, None]
        wide -= np.repeat(means, counts, axis=0)
        low, high = np.minimum.reduceat(rows, starts, axis=0), np.maximum.reduceat(rows, starts, axis=0)
        self._merge(present, type(self)(counts, means, np.square(wide, out=wide).sum(axis=0), low, high))

    def _merge(self, at: npt.NDArray[np.int64], other: Self) -> None:
        both = np.maximum(self.counts[at] + other.counts, 1)
        apart = other.means - self.means[at]
        self.within += other.within + (self.counts[at] * (other.counts / both)) @ np.square(apart)
        self.means[at] += (other.counts / both)[:, None] * apart
        self.counts[at] += other.counts
        self.low[at] = np.minimum(self.low[at], other.low)
        self.high[at] = np.maximum(self.high[at], other.high)
