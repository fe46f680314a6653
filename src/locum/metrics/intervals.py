"""95 % intervals of measured numbers, always as an `Estimate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics._checks import at_least, column
from locum.types import Estimate

_TAIL = 0.025
_Z95 = 1.959963984540054


def mean_interval(values: npt.ArrayLike) -> Estimate:
    """Mean of independent values with Student's t interval; a single value has an open interval.

    The interval is for the mean of the distribution of the values, and assumes that they are independent: ten records
    of one subject are not.

    Parameters
    ----------
    values
        One column of finite numbers.

    Returns
    -------
    Estimate
        The mean, with its 95 % interval.

    Examples
    --------
    >>> from locum.metrics import mean_interval
    >>> f"{mean_interval([1.0, 2.0, 3.0]):.2f}"
    '2.00 [-0.48, 4.48]'
    """
    from scipy.special import stdtrit

    x = column("values", values)
    n, mean = len(x), float(x.mean())
    if n == 1:
        return Estimate(mean, -math.inf, math.inf, 1)
    half = float(stdtrit(n - 1, 1 - _TAIL)) * float(x.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Estimate:
    """Mean of a - b over paired runs (same seed, same split) with Student's t interval.

    Pairing removes what both runs share. Assumes that differences are roughly normal; three runs give a wide
    interval, and one run gives an open one.

    Parameters
    ----------
    a, b
        One score per run, in the same order.

    Returns
    -------
    Estimate
        The mean difference, with its 95 % interval.

    Examples
    --------
    >>> from locum.metrics import paired_difference
    >>> f"{paired_difference([0.82, 0.84, 0.86], [0.80, 0.81, 0.85]):.2f}"
    '0.02 [-0.00, 0.04]'
    """
    x, y = column("a", a), column("b", b)
    if x.shape != y.shape:
        raise DataError(f"Paired runs must come in pairs; got {len(x)} and {len(y)}. Keep only runs that both have.")
    return mean_interval(x - y)


def bootstrap_interval(
    data: npt.ArrayLike | tuple[npt.ArrayLike, ...],
    rng: np.random.Generator,
    *,
    statistic: Callable[..., float] = np.mean,
    resamples: int = 2000,
) -> Estimate:
    """`statistic(*data)` with the percentile interval over records resampled with replacement.

    Too narrow for few records (under about 30), and for extremes such as a maximum. The interval is widened to
    include the value itself.

    Parameters
    ----------
    data
        An array with one row per record, or a tuple of such arrays, whose rows stay together.
    rng
        Draws the resamples.
    statistic
        A function of the arrays that gives a finite number on every resample.
    resamples
        How many, 100 or more.

    Returns
    -------
    Estimate
        The statistic of `data`, with its 95 % interval.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import bootstrap_interval
    >>> e = bootstrap_interval(np.arange(100.0), np.random.default_rng(0))
    >>> e.value, bool(42 < e.low < 46 < 53 < e.high < 57)
    (49.5, True)
    """
    at_least("resamples", resamples, 100)
    arrays = tuple(np.asarray(a) for a in (data if isinstance(data, tuple) else (data,)))
    n = _rows(arrays)
    value = float(statistic(*arrays))
    draws = np.empty(resamples)
    for b in range(resamples):
        pick = rng.integers(n, size=n)
        draws[b] = statistic(*(a[pick] for a in arrays))
    if not (np.isfinite(value) and np.isfinite(draws).all()):
        raise DataError("`statistic` was not finite on some resample; use another statistic, or more records.")
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    return Estimate(value, min(float(low), value), max(float(high), value), n)


def paired_bootstrap(
    score_fn: Callable[[Any, Any], float],
    y: npt.ArrayLike,
    pred_a: npt.ArrayLike,
    pred_b: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    resamples: int = 2000,
) -> Estimate:
    """`score_fn(y, pred_a) - score_fn(y, pred_b)` with its interval over the test records.

    Both models see the same resampled records. Covers the choice of test records, not of training data or seeds: use
    `paired_difference` over runs for these.

    Parameters
    ----------
    score_fn
        A score of labels and predictions, such as `balanced_accuracy`.
    y
        The true label of each test record.
    pred_a, pred_b
        Predictions of the two models, one row per test record.
    rng
        Draws the resamples.
    resamples
        How many, 100 or more.

    Returns
    -------
    Estimate
        The difference, with its 95 % interval; `compare` gives the conclusion.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import accuracy, compare, paired_bootstrap
    >>> y = np.tile([0, 1], 50)
    >>> compare(paired_bootstrap(accuracy, y, y, y, np.random.default_rng(0), resamples=100))
    'tie'
    """

    def gap(t: Any, a: Any, b: Any) -> float:
        return float(score_fn(t, a)) - float(score_fn(t, b))

    data = (np.asarray(y), np.asarray(pred_a), np.asarray(pred_b))
    return bootstrap_interval(data, rng, statistic=gap, resamples=resamples)


def auc_interval(scores_pos: npt.ArrayLike, scores_neg: npt.ArrayLike) -> Estimate:
    """Chance that a positive scores above a negative (ties count half), with DeLong's interval.

    The interval is clipped to [0, 1]. If no pair is out of order, DeLong's variance is 0 and would claim certainty:
    the exact binomial interval of the smaller group is used instead. Somewhat narrow if the AUC is above .95 or a
    group has under 20 records.

    Parameters
    ----------
    scores_pos, scores_neg
        Scores of the positives and of the negatives, two or more each.

    Returns
    -------
    Estimate
        The AUC, with its 95 % interval.

    Examples
    --------
    >>> from locum.metrics import auc_interval
    >>> auc_interval([2.0, 4.0], [1.0, 3.0]).value
    0.75
    """
    pos, neg = column("scores_pos", scores_pos, rows=2), column("scores_neg", scores_neg, rows=2)
    m, n = len(pos), len(neg)
    # How often each positive beats the negatives, and each negative is beaten, from ranks in O(n log n).
    beats = share_below(np.sort(neg), pos)
    beaten = 1.0 - share_below(np.sort(pos), neg)
    auc = float(beats.mean())
    half = _Z95 * float(np.sqrt(beats.var(ddof=1) / m + beaten.var(ddof=1) / n))
    if half == 0.0 and auc in (0.0, 1.0):
        edge = clopper_pearson(int(auc) * min(m, n), min(m, n))
        return Estimate(auc, edge.low, edge.high, m + n)
    return Estimate(auc, max(0.0, auc - half), min(1.0, auc + half), m + n)


def share_below(ordered: npt.NDArray[np.floating[Any]], x: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Share of the sorted values `ordered` below each `x`; equal ones count half.

    >>> share_below(np.array([1.0, 2.0]), np.array([0.0, 1.0, 1.5, 9.0]))
    array([0.  , 0.25, 0.5 , 1.  ])
    """
    below = np.searchsorted(ordered, x, side="left") + np.searchsorted(ordered, x, side="right")
    return np.asarray(below / (2.0 * len(ordered)))


def clopper_pearson(successes: int, n: int) -> Estimate:
    """A share with the exact binomial interval, which covers at least 95 % of the time, often more.

    Parameters
    ----------
    successes
        How many of the `n` records count, from 0 to `n`.
    n
        The number of independent records, 1 or more.

    Returns
    -------
    Estimate
        successes / n, with its interval.

    Examples
    --------
    >>> from locum.metrics import clopper_pearson
    >>> f"{clopper_pearson(0, 10):.3f}"
    '0.000 [0.000, 0.308]'
    """
    from scipy.special import betaincinv

    at_least("n", n, 1)
    at_least("successes", successes, 0)
    if successes > n:
        raise ConfigError(f"`successes` must be at most `n`; got {successes} of {n}.")
    low = float(betaincinv(successes, n - successes + 1, _TAIL)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - _TAIL)) if successes < n else 1.0
    return Estimate(successes / n, low, high, int(n))


def compare(diff: Estimate) -> Literal["better", "worse", "tie", "not decided"]:
    """The conclusion from a difference (new minus old, more is better).

    Parameters
    ----------
    diff
        The difference with its interval, from `paired_difference` or `paired_bootstrap`.

    Returns
    -------
    str
        "better", "worse", "tie" or "not decided". "tie" means that the interval contains 0: the runs are
        inconclusive, which does not prove equality. "not decided" means that one run gave no interval.

    Examples
    --------
    >>> from locum.metrics import compare
    >>> from locum.types import Estimate
    >>> compare(Estimate(0.02, 0.01, 0.03, 5))
    'better'
    """
    if diff.low > 0:
        return "better"
    if diff.high < 0:
        return "worse"
    return "not decided" if math.isinf(diff.low) and math.isinf(diff.high) else "tie"


def _rows(arrays: tuple[npt.NDArray[Any], ...]) -> int:
    """The common number of records of `arrays`."""
    sizes = [len(a) if a.ndim else 0 for a in arrays]
    if not sizes or min(sizes) < 2 or len(set(sizes)) > 1:
        raise DataError(f"Arrays must have the same number of records, 2 or more; got {sizes}.")
    return sizes[0]
