"""From guesses about canaries to the largest epsilon that they refute (Steinke, Nasr and Jagielski, 2023).

Each canary joins a run by a fair coin of its own. Whoever sees the run's output guesses some of the coins. Under
(epsilon, delta)-differential privacy a guess is right with a probability of at most `1 / (1 + exp(-epsilon))`, as if
all guesses were answers under randomised response, but for what delta allows. More right guesses than that refute
the epsilon; one run gives as many coins as it has canaries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics import clopper_pearson
from locum.types import Estimate

# No number of guesses that fits into memory refutes more.
_MOST = 40.0
_SCAN = 0.25
# Shares of the canaries that may be guessed at; the first is taken where nothing is better.
_SHARES = (0.1, 0.01, 0.02, 0.05, 0.2, 0.5, 1.0)


def chance_of_guesses(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The chance of so many right guesses or more, at most, if (epsilon, delta)-differential privacy holds.

    Exact where `delta` is 0 and the mechanism is randomised response. `canaries` counts all coins, also those that
    nobody guessed at: delta may be spent on any of them.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ConfigError(
            f"There must be 0 <= correct <= guesses <= canaries; got {correct!r}, {guesses!r} and {canaries!r}."
        )
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise ConfigError(f"`epsilon` must be 0 or more and `delta` in 0..1; got {epsilon!r} and {delta!r}.")
    # Beyond some ten standard deviations the tails hardly grow any more: the rest is bounded by all there is.
    reach = min(correct, 10 + 10 * math.isqrt(guesses))
    # Chances of at least correct, correct - 1, ... right guesses, each right with the largest probability allowed.
    tails = _at_least(correct - np.arange(reach + 1), guesses, 1 / (1 + math.exp(-epsilon)))
    if delta == 0 or correct == 0:
        return float(tails[0])
    slack = float(((tails[1:] - tails[0]) / np.arange(1, reach + 1)).max())
    if reach < correct:
        slack = max(slack, (1 - float(tails[0])) / (reach + 1))
    return min(1.0, float(tails[0]) + 2 * canaries * delta * slack)


def _at_least(k: npt.NDArray[np.int64], n: int, q: float) -> npt.NDArray[np.float64]:
    """Upper tails of a binomial distribution, inclusive."""
    from scipy.special import betainc

    # The beta function has no value at 0, where the tail is everything.
    some = np.maximum(k, 1)
    return np.where(k == 0, 1.0, betainc(some, n - some + 1, q))


def refuted_epsilon(correct: int, guesses: int, canaries: int, delta: float, error: float = 0.05) -> float:
    """The largest epsilon that is refuted at `delta`, with all below it; wrong with a chance of at most `error`.

    Without delta this is the one-sided Clopper-Pearson bound on the share of right guesses, as log odds. 0 refutes
    nothing. How many guesses are made must not depend on which of them are right.

    >>> round(refuted_epsilon(75, 100, 1000, 1e-4), 3)
    0.673
    """
    if not 0 < error < 1:
        raise ConfigError(f"`error` must lie between 0 and 1; got {error!r}. 0.05 is usual.")

    def refuted(epsilon: float) -> bool:
        return chance_of_guesses(correct, guesses, canaries, epsilon, delta) < error

    low = 0.0
    if not refuted(low):
        return low
    # The first epsilon that stands is looked for from below: then the error holds even if the chance has a dip.
    while refuted(low + _SCAN):
        low += _SCAN
        if low >= _MOST:
            return low
    high = low + _SCAN
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Guesses:
    """How many guesses are made, fixed before the run: "in" for the highest scores, "out" for the lowest."""

    high: int
    low: int

    def __post_init__(self) -> None:
        if self.high < 0 or self.low < 0 or self.high + self.low < 1:
            raise ConfigError(f"There must be one guess or more; got {self.high!r} high and {self.low!r} low.")

    def correct(self, scores: npt.ArrayLike, included: npt.ArrayLike) -> int:
        """How many are right. Equal scores are told apart by their place, which must be no hint."""
        values, truth = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
        if values.ndim != 1 or values.shape != truth.shape or np.isnan(values).any():
            raise DataError("Each canary needs one score, which is a number, and one coin.")
        if self.high + self.low > len(values):
            raise ConfigError(f"{self.high + self.low} guesses need as many canaries; there are {len(values)}.")
        order = np.argsort(values, kind="stable")
        right = truth[order[len(values) - self.high :]].sum() + (~truth[order[: self.low]]).sum()
        return int(right)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """An epsilon that is refuted at `delta`: the truth is larger, but for a chance of `error`.

    A bound of 0, or one far below a promise, proves nothing: canaries are one attack, and there may be better ones.
    """

    epsilon: float
    delta: float
    error: float
    canaries: int
    guesses: int
    correct: int

    @classmethod
    def from_scores(
        cls, scores: npt.ArrayLike, included: npt.ArrayLike, guesses: Guesses, delta: float, error: float = 0.05
    ) -> Self:
        """The bound from scores of canaries, larger where a canary looks more like having been included.

        Each of `included` must have been a fair coin of its own, and `guesses` be fixed without a look at them.

        >>> rng = np.random.default_rng(0)
        >>> coins = rng.random(1000) < 0.5
        >>> answers = np.where(rng.random(1000) < 0.75, coins, ~coins)  # randomised response with epsilon = log 3
        >>> bool(0.7 < LowerBound.from_scores(answers, coins, Guesses(500, 500), delta=0.0).epsilon < np.log(3))
        True
        """
        total, right = guesses.high + guesses.low, guesses.correct(scores, included)
        canaries = len(np.asarray(included))
        return cls(refuted_epsilon(right, total, canaries, delta, error), delta, error, canaries, total, right)

    @property
    def accuracy(self) -> Estimate:
        """The share of right guesses, with its exact interval."""
        return clopper_pearson(self.correct, self.guesses)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "confidence": 1 - self.error,
            "canaries": self.canaries,
            "guesses": self.guesses,
            "correct": self.correct,
            "accuracy": self.accuracy.to_dict(),
        }


def plan_guesses(
    scores: npt.ArrayLike, included: npt.ArrayLike, canaries: int, delta: float, error: float = 0.05
) -> Guesses:
    """How many guesses promise the best bound for a run with so many `canaries`, by a rehearsal on other coins.

    Few guesses are surer, many count more; of canaries that are seldom drawn only the presence shows. The rehearsal's
    scores must not come from the run that is judged: then the choice costs nothing of the error.
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
    best, found = Guesses(1, 0), -1.0
    for share in _SHARES:
        for sides in (2, 1):
            k, here = max(1, round(share * canaries / 2)), max(1, round(share * len(values) / 2))
            low = k if sides == 2 and 2 * k <= canaries else 0
            right = Guesses(here, here if low else 0).correct(values, truth) / (here * (2 if low else 1))
            bound = refuted_epsilon(math.floor(right * (k + low)), k + low, canaries, delta, error)
            if bound > found:
                best, found = Guesses(k, low), bound
    return best
