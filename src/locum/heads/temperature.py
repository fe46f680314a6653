"""One number that makes a classifier as confident as it should be: temperature scaling (Guo et al. 2017)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from locum.errors import DataError

Floats = npt.NDArray[np.float64]
COLDEST, HOTTEST = 0.01, 100.0
# Halvings of log temperature: it is then known to 1e-12.
_STEPS = 45


def fit_temperature(scores: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The temperature T for which softmax(scores / T) has the lowest log loss.

    Every score is divided by the same number, so no prediction changes. The log loss is convex in 1 / T; the zero of
    its derivative is found by bisection. A share of 1 / (n + 2) of each record counts for the other classes, as in
    Platt (1999): records that are all right must not make the classifier certain.

    Parameters
    ----------
    scores
        Scores (n, classes) before the softmax, of records that the classifier was not trained on.
    y
        The true class of each record, as a column number of `scores`.

    Returns
    -------
    float
        Above 1: the classifier was too confident; below 1: not confident enough. From 0.01 to 100.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.heads import fit_temperature
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(5000, 2))
    >>> y = (rng.random(5000) < 1 / (1 + np.exp(scores[:, 0] - scores[:, 1]))).astype(int)
    >>> bool(0.9 < fit_temperature(scores, y) < 1.1 and 4.5 < fit_temperature(5 * scores, y) < 5.5)
    True
    """
    s, code = np.asarray(scores, dtype=np.float64), np.asarray(y)
    if s.ndim != 2 or len(s) == 0 or code.shape != (len(s),) or not np.isfinite(s).all():
        raise DataError(
            f"A temperature needs finite scores (n, classes) and one class each; got shapes {s.shape}, {code.shape}."
        )
    # Relative to the true class, whose own score is then 0.
    s = s - s[np.arange(len(s)), code][:, None]
    doubt = float(s.sum(axis=1).mean()) / max(1, s.shape[1] - 1) / (len(s) + 2)
    low, high = math.log(COLDEST), math.log(HOTTEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _expected(s, math.exp(-middle)) > doubt:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _expected(s: Floats, inverse: float) -> float:
    """The mean score under softmax(s * inverse). Above that of the targets, a higher temperature is better."""
    scaled = s * inverse
    weight = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return float(np.mean((weight * s).sum(axis=1) / weight.sum(axis=1)))
