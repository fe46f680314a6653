"""What events cost, always rounded to the unfavorable side.

Sums with normal noise that nobody is sampled for have a closed form (Balle and Wang, 2018), which needs numpy alone;
everything else is composed by the privacy-loss distributions of dp-accounting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting.events import Event, Gaussian, Laplace, PoissonGaussian
from locum.errors import ConfigError
from locum.types import GRID_GAP, Relation

# Composition by Fourier transforms was seen to err by up to 1e-16 of probability per step (see test_cost.py): ten
# times that is given away, so that the answer stays an upper bound.
_ROUNDING = 1e-15
# By how much a closed form is rounded up, relative to itself: far more than double precision errs.
_SLACK = 1e-9
# Places of one distribution: an FFT of so many takes some 400 MB and a second.
_MOST_PLACES = 4_000_000
# Places of all distributions that one answer takes: some seconds.
_MOST_WORK = 50_000_000
# Whole orders, at which divergences have simple formulas.
_ORDERS = np.array([*range(2, 65), *range(72, 257, 8), 512.0, 1024.0])


class TooLargeError(ConfigError):
    """Composing these events would take more memory or time than an answer is worth."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__(
            f"The cost of these events cannot be computed: {len(events)} entries with {_steps(events)} steps in all "
            "take more memory or time than is allowed. Take fewer steps, more noise, or fewer different settings."
        )


def epsilon_of(events: Sequence[Event], delta: float, relation: Relation = "add-or-remove") -> float:
    """The epsilon that these events cost together at `delta`: an upper bound, tight to about a thousandth.

    Events may have been done in any order, but their settings must have been fixed before the first: what is chosen
    after a look at an earlier result is composed by the ledger, not here.

    Parameters
    ----------
    events
        What was done to the data.
    delta
        Between `least_delta(events)` and 1.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).

    Returns
    -------
    float
        Epsilon, 0 or more; no events cost 0.

    Raises
    ------
    ConfigError
        If `delta` is out of range, or composing the events would take too much memory or time.

    Examples
    --------
    >>> from locum.accounting import Gaussian, epsilon_of
    >>> round(epsilon_of([Gaussian(4.0)], delta=1e-5), 3)
    0.926
    """
    if not events:
        return 0.0
    least = least_delta(events)
    if not least <= delta < 1:
        raise ConfigError(
            f"`delta` must lie between {least:.1g}, below which {_steps(events)} steps cannot be told from rounding "
            f"errors, and 1; got {delta!r}."
        )
    return _epsilon(tuple(events), float(delta), relation)


def delta_of(events: Sequence[Event], epsilon: float, relation: Relation = "add-or-remove") -> float:
    """The delta that these events cost together at `epsilon`: an upper bound.

    Parameters
    ----------
    events
        What was done to the data, with settings that were fixed before the first of them.
    epsilon
        0 or more.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).

    Returns
    -------
    float
        Delta in 0..1; no events cost 0. An amount for rounding errors is added, half of `least_delta(events)`.

    Examples
    --------
    >>> from locum.accounting import Gaussian, delta_of
    >>> f"{delta_of([Gaussian(4.0)], epsilon=1.0):.1e}"
    '2.9e-06'
    """
    if not 0 <= epsilon < math.inf:
        raise ConfigError(f"`epsilon` must be 0 or more and finite; got {epsilon!r}.")
    if not events:
        return 0.0
    separation, gap = _separation(events, relation), _grid_gap(events)
    without_grid = max(0.0, float(epsilon) - gap)
    if separation is not None:
        found = math.exp(_log_delta(separation, without_grid)) * (1 + _SLACK)
    else:
        found = float(_distribution(tuple(events), relation).get_delta_for_epsilon(without_grid))
    # Below the cost of the grid the rest of it goes into delta: exp(x) - 1 < 2 x.
    missing = 2 * max(0.0, gap - epsilon)
    return min(1.0, max(0.0, found) * (1 + 1e-12 * _sums(events)) + missing + least_delta(events) / 2)


def epsilon_curve(
    events: Sequence[Event], deltas: Sequence[float], relation: Relation = "add-or-remove"
) -> list[tuple[float, float]]:
    """Pairs of delta and epsilon: one guarantee has many, and all of them hold at once."""
    return [(float(delta), epsilon_of(events, delta, relation)) for delta in deltas]


def epsilon_of_any(
    lists: Sequence[Sequence[Event]], k: int, delta: float, relation: Relation = "add-or-remove"
) -> float:
    """The epsilon at `delta` of any `k` of the lists together: an upper bound, by Renyi divergences.

    These add up under composition: at each order no choice of `k` lists has more than the `k` largest have. The
    result is about a tenth above what `epsilon_of` gives where lists are alike; infinite where a divergence is not
    known.

    Parameters
    ----------
    lists
        Events of each site or release.
    k
        How many of the lists are combined, from 1 to all of them.
    delta
        Between 0 and 1.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).

    Returns
    -------
    float
        Epsilon, 0 or more.

    Examples
    --------
    >>> from locum.accounting import Gaussian, epsilon_of_any
    >>> strong, weak = [Gaussian(4.0)], [Gaussian(40.0)]
    >>> epsilon_of_any([strong, weak, weak], k=1, delta=1e-5) == epsilon_of_any([strong], k=1, delta=1e-5)
    True
    """
    if not 1 <= k <= len(lists) or not 0 < delta < 1:
        raise ConfigError(f"`k` must lie in 1..{len(lists)} and `delta` between 0 and 1; got {k!r} and {delta!r}.")
    curves = np.sort([sum((_renyi(event, relation) for event in events), 0 * _ORDERS) for events in lists], axis=0)
    total = curves[-k:].sum(axis=0)
    found = total + np.log1p(-1 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    # Last digits are given away, so that the answer stays an upper bound.
    return max(0.0, float(found.min())) * (1 + 1e-9) + k * max(_grid_gap(events) for events in lists)


def _renyi(event: Event, relation: Relation) -> npt.NDArray[np.float64]:
    """Renyi divergence of an event at each of `_ORDERS`."""
    noise = event.noise_multiplier / (1 if relation == "add-or-remove" else 2)
    if isinstance(event, Laplace):
        # As in `_single`: the worst of all mechanisms with this epsilon, which answers yes or no.
        high, low = -np.logaddexp(0, -1 / noise), -np.logaddexp(0, 1 / noise)
        terms = _ORDERS * high + (1 - _ORDERS) * low, _ORDERS * low + (1 - _ORDERS) * high
        out: npt.NDArray[np.float64] = np.logaddexp(*terms) / (_ORDERS - 1)
        return out
    rate, steps = (event.rate, event.steps) if isinstance(event, PoissonGaussian) else (1.0, 1)
    if rate == 1:
        return steps * _ORDERS / (2 * noise**2)
    if relation != "add-or-remove":
        return np.full(len(_ORDERS), np.inf)
    return steps * np.array([_renyi_sampled(rate, noise, int(order)) for order in _ORDERS])


@lru_cache(maxsize=65536)
def _renyi_sampled(rate: float, noise: float, order: int) -> float:
    """That of one step at a whole order: the binomial sum of Mironov, Talwar and Zhang (2019)."""
    from scipy.special import gammaln, logsumexp

    i = np.arange(order + 1)
    choose = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    weight = (order - i) * math.log1p(-rate) + i * math.log(rate)
    return float(logsumexp(choose + weight + i * (i - 1) / (2 * noise**2))) / (order - 1)


def least_delta(events: Sequence[Event]) -> float:
    """The smallest delta for which an answer can be vouched for in double precision.

    Parameters
    ----------
    events
        What was done to the data.

    Returns
    -------
    float
        2e-15 per step and per sum.

    Examples
    --------
    >>> from locum.accounting import PoissonGaussian, least_delta
    >>> least_delta([PoissonGaussian(rate=0.1, noise_multiplier=1.0, steps=1000)])
    2e-12
    """
    further = sum(event.sums - 1 for event in events if isinstance(event, Gaussian))
    return 2 * _ROUNDING * (_steps(events) + further)


def _steps(events: Sequence[Event]) -> int:
    return sum(event.steps if isinstance(event, PoissonGaussian) else 1 for event in events)


@lru_cache(maxsize=4096)
def _epsilon(events: tuple[Event, ...], delta: float, relation: Relation) -> float:
    # The grid multiplies delta too, by less than this for each sum.
    delta = delta * (1 - 1e-12 * _sums(events)) - least_delta(events) / 2
    separation = _separation(events, relation)
    if separation is not None:
        return _gaussian_epsilon(separation, delta) + _grid_gap(events)
    return float(_distribution(events, relation).get_epsilon_for_delta(delta)) + _grid_gap(events)


def _grid_gap(events: Sequence[Event]) -> float:
    """What noise on a grid costs more than normal noise without one (docs/explain/proofs.md)."""
    return GRID_GAP * _sums(events)


def _sums(events: Sequence[Event]) -> int:
    return sum(event.sums for event in events if isinstance(event, Gaussian))


def _separation(events: Sequence[Event], relation: Relation) -> float | None:
    """How many standard deviations apart the two worlds are, if all events are plain sums with normal noise.

    Such sums are together one sum whose precision is the sum of theirs.
    """
    squares = 0.0
    for event in events:
        if isinstance(event, Laplace) or (isinstance(event, PoissonGaussian) and event.rate < 1):
            return None
        steps = 1 if isinstance(event, Gaussian) else event.steps
        squares += steps / event.noise_multiplier**2
    return math.sqrt(squares) * (1 if relation == "add-or-remove" else 2)


def _gaussian_epsilon(separation: float, delta: float) -> float:
    """The epsilon of a Gaussian mechanism at `delta`, by bisection on the exact formula; rounded up."""
    wanted = math.log(delta)
    if _log_delta(separation, 0.0) <= wanted:
        return 0.0
    low, high = 0.0, 1.0
    while _log_delta(separation, high) > wanted:
        low, high = high, 2 * high
    while high - low > _SLACK * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_delta(separation, middle) > wanted else (low, middle)
    return high * (1 + _SLACK)


def _log_delta(separation: float, epsilon: float) -> float:
    """Logarithm of Phi(s/2 - e/s) - exp(e) Phi(-s/2 - e/s), for N(0, 1) against N(s, 1)."""
    near = _log_phi(separation / 2 - epsilon / separation)
    far = epsilon + _log_phi(-separation / 2 - epsilon / separation)
    return near + math.log1p(-math.exp(far - near)) if far < near else -math.inf


def _log_phi(x: float) -> float:
    """Logarithm of the normal distribution function; by its asymptotic series where the function underflows."""
    if x > -30:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2)))
    tail = 1 / x**2
    series = 1 - tail * (1 - tail * (3 - tail * (15 - tail * 105)))
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


# Few, because each may hold millions of numbers.
@lru_cache(maxsize=8)
def _distribution(events: tuple[Event, ...], relation: Relation) -> Any:
    grid, out, width = _grid(events), None, 0
    counts: dict[Event, int] = {}
    for event in events:
        one_step = replace(event, steps=1) if isinstance(event, PoissonGaussian) else event
        counts[one_step] = counts.get(one_step, 0) + _steps([event])
    # Counted before anything is made: a few bytes can ask for any amount. Making a place takes as long as composing
    # a hundred, and the smallest distribution as long as 5000 places.
    work = sum(100 * (5000 + _places(event, grid)) for event in counts)
    for event, steps in counts.items():
        if work > _MOST_WORK:
            raise TooLargeError(events)
        one = _single(event, relation, grid)
        width += max(_width(pmf, steps) for pmf in _sides(one))
        work += width
        if width > _MOST_PLACES:
            raise TooLargeError(events)
        one = _dense(one).self_compose(steps) if steps > 1 else one
        out = one if out is None else out.compose(one)
        # Tails were cut off.
        width = max(_width(pmf, 1) for pmf in _sides(out))
    return out


def _sides(distribution: Any) -> tuple[Any, ...]:
    """The distributions for adding and for removing a unit, or the one for both."""
    remove, add = distribution._pmf_remove, distribution._pmf_add
    return (remove,) if add is None or add is remove else (remove, add)


def _dense(distribution: Any) -> Any:
    """The same distribution, as arrays: dictionaries are composed by their size to the power of the steps."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.PrivacyLossDistribution(*(pmf.to_dense_pmf() for pmf in _sides(distribution)))


def _width(pmf: Any, steps: int) -> int:
    """How many places the distribution of `steps` steps has, each distributed like this, as `self_compose` finds it.

    That is where Chernoff's bound leaves 1e-15 at both ends, at the orders k / size, with k from -20 to 20.
    """
    losses = getattr(pmf, "_loss_probs", None)
    size: int = pmf.size if losses is None else max(losses) - min(losses) + 1
    if steps == 1 or size * steps <= _MOST_PLACES // 100:
        return size * steps
    probabilities = pmf.to_dense_pmf()._probs
    ends = []
    for sign in (1, -1):
        base = np.exp(sign * np.arange(size) / size)
        power, bounds = np.ones(size), [float(sign > 0) * size * steps]
        for k in range(1, 21):
            power *= base
            log_mgf = math.log(max(float(probabilities @ power), 1e-300))
            bounds.append((steps * log_mgf + math.log(2 / 1e-15)) * size / (sign * k))
        ends.append(min(bounds) if sign > 0 else max(bounds))
    return max(0, math.ceil(ends[0]) - math.floor(ends[1])) + 1


def _single(event: Event, relation: Relation, grid: float) -> Any:
    """The privacy-loss distribution of one step."""
    if isinstance(event, Laplace):
        from dp_accounting.pld import common, privacy_loss_distribution as pld

        # The worst of all mechanisms with this epsilon: geometric noise on a count comes up to it, Laplace noise does
        # not. Replacing is removing and adding: twice the distance.
        pure = (1 if relation == "add-or-remove" else 2) / event.noise_multiplier
        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(pure), grid)
    rate = event.rate if isinstance(event, PoissonGaussian) else 1.0
    return _gaussian(rate, event.noise_multiplier, relation, grid)


@lru_cache(maxsize=8)
def _gaussian(rate: float, noise: float, relation: Relation, grid: float) -> Any:
    import dp_accounting
    from dp_accounting.pld import privacy_loss_distribution as pld

    near = dp_accounting.NeighboringRelation
    theirs = near.ADD_OR_REMOVE_ONE if relation == "add-or-remove" else near.REPLACE_ONE
    return pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid, neighboring_relation=theirs
    )


def _grid(events: tuple[Event, ...]) -> float:
    """How finely privacy loss is cut: all events that are composed share one grid.

    A thirtieth of a typical step's loss: cutting widens the sum by about a thousandth of itself then, however many
    steps there are. Never so fine that one step's distribution has more than some 200,000 places. A power of two, so
    that places are exact, and near settings share a grid.
    """
    squares, longest = 0.0, 0.0
    for event in events:
        noise, rate, steps = event.noise_multiplier, 1.0, 1
        if isinstance(event, PoissonGaussian):
            rate, steps = event.rate, event.steps
        typical = min(1 / noise, rate * math.sqrt(math.expm1(min(1 / noise**2, 700.0))))
        squares += steps * typical**2
        longest = max(longest, _reach(event))
    wanted = min(1e-3, math.sqrt(squares / _steps(events)) / 30)
    # Much finer, and rounding errors on each place add up to a mass above 1.
    return float(2.0 ** math.floor(math.log2(max(wanted, longest / 1e5, 1e-9))))


def _reach(event: Event) -> float:
    """The largest loss of one step that matters: where the normal density has fallen to e**-50."""
    noise = event.noise_multiplier
    if isinstance(event, Laplace):
        return 1 / noise
    reach = (0.5 + 10 * noise) / noise**2
    rate = event.rate if isinstance(event, PoissonGaussian) else 1.0
    return math.log1p(rate * math.expm1(reach)) if reach < 700 else reach


def _places(event: Event, grid: float) -> int:
    """About how many places one step's distribution has; that of Laplace noise has two, wherever they lie."""
    return 2 if isinstance(event, Laplace) else math.ceil(_reach(event) / grid)
