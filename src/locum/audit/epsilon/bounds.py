"""From guesses about canaries to the largest epsilon that they refute (Steinke, Nasr and Jagielski, 2023).

Each canary is included in a run with probability one half, independently. The attacker sees the output and guesses,
for some canaries, whether they were included. Under (epsilon, delta)-differential privacy a guess is right with a
probability of at most `1 / (1 + exp(-epsilon))`, as under randomized response, apart from what delta allows. More
right guesses than that refute the epsilon. One run gives as many trials as it has canaries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.audit.epsilon.exact import ExactTest
from locum.errors import ConfigError, DataError
from locum.metrics import clopper_pearson
from locum.types import Estimate

# The largest epsilon that any practical number of guesses can refute.
_MOST = 40.0
_SCAN = 0.25
# Shares of the canaries to guess; the first is used if no other is better.
_SHARES = (0.1, 0.01, 0.02, 0.05, 0.2, 0.5, 1.0)


def chance_of_guesses(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of `correct` or more right guesses under (epsilon, delta)-DP.

    Exact if `delta` is 0 and the mechanism is randomized response. `canaries` counts all canaries, also those without
    a guess: delta may be spent on any of them.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ConfigError(
            f"0 <= correct <= guesses <= canaries must hold; got {correct!r}, {guesses!r} and {canaries!r}."
        )
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise ConfigError(f"`epsilon` must be 0 or more and `delta` in 0..1; got {epsilon!r} and {delta!r}.")
    # Beyond ten standard deviations the tails hardly grow: the rest is bounded by 1.
    reach = min(correct, 10 + 10 * math.isqrt(guesses))
    # Probabilities of at least correct, correct - 1, ... right guesses, each as likely to be right as is allowed.
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

    # The beta function is undefined at 0, where the tail is 1.
    some = np.maximum(k, 1)
    return np.where(k == 0, 1.0, betainc(some, n - some + 1, q))


def refuted_epsilon(correct: int, guesses: int, canaries: int, delta: float, error: float = 0.05) -> float:
    """The largest epsilon that is refuted, along with all below.

    With no delta this is the one-sided Clopper-Pearson bound on the share of right guesses, as log odds. The number
    of guesses must not depend on which of them are right.

    Parameters
    ----------
    correct
        How many guesses are right.
    guesses
        How many guesses were made.
    canaries
        How many canaries there are, with those without a guess.
    delta
        The delta of the guarantee, 0 to 1.
    error
        Probability that the bound is wrong, at most.

    Returns
    -------
    float
        0 refutes nothing; at most about 40.

    Examples
    --------
    >>> from locum.audit import refuted_epsilon
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
    # Search the first epsilon that is not refuted from below: the error then holds even if the bound is not monotone.
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
    """How many guesses are made, fixed before the run.

    Parameters
    ----------
    high
        How many of the highest scores are guessed to be included.
    low
        How many of the lowest scores are guessed not to be included.

    Examples
    --------
    >>> from locum.audit import Guesses
    >>> Guesses(high=2, low=1).correct([0.9, 0.8, 0.1], [True, False, False])
    2
    """

    high: int
    low: int

    def __post_init__(self) -> None:
        if self.high < 0 or self.low < 0 or self.high + self.low < 1:
            raise ConfigError(f"There must be at least one guess; got {self.high!r} high and {self.low!r} low.")

    def correct(self, scores: npt.ArrayLike, included: npt.ArrayLike) -> int:
        """How many are right. Ties are broken by position, which must not reveal anything."""
        values, truth = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=bool)
        if values.ndim != 1 or values.shape != truth.shape or np.isnan(values).any():
            raise DataError("Each canary needs one score, not NaN, and one entry in `included`.")
        if self.high + self.low > len(values):
            raise ConfigError(f"{self.high + self.low} guesses need as many canaries; there are {len(values)}.")
        order = np.argsort(values, kind="stable")
        right = truth[order[len(values) - self.high :]].sum() + (~truth[order[: self.low]]).sum()
        return int(right)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """An epsilon that is refuted at one delta: the true one is larger, except with a small probability.

    A bound of 0, or one far below the claim, proves nothing: canaries are one attack, and there may be better ones.
    `LowerBound.from_scores` computes it.

    Parameters
    ----------
    epsilon
        The refuted epsilon.
    delta
        The delta at which it is refuted.
    error
        Probability that the bound is wrong, at most.
    canaries
        How many canaries there were.
    guesses
        How many guesses were made.
    correct
        How many of them were right.
    exact
        Tests that take the noise to be normal, if any. `epsilon` is the largest that guesses or these tests refute,
        and `error` is shared between them.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.audit import Guesses, LowerBound
    >>> included = np.random.default_rng(0).random(100) < 0.5
    >>> bound = LowerBound.from_scores(included, included, Guesses(40, 40), delta=0.0)  # every guess is right
    >>> round(bound.epsilon, 3), round(float(np.log(0.05 ** (1 / 80) / (1 - 0.05 ** (1 / 80)))), 3)
    (3.266, 3.266)
    """

    epsilon: float
    delta: float
    error: float
    canaries: int
    guesses: int
    correct: int
    exact: tuple[ExactTest, ...] = ()

    def with_tests(self, tests: tuple[ExactTest, ...]) -> Self:
        """The bound of guesses and tests together; the errors add up."""
        epsilon = max(self.epsilon, *(test.epsilon for test in tests)) if tests else self.epsilon
        return replace(self, epsilon=epsilon, error=self.error + sum(test.error for test in tests), exact=tests)

    @classmethod
    def from_scores(
        cls, scores: npt.ArrayLike, included: npt.ArrayLike, guesses: Guesses, delta: float, error: float = 0.05
    ) -> Self:
        """The bound from scores of canaries, larger where a canary looks more like having been included.

        The entries of `included` must be independent fair coin flips, and `guesses` must be fixed without them.

        >>> rng = np.random.default_rng(0)
        >>> included = rng.random(1000) < 0.5
        >>> answers = np.where(rng.random(1000) < 0.75, included, ~included)  # randomized response, epsilon = log 3
        >>> bool(0.7 < LowerBound.from_scores(answers, included, Guesses(500, 500), delta=0.0).epsilon < np.log(3))
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
            "exact": [test.to_dict() for test in self.exact],
        }


def plan_guesses(
    scores: npt.ArrayLike, included: npt.ArrayLike, canaries: int, delta: float, error: float = 0.05
) -> Guesses:
    """The number of guesses with the best expected bound for a run with `canaries`, from a simulated run.

    Few guesses are more certain, many count more; of canaries that are rarely sampled only the presence shows. The
    scores must not come from the run that is judged: then the choice needs no correction.
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
