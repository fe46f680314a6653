"""The log density of records under a Gaussian decoder, in closed form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.linalg

__all__ = ["gaussian_log_density"]

Floats = npt.NDArray[np.float64]

# A feature's own variance is taken to be at least so much of its total variance, and of the median total variance:
# a direction without any spread would make each record off it impossible, and all of them alike.
_LEAST_OWN = 1e-3
_LEAST_OF_MEDIAN = 1e-6


def gaussian_log_density(
    X: npt.NDArray[np.floating], labels: npt.NDArray[np.int64], means: Floats, factor: Floats, scale: Floats
) -> Floats:
    """Log of N(x; means[label], factor.T @ factor + diag(scale ** 2)) for each row, in float64.

    It inverts a matrix of the factor's rank, never one of the number of features. Features without spread get a
    little. A class whose mean is not known (NaN) gives NaN.
    """
    factor = factor.astype(np.float64)
    own = np.square(scale, dtype=np.float64)
    total = own + np.square(factor).sum(axis=0)
    varying = total[total > 0]
    own = np.maximum(
        own, np.maximum(_LEAST_OWN * total, _LEAST_OF_MEDIAN * (np.median(varying) if len(varying) else 1))
    )
    gap = (X - means[labels]) / np.sqrt(own)
    squares: Floats = np.einsum("ij,ij->i", gap, gap)
    log_det = np.log(own).sum()
    if len(factor):
        scaled = factor / np.sqrt(own)
        inner = scipy.linalg.cholesky(np.eye(len(factor)) + scaled @ scaled.T, lower=True)
        log_det += 2 * np.log(np.diag(inner)).sum()
        known = scipy.linalg.solve_triangular(inner, scaled @ gap.T, lower=True, check_finite=False)
        squares = squares - np.einsum("ij,ij->j", known, known)
    out: Floats = -0.5 * (squares + log_det + X.shape[1] * np.log(2 * np.pi))
    return out
