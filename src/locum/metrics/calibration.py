"""How far a classifier's confidence lies from the share of records that it gets right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.metrics._checks import at_least, labels, table
from locum.types import Estimate

Floats = npt.NDArray[np.float64]
_TAIL = 0.025
# Probabilities in float32 sum to 1 only up to rounding.
_ROUNDING = 1e-3


def expected_calibration_error(y_true: npt.ArrayLike, proba: npt.ArrayLike, *, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy (expected calibration error, Guo et al. 2017); lower is better.

    Confidence is the probability of the most likely class. Records are put into bins of equal width by confidence,
    the right end included, and each bin counts by its number of records. Few records raise the figure: with 150,
    even a perfectly calibrated classifier has about 0.08. `calibration_interval` allows for that.

    Parameters
    ----------
    y_true
        The true class of each record, as a column number of `proba`.
    proba
        Probabilities (n, classes): every row sums to 1.
    bins
        How many bins divide 0..1.

    Returns
    -------
    float
        From 0, calibrated, to 1. A classifier that is always certain has 1 - accuracy.

    Examples
    --------
    >>> from locum.metrics import expected_calibration_error
    >>> expected_calibration_error([0, 0, 0, 1], [[1.0, 0.0]] * 4)
    0.25
    """
    confidence, right = _confidence(y_true, proba)
    at_least("bins", bins, 1)
    return float(_errors(confidence, right[None], _bins(confidence, bins)[None], bins)[0])


def calibration_interval(
    y_true: npt.ArrayLike,
    proba: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    bins: int = 15,
    resamples: int = 500,
) -> Estimate:
    """The expected calibration error with its 95 % interval over records.

    The error is too high by chance, and resampled records are even higher: a percentile interval would leave the
    truth out. So the low end is 0 where a calibrated classifier with the same confidences would often have as large
    an error, and otherwise mirrors the resamples' high end. The high end is that of the resamples.

    Parameters
    ----------
    y_true
        The true class of each record, as a column number of `proba`.
    proba
        Probabilities (n, classes): every row sums to 1.
    rng
        Draws the resamples.
    bins
        How many bins divide 0..1.
    resamples
        How many, 100 or more.

    Returns
    -------
    Estimate
        The error, with its interval.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import calibration_interval
    >>> sure = calibration_interval(np.arange(100) % 4 // 3, [[1.0, 0.0]] * 100, np.random.default_rng(0))
    >>> sure.value, bool(0.1 < sure.low < 0.2 < 0.3 < sure.high < 0.4)
    (0.25, True)
    """
    confidence, right = _confidence(y_true, proba)
    at_least("bins", bins, 1)
    at_least("resamples", resamples, 100)
    n, place = len(right), _bins(confidence, bins)
    value = float(_errors(confidence, right[None], place[None], bins)[0])
    drawn, calibrated = np.empty(resamples), np.empty(resamples)
    # In blocks of bounded size, whatever the number of records.
    step = max(1, 1_000_000 // n)
    for start in range(0, resamples, step):
        part = slice(start, min(start + step, resamples))
        many = part.stop - part.start
        pick = rng.integers(n, size=(many, n))
        drawn[part] = _errors(confidence[pick], right[pick], place[pick], bins)
        calibrated[part] = _errors(confidence, rng.random((many, n)) < confidence, np.tile(place, (many, 1)), bins)
    high = float(np.quantile(drawn, 1 - _TAIL))
    by_chance = value <= float(np.quantile(calibrated, 1 - _TAIL))
    low = 0.0 if by_chance else max(0.0, min(2 * value - high, value))
    return Estimate(value, low, max(high, value), n)


def _confidence(y_true: npt.ArrayLike, proba: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The probability of the most likely class, and whether it is the true one."""
    p = table("proba", proba).astype(np.float64)
    y = labels("y_true", y_true, len(p))
    if y.dtype.kind not in "iub" or int(y.min()) < 0 or int(y.max()) >= p.shape[1]:
        raise DataError(f"`y_true` must hold column numbers of `proba`, from 0 to {p.shape[1] - 1}; got others.")
    if p.min() < 0 or np.abs(p.sum(axis=1) - 1).max() > _ROUNDING:
        raise DataError("`proba` must hold probabilities, 0 or more with rows that sum to 1; got other scores.")
    return np.minimum(p.max(axis=1), 1.0), p.argmax(axis=1) == y


def _bins(confidence: Floats, bins: int) -> npt.NDArray[np.int64]:
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def _errors(
    confidence: Floats, right: npt.NDArray[np.bool_], place: npt.NDArray[np.int64], bins: int
) -> npt.NDArray[np.float64]:
    """The error of each row of records; sums over a bin stand for its mean times its size."""
    rows, n = place.shape
    flat = (place + bins * np.arange(rows)[:, None]).ravel()
    gaps = np.bincount(flat, weights=(right - confidence).ravel(), minlength=rows * bins)
    out: npt.NDArray[np.float64] = np.abs(gaps.reshape(rows, bins)).sum(axis=1) / n
    return out
