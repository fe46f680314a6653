"""What the best attack can reach against events: limits that follow from their cost, whatever the attack.

At every epsilon, delta bounds how far two worlds differ, with a unit and without it. All these bounds together leave
a least error of the second kind for each error of the first kind, the trade-off function; one minus the area below
it bounds the AUC of any test (Dong, Roth and Su, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from locum.accounting.cost import delta_of, epsilon_of, least_delta
from locum.accounting.events import Event
from locum.errors import ConfigError
from locum.types import Relation

Array = npt.NDArray[np.float64]

# Epsilons at which delta is taken: more make the limit tighter, fewer never make it wrong.
_EPSILONS = 128
# Intervals of false positive rates: the middle of each is below the area of a convex curve.
_RATES = 4000
_BLOCK = 120
_TAIL = 1e-9


def attack_limit(events: Sequence[Event], relation: Relation = "add-or-remove") -> float:
    """The highest AUC of any test of whether a given unit took part, averaged over the noise: an upper bound.

    It holds even if the tester knows all other records. For one sum with normal noise of separation mu it is
    Phi(mu / sqrt 2), to within a thousandth. One draw of the noise can lie above it or below.

    Parameters
    ----------
    events
        What was done to the data, with settings that were fixed before the first of them.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`). With the second, a test tells which of two
        values a unit had.

    Returns
    -------
    float
        From 0.5, which no events give, to 1.

    Raises
    ------
    ConfigError
        If composing the events would take too much memory or time.

    Examples
    --------
    >>> from locum.accounting import attack_limit, plan_query
    >>> from locum.types import DP
    >>> [round(attack_limit(plan_query(DP(epsilon, 1e-6)).events), 3) for epsilon in (1.0, 2.0, 3.0)]
    [0.566, 0.624, 0.677]
    """
    if not events:
        return 0.5
    return _limit(tuple(events), relation)


def found_limit(events: Sequence[Event], fpr: float, relation: Relation = "add-or-remove") -> float:
    """The highest true positive rate of any such test at a false positive rate: an upper bound.

    Parameters
    ----------
    events
        What was done to the data, with settings that were fixed before the first of them.
    fpr
        Share of absent units that the test takes for present, from 0 to 1.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).

    Returns
    -------
    float
        From `fpr`, which no events give, to 1.

    Examples
    --------
    >>> from locum.accounting import Gaussian, found_limit
    >>> round(found_limit([Gaussian(4.0)], 0.01), 3)
    0.019
    """
    if not 0 <= fpr <= 1:
        raise ConfigError(f"`fpr` must lie in 0..1; got {fpr!r}.")
    if not events:
        return float(fpr)
    return _found(*_curve(tuple(events), relation), fpr)


def pair_limits(epsilon: float, delta: float, fpr: float) -> tuple[float, float]:
    """The same two limits, from one epsilon and delta alone: what a sum of several charges leaves to say.

    Parameters
    ----------
    epsilon
        0 or more.
    delta
        From 0 to 1.
    fpr
        False positive rate of the second limit, from 0 to 1.

    Returns
    -------
    tuple of float
        The highest AUC, and the highest true positive rate at `fpr`.

    Examples
    --------
    >>> from locum.accounting import pair_limits
    >>> [round(limit, 3) for limit in pair_limits(1.0, 0.0, 0.01)]
    [0.731, 0.027]
    """
    if not 0 <= epsilon < math.inf or not 0 <= delta <= 1 or not 0 <= fpr <= 1:
        raise ConfigError(
            f"`epsilon` must be 0 or more and finite, `delta` and `fpr` in 0..1; got {epsilon!r}, {delta!r}, {fpr!r}."
        )
    curve = np.array([float(epsilon)]), np.array([float(delta)])
    return _auc(*curve), _found(*curve, fpr)


@lru_cache(maxsize=512)
def _limit(events: tuple[Event, ...], relation: Relation) -> float:
    # Kept: a page asks for the same few dozen again and again, and each takes a hundredth of a second.
    return _auc(*_curve(events, relation))


@lru_cache(maxsize=64)
def _curve(events: tuple[Event, ...], relation: Relation) -> tuple[Array, Array]:
    """Epsilons from 0 to where hardly any probability is left, and the delta at each."""
    most = epsilon_of(events, max(_TAIL, least_delta(events)), relation)
    epsilons = np.linspace(0.0, most, _EPSILONS)
    return epsilons, np.array([delta_of(events, float(epsilon), relation) for epsilon in epsilons])


def _least_error(epsilons: Array, deltas: Array) -> Callable[[Array], Array]:
    """The trade-off function: the least error of the second kind at each error of the first."""
    # Far beyond any odds that matter the bound is 0, and its exponential is not a number.
    odds = np.exp(np.minimum(epsilons, 700.0))

    def error(rates: Array) -> Array:
        there = 1 - deltas[:, None] - odds[:, None] * rates
        back = (1 - deltas[:, None] - rates) / odds[:, None]
        out: Array = np.maximum(np.maximum(there, back).max(axis=0), 0.0)
        return out

    return error


def _auc(epsilons: Array, deltas: Array) -> float:
    # Where odds are large the curve bends near 0: rates are spaced by their logarithm there.
    edges = np.unique(np.concatenate([[0.0], np.geomspace(1e-12, 1.0, _RATES), np.linspace(0.0, 1.0, _RATES)]))
    middles, error = (edges[1:] + edges[:-1]) / 2, _least_error(epsilons, deltas)
    # In blocks below 128 kB, for which no memory is mapped anew: several times as fast.
    errors = [error(middles[start : start + _BLOCK]) for start in range(0, len(middles), _BLOCK)]
    area = float(np.concatenate(errors) @ np.diff(edges))
    return min(1.0, max(0.5, 1 - area))


def _found(epsilons: Array, deltas: Array, fpr: float) -> float:
    return min(1.0, max(float(fpr), 1 - float(_least_error(epsilons, deltas)(np.array([float(fpr)]))[0])))
