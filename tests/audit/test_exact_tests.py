"""Exact tests of normal noise, against draws of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from locum.accounting import QueryPlan, SGDPlan
from locum.audit.epsilon.exact import Noise, Shift, least_noncentrality
from locum.types import DP

NOISE, RUNS = 3.7, 200


def plan(relation: str = "add-or-remove") -> QueryPlan:
    return QueryPlan(DP(1.0, 1e-5, relation=relation), 1.0, NOISE)  # type: ignore[arg-type]


def allowed(error: float) -> float:
    """Alarms in all runs, three standard errors above what is allowed."""
    return RUNS * error + 3 * math.sqrt(RUNS * error * (1 - error))


@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
def test_shifts_are_over_estimated_as_often_as_said(relation: str, rng: np.random.Generator) -> None:
    absent, alarms, caught, truth = 0.0 if relation == "add-or-remove" else -1.0, 0, 0, plan(relation).epsilon
    for _ in range(RUNS):
        included = rng.random(300) < 0.5
        signal, noise = np.where(included, 1.0, absent), rng.standard_normal(300)
        alarms += Shift("x", signal + NOISE * noise, included).test(plan(relation), 0.1).epsilon > truth
        caught += Shift("x", signal + NOISE / 4 * noise, included).test(plan(relation), 0.1).epsilon > truth
    assert 0.1 * RUNS / 3 < alarms <= allowed(0.1)
    assert caught > 0.95 * RUNS


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_noise_is_under_estimated_as_often_as_said(share: float, rng: np.random.Generator) -> None:
    """The part's own contribution is smaller, so the same noise hides it better."""
    truth = QueryPlan(DP(1.0, 1e-5), 1.0, NOISE / math.sqrt(share)).epsilon
    alarms = 0
    for _ in range(RUNS):
        alarms += Noise("x", NOISE * rng.standard_normal(100), share).test(plan(), 0.1).epsilon > truth
    assert 0.1 * RUNS / 3 < alarms <= allowed(0.1)
    halved = Noise("x", NOISE / 2 * rng.standard_normal(1000), share).test(plan(), 0.001)
    assert halved.epsilon > 1.5 * truth


def test_noise_of_steps_is_priced_by_the_plan(rng: np.random.Generator) -> None:
    steps = SGDPlan(DP(1.0, 1e-5), 0.5, 50, 4, 1.0, 6.0)
    assert Noise("x", 6.0 * rng.standard_normal(500), None).test(steps, 0.01).epsilon < steps.epsilon
    assert Noise("x", 3.0 * rng.standard_normal(500), None).test(steps, 0.01).epsilon > 1.5 * steps.epsilon
    assert Noise("x", np.zeros(10), None).test(steps, 0.01).epsilon == 40.0


def test_the_bound_on_the_noncentrality_is_where_the_statistic_gets_unlikely() -> None:
    for t, free in ((3.0, 8), (12.0, 300), (100.0, 998)):
        low = least_noncentrality(t, free, 0.05)
        assert stats.nct.sf(t, free, low) == pytest.approx(0.05, abs=1e-3)
        assert low < t
    assert least_noncentrality(1.0, 50, 0.05) == 0.0


def test_what_shows_nothing_refutes_nothing() -> None:
    few = Shift("x", np.array([5.0, 0.0, 0.1]), np.array([True, False, False]))
    assert few.test(plan(), 0.05).epsilon == 0.0
    backward = Shift("x", np.array([0.0, 0.1, 5.0, 5.1]), np.array([True, True, False, False]))
    assert backward.test(plan(), 0.05).epsilon == 0.0
    shown = Shift("x", np.arange(40) % 2 + 0.0, np.arange(40) % 2 == 1)
    assert shown.test(plan(), 0.05).epsilon == 40.0
    assert Noise("x", np.zeros(1), 0.02).test(plan(), 0.05).epsilon == 40.0
