"""Tests of normal noise: far sharper than guesses about canaries, but only if the noise is normal.

Under a Gaussian mechanism what an attacker sees of a canary is normal, so two exact tests exist. The first compares
the distance between included and other canaries with their scatter: a noncentral t distribution. The second compares
the scatter of noise alone with its planned size: a chi-square distribution; it takes for granted that a unit
contributes as much as it may. Each gives a lower bound on epsilon, as Steinke's does, at its own share of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import Gaussian, QueryPlan, SGDPlan, epsilon_of

Floats = npt.NDArray[np.float64]

# As for guesses, nothing larger is told.
_MOST = 40.0
# With less noise than this share of a contribution epsilon is above 40.
_LEAST_NOISE = 0.1
# Larger statistics are cut here: the noncentral t distribution is computed well up to this, and all mean the same.
_LARGEST_T = 100.0


@dataclass(frozen=True, slots=True)
class ExactTest:
    """What one test of normal noise refutes.

    Parameters
    ----------
    name
        What was tested.
    epsilon
        The refuted epsilon.
    error
        Probability that it is wrong, at most.
    """

    name: str
    epsilon: float
    error: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"name": self.name, "epsilon": self.epsilon, "error": self.error}


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """One number per canary: at most 1 if it was included (else 0, or -1 if units are replaced), plus noise.

    The noise is independent and of one size, which need not be known.
    """

    name: str
    values: Floats
    included: npt.NDArray[np.bool_]

    def test(self, plan: SGDPlan | QueryPlan, error: float) -> ExactTest:
        """Refute by the distance of included canaries from others, in standard deviations."""
        ones, others = self.values[self.included], self.values[~self.included]
        if min(len(ones), len(others)) < 2:
            return ExactTest(self.name, 0.0, error)
        free, scale = len(self.values) - 2, math.sqrt(1 / len(ones) + 1 / len(others))
        scatter = float(np.square(ones - ones.mean()).sum() + np.square(others - others.mean()).sum()) / free
        distance = float(ones.mean() - others.mean())
        if distance <= 0:
            return ExactTest(self.name, 0.0, error)
        t = distance / max(math.sqrt(scatter) * scale, distance / _LARGEST_T)
        # A unit that is replaced moves by twice its contribution; the events of a plan count single ones.
        reach = 1 if plan.privacy.relation == "add-or-remove" else 2
        return ExactTest(self.name, _of_gaussian(plan, least_noncentrality(t, free, error) * scale / reach), error)


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Numbers that are noise alone, relative to the longest contribution of a unit.

    `share` is the part of the squared contribution that gets this noise: more than 1 if a unit contributes to several
    draws. None: the noise of the plan's steps.
    """

    name: str
    values: Floats
    share: float | None

    def test(self, plan: SGDPlan | QueryPlan, error: float) -> ExactTest:
        """Refute by noise that is too small."""
        if self.share is not None:
            return ExactTest(self.name, _of_gaussian(plan, math.sqrt(self.precision(error))), error)
        most = self._most(error)
        epsilon = _MOST if most < _LEAST_NOISE else min(_MOST, replace(plan, noise_multiplier=most).epsilon)
        return ExactTest(self.name, epsilon, error)

    def precision(self, error: float) -> float:
        """Lower confidence bound on the squared contribution over the variance of the noise."""
        return (self.share or 0.0) / max(self._most(error), 1e-9) ** 2

    def _most(self, error: float) -> float:
        """Upper confidence bound on the standard deviation."""
        from scipy.stats import chi2

        return math.sqrt(float(np.square(self.values).sum()) / float(chi2.ppf(error, len(self.values))))


@dataclass(frozen=True, slots=True, eq=False)
class Noises:
    """The noise of several draws that one plan pays for: each has some to spare, all together have none."""

    name: str
    parts: tuple[Noise, ...]

    def test(self, plan: SGDPlan | QueryPlan, error: float) -> ExactTest:
        """Refute by draws that are too precise together."""
        precision = math.fsum(part.precision(error / len(self.parts)) for part in self.parts)
        return ExactTest(self.name, _of_gaussian(plan, math.sqrt(precision)), error)


Evidence = Shift | Noise | Noises


def least_noncentrality(t: float, free: int, error: float) -> float:
    """Lower confidence bound on the noncentrality of a t statistic with so many degrees of freedom."""
    from scipy.stats import nct

    if float(nct.sf(t, free, 0.0)) >= error:
        return 0.0
    return _largest(lambda center: float(nct.sf(t, free, center)) < error, t)


def _largest(holds: Callable[[float], bool], high: float) -> float:
    """The largest number up to `high` that holds, along with 0 and all between."""
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _of_gaussian(plan: SGDPlan | QueryPlan, separation: float) -> float:
    """Epsilon of one Gaussian mechanism whose contribution is `separation` standard deviations long."""
    if separation > 1 / _LEAST_NOISE:
        return _MOST
    if separation < 1e-3:
        return 0.0
    return min(_MOST, epsilon_of((Gaussian(1 / separation),), plan.privacy.delta, plan.privacy.relation))
