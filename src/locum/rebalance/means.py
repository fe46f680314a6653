"""Shrinkage of class means: the mean of a class with few records is probably nearer to the other classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from locum.errors import DataError

# With more features a covariance is too large, and only variances are used.
_WIDEST = 4096
_BLOCK = 8192
# The least variance in any direction, as a share of the mean variance.
_FLOOR = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class ShrunkMeans:
    """Class means, one row per class; the `center` they are shrunk toward, and by what `share` of the way."""

    means: npt.NDArray[np.float64]
    center: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]

    @property
    def shifts(self) -> npt.NDArray[np.float64]:
        """The shift of each class from the mean of its records to its shrunk mean."""
        out: npt.NDArray[np.float64] = self.share[:, None] * (self.center - self.means)
        return out


def shrunk_means(X: npt.NDArray[Any], codes: npt.NDArray[np.int64]) -> ShrunkMeans:
    """Class means shrunk toward a common center, each by as much as it is likely to be off.

    The mean of n records misses that of its class by `noise = features / n`: a squared distance in units of the
    covariance that all classes share (shrunk toward its diagonal if there are few records), in an unknown direction;
    in a thousand dimensions it lies too far out. Class means themselves scatter by `between`, which is estimated here
    with the noise subtracted. Each mean then moves by noise / (noise + between): all the way if classes do not
    differ, hardly for a class of many records. The center weights classes by how well they are known.

    One number is the noise of a mean in all directions: a difference in few of them counts for little.

    Parameters
    ----------
    X
        Records (n, features).
    codes
        The class of each record, numbered from 0; each number up to the largest has a record.

    Returns
    -------
    ShrunkMeans
        `means` of the records, one row per class; the `center` they are shrunk toward; by what `share` of the way;
        and the resulting `shifts`. Private, like the records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.rebalance import shrunk_means
    >>> found = shrunk_means(np.array([[-3.0], [-1.0], [1.0], [3.0]]), np.array([0, 0, 1, 1]))
    >>> found.means.ravel().tolist(), found.share.tolist()
    ([-2.0, 2.0], [0.125, 0.125])
    """
    counts = np.bincount(codes)
    if counts.min() < 1:
        raise DataError("Each class code needs a record: number only the classes that occur.")
    means = np.stack([X[codes == c].mean(axis=0, dtype=np.float64) for c in range(len(counts))])
    free = int(counts.sum()) - len(counts)
    spread = None if free < 1 or len(counts) < 2 else _spread(X, codes, means, free)
    if spread is None:
        # Classes of one record each say nothing about the covariance.
        return ShrunkMeans(means, means.mean(axis=0), np.zeros(len(counts)))
    white, size = spread
    noise = size / counts
    # Equal weights give a first estimate, which then gives the weight of each class.
    between = _scatter(white, noise, np.full(len(counts), 1 / len(counts)))
    weights = 1 / (between + noise)
    weights /= weights.sum()
    between = _scatter(white, noise, weights)
    return ShrunkMeans(means, weights @ means, noise / (noise + between))


def _spread(
    X: npt.NDArray[Any], codes: npt.NDArray[np.int64], means: npt.NDArray[np.float64], free: int
) -> tuple[npt.NDArray[np.float64], float] | None:
    """Class means in units of the shared covariance, and the expected squared length of a record's deviation."""
    d = X.shape[1]
    full = d <= _WIDEST
    covariance = np.zeros((d, d) if full else d)
    for start in range(0, len(X), _BLOCK):
        gaps = np.subtract(X[start : start + _BLOCK], means[codes[start : start + _BLOCK]], dtype=np.float64)
        covariance += gaps.T @ gaps if full else np.square(gaps).sum(axis=0)
    covariance /= free
    variance = np.diagonal(covariance).copy() if full else covariance
    floor = _FLOOR * variance.mean()
    if floor == 0.0:
        return None
    if not full:
        return means / np.sqrt(variance + floor), float((variance / (variance + floor)).sum())
    # With few records and many features a covariance is mostly noise.
    steady = free / (free + d) * covariance
    steady[np.diag_indices(d)] = variance + floor
    root = scipy.linalg.cholesky(steady, lower=True)
    white = scipy.linalg.solve_triangular(root, means.T, lower=True).T
    half = scipy.linalg.solve_triangular(root, covariance, lower=True)
    # The trace of steady^-1 covariance: d, except for the shrinkage.
    return white, float(np.trace(scipy.linalg.solve_triangular(root, half.T, lower=True)))


def _scatter(
    means: npt.NDArray[np.float64], noise: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> float:
    """The squared scatter of the true means around their weighted center, beyond what noise explains."""
    found = float(weights @ np.square(means - weights @ means).sum(axis=1))
    rest = weights * (1 - weights)
    return max(0.0, (found - float(rest @ noise)) / float(rest.sum()))
