"""No attack beats its limit, and the limit is what the plan says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from locum.accounting import (
    Gaussian,
    Laplace,
    PoissonGaussian,
    attack_limit,
    epsilon_of,
    found_limit,
    pair_limits,
    plan_query,
)
from locum.errors import ConfigError
from locum.types import DP


@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 0.566), (2.0, 0.624), (3.0, 0.677)])
def test_the_limit_of_a_calibrated_query(epsilon: float, limit: float) -> None:
    assert attack_limit(plan_query(DP(epsilon, 1e-6)).events) == pytest.approx(limit, abs=6e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 50), st.sampled_from(["add-or-remove", "replace-one"]), st.floats(1e-4, 0.5))
def test_normal_noise_has_a_closed_form(noise: float, relation: str, fpr: float) -> None:
    """Never below it, and hardly above."""
    mu = (1 if relation == "add-or-remove" else 2) / noise
    auc, tpr = norm.cdf(mu / math.sqrt(2)), norm.sf(norm.isf(fpr) - mu)
    assert auc <= attack_limit([Gaussian(noise)], relation) <= auc + 1e-3  # type: ignore[arg-type]
    assert tpr <= found_limit([Gaussian(noise)], fpr, relation) + 1e-12  # type: ignore[arg-type]
    assert found_limit([Gaussian(noise)], fpr, relation) <= tpr + 5e-3  # type: ignore[arg-type]


def test_the_best_test_of_sampled_steps_stays_below() -> None:
    """A likelihood-ratio test of simulated batches, with its interval."""
    rate, noise, steps, n = 0.2, 1.0, 10, 20_000
    rng = np.random.default_rng(0)
    absent = rng.normal(scale=noise, size=(n, steps))
    present = rng.normal(scale=noise, size=(n, steps)) + (rng.random((n, steps)) < rate)

    def score(x: np.ndarray) -> np.ndarray:
        return np.log1p(rate * np.expm1((x - 0.5) / noise**2)).sum(axis=1)

    a, b = score(present), np.sort(score(absent))
    auc = np.searchsorted(b, a).mean() / n
    limit = attack_limit([PoissonGaussian(rate, noise, steps)])
    assert auc - 3 * 0.5 / math.sqrt(n) <= limit <= auc + 0.03


def test_a_pair_alone_and_randomized_response() -> None:
    """Whoever answers truly with odds exp(epsilon) reaches the limit of that epsilon exactly."""
    for epsilon in (0.1, 1.0, 3.0):
        exact = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert pair_limits(epsilon, 0.0, 0.01)[0] == pytest.approx(exact, abs=1e-3)
        assert attack_limit([Laplace(1 / epsilon)]) == pytest.approx(exact, abs=2e-3)
        assert pair_limits(epsilon, 0.0, 0.01)[0] >= exact
    # What a pair leaves open is never less than what the events say.
    events = [Gaussian(4.0)]
    assert pair_limits(epsilon_of(events, 1e-6), 1e-6, 0.01)[0] > attack_limit(events)
    assert pair_limits(800.0, 0.0, 0.01) == (1.0, 1.0)
    assert pair_limits(0.0, 1.0, 0.01) == (1.0, 1.0)


def test_nothing_done_leaves_chance_and_more_leaves_more() -> None:
    assert (attack_limit([]), found_limit([], 0.01)) == (0.5, 0.01)
    assert (
        attack_limit([Gaussian(4.0)]) < attack_limit([Gaussian(4.0), Gaussian(8.0)]) < attack_limit([Gaussian(3.0)])
    )
    with pytest.raises(ConfigError, match="`fpr`"):
        found_limit([Gaussian(4.0)], 1.5)
