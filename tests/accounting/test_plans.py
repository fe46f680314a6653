"""Plans come from public numbers alone, cost what they say, and say it before any record is read."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from locum.accounting import (
    Gaussian,
    Laplace,
    PoissonGaussian,
    SGDPlan,
    epsilon_of,
    events_from_json,
    plan_query,
    plan_sgd,
)
from locum.accounting.plans import _curve
from locum.errors import ConfigError, PrivacyError
from locum.types import DP

BUDGET = DP(1.0, 1e-5, n_public=2000)


@pytest.fixture(scope="module")
def plan() -> SGDPlan:
    return plan_sgd(BUDGET, batch=256, epochs=10)


def test_steps_and_rate_by_hand(plan: SGDPlan) -> None:
    assert (plan.rate, plan.batch, plan.clip) == (0.128, 256, 1.0)
    assert plan.steps == math.ceil(10 * 2000 / 256) == 79


def test_it_costs_what_was_asked_for(plan: SGDPlan) -> None:
    assert 0.995 < plan.epsilon <= 1.0
    assert plan.epsilon == epsilon_of(plan.events, 1e-5) == plan.epsilon_after(79)


@pytest.mark.parametrize(
    "change", [{"noise_multiplier": 1.1}, {"noise_multiplier": 0.9}, {"rate": 1.1}, {"rate": 0.9}]
)
def test_a_tenth_more_or_less_of_noise_or_rate_is_seen(plan: SGDPlan, change: dict[str, float]) -> None:
    """Fails if somebody adds noise other than planned, or draws larger batches, and the claim does not move."""
    (name, factor), *_ = change.items()
    other = replace(plan, **{name: getattr(plan, name) * factor})
    assert abs(other.epsilon / plan.epsilon - 1) > 0.05
    # The ledger refuses it: it costs more than the plan was made for.
    assert (other.epsilon > BUDGET.epsilon) == (factor < 1 if name == "noise_multiplier" else factor > 1)


def test_epsilon_grows_step_by_step(plan: SGDPlan) -> None:
    grown = [plan.epsilon_after(step) for step in (0, 1, 10, 40, 79, 500)]
    assert grown[0] == 0.0
    assert grown[1:5] == sorted(grown[1:5])
    assert grown[4] == grown[5] == plan.epsilon


def test_extra_events_share_the_budget(plan: SGDPlan) -> None:
    more = plan_sgd(BUDGET, batch=256, epochs=10, extra=(Laplace(20.0), Gaussian(30.0)))
    assert more.noise_multiplier > plan.noise_multiplier
    assert 0.995 < more.epsilon <= 1.0
    assert more.events == (PoissonGaussian(0.128, more.noise_multiplier, 79), Laplace(20.0), Gaussian(30.0))
    assert more.epsilon_after(0) == pytest.approx(epsilon_of([Laplace(20.0), Gaussian(30.0)], 1e-5))


def test_one_sum() -> None:
    plan = plan_query(BUDGET, sensitivity=2.5)
    assert plan.events == (Gaussian(plan.noise_multiplier),)
    assert plan.sensitivity == 2.5
    assert 0.995 < plan.epsilon <= 1.0
    assert plan_query(replace(BUDGET, relation="replace-one")).noise_multiplier == pytest.approx(
        2 * plan.noise_multiplier, rel=2e-3
    )


@settings(max_examples=6)
@given(st.sampled_from([0.5, 2.0]), st.sampled_from([16, 100, 5000]), st.sampled_from([0.5, 3, 7.7]))
def test_plans_keep_their_budget(epsilon: float, batch: int, epochs: float) -> None:
    plan = plan_sgd(DP(epsilon, 1e-5, n_public=1000), batch=batch, epochs=epochs)
    assert plan.epsilon <= epsilon < replace(plan, noise_multiplier=plan.noise_multiplier / 1.002).epsilon
    assert plan.rate * 1000 == plan.batch == min(batch, 1000)
    assert (plan.steps - 1) * plan.rate < epochs <= plan.steps * plan.rate * (1 + 1e-12)


def test_whole_numbers_of_steps_are_not_rounded_up() -> None:
    # 3 / (1 / 10) is a little over 30 in floating point on some ways to write it.
    assert [plan_sgd(DP(0.5, 1e-4, n_public=70), batch=7, epochs=e).steps for e in (0.1, 0.3, 0.7)] == [1, 3, 7]


def test_as_json(plan: SGDPlan) -> None:
    data = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert events_from_json(data["events"]) == plan.events
    assert data["epsilon_by_step"][-1] == [79, plan.epsilon]
    assert [delta for delta, _ in data["curve"]] == [10.0**-k for k in range(3, 10)]
    assert dict(map(tuple, data["curve"]))[1e-5] == plan.epsilon
    assert json.loads(json.dumps(plan_query(BUDGET).to_dict()))["kind"] == "query"


def test_the_curve_leaves_out_what_cannot_be_vouched_for() -> None:
    many = PoissonGaussian(1.0, 50_000.0, 600_000)
    assert min(delta for delta, _ in _curve([many], BUDGET)) == 1e-8


def test_the_size_must_be_public() -> None:
    with pytest.raises(PrivacyError, match="--n-public"):
        plan_sgd(DP(1.0, 1e-5), batch=64, epochs=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch", 0), ("batch", 1.5), ("batch", math.nan), ("epochs", 0), ("epochs", math.inf), ("clip", -1)],
)
def test_wrong_settings_are_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        plan_sgd(BUDGET, **{"batch": 64, "epochs": 1, **{name: value}})


def test_a_wrong_sensitivity_is_named() -> None:
    with pytest.raises(ConfigError, match="sensitivity"):
        plan_query(BUDGET, sensitivity=0)


def test_steps_may_be_counted_instead_of_passes() -> None:
    plan = plan_sgd(BUDGET, batch=256, steps=79)
    assert plan == plan_sgd(BUDGET, batch=256, epochs=10)
    assert plan_sgd(BUDGET, batch=256, steps=5, epochs=10).steps == 5
    for steps in (0, -1, 2.5):
        with pytest.raises(ConfigError, match="steps"):
            plan_sgd(BUDGET, batch=256, steps=steps)
