"""Sums of integers, and noise on a grid: exact, and as private as the accountant says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from locum.accounting import Gaussian, delta_of, epsilon_of
from locum.errors import ConfigError, PrivacyError
from locum.mechanisms import ExactSums, noisy
from locum.mechanisms.discrete_gaussian import check_grid, discrete_gaussian
from locum.types import GRID_GAP

whole = hnp.arrays(np.int64, 3, elements=st.integers(-(2**40), 2**40))


@given(st.lists(whole, min_size=1, max_size=12), st.integers(0, 11))
def test_sums_do_not_depend_on_how_they_are_cut_up(parts: list[np.ndarray], cut: int) -> None:
    steps = np.array([0.1, 1e-9, 3.0])
    left, right = ExactSums(steps), ExactSums(steps)
    for part in parts[:cut]:
        left.add(part)
    for part in parts[cut:]:
        right.add(part)
    right.merge(left)
    assert right.integers.tolist() == [sum(int(part[i]) for part in parts) for i in range(3)]


def test_sums_never_overflow_and_never_mix_grids() -> None:
    sums = ExactSums(np.ones(1))
    with pytest.raises(ConfigError, match="larger"):
        sums.add(np.array([2**62]))
    for _ in range(2):
        sums.add(np.array([2**60]))
    with pytest.raises(ConfigError, match="larger"):
        sums.add(np.array([2**60]))
    assert sums.integers[0] == 2**61
    with pytest.raises(ConfigError, match="same grid"):
        sums.merge(ExactSums(np.full(1, 2.0)))
    with pytest.raises(ConfigError, match="64-bit"):
        sums.add(np.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="above 0"):
        ExactSums(np.zeros(2))


def test_the_sampler_has_the_discrete_gaussian_distribution() -> None:
    drawn = discrete_gaussian(1.3, 6000)
    k = np.arange(-60, 61)
    weights = np.exp(-(k**2) / (2 * 1.3**2))
    expected = weights / weights.sum()
    edges = np.arange(-4, 5)
    seen = [np.sum(drawn <= -4), *(np.sum(drawn == e) for e in edges[1:-1]), np.sum(drawn >= 4)]
    shares = [expected[k <= -4].sum(), *(expected[k == e].item() for e in edges[1:-1]), expected[k >= 4].sum()]
    # A false alarm once in a million runs.
    assert stats.chisquare(seen, 6000 * np.array(shares)).pvalue > 1e-6


def test_noise_has_the_size_that_was_asked_for_on_every_grid() -> None:
    sums = ExactSums(np.repeat([2.0**-30, 2.0**-34], 4000))
    sums.add(np.repeat(np.array([2**30, 2**34]), 4000))
    seen = noisy(sums, 5.0).to_array() - 1
    for part in (seen[:4000], seen[4000:]):
        assert abs(part.std() / 5 - 1) < 0.06
        assert abs(part.mean()) < 0.5
    # Noise is on the grid: nothing below a step can be seen.
    assert np.all(seen[:4000] * 2.0**30 % 1 == 0)
    seeds = ({}, {}, *({"insecure_seed": 1, "step": step} for step in (0, 0, 1)))
    drawn = [noisy(sums, 5.0, **seed).integers for seed in seeds]
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[2], drawn[3])
    assert not np.array_equal(drawn[3], drawn[4])


def test_a_grid_that_is_too_coarse_is_refused() -> None:
    with pytest.raises(PrivacyError, match="finer grid"):
        noisy(ExactSums(np.ones(3)), 10.0)
    check_grid(np.full(10**6, 4 * 2.0**30))
    with pytest.raises(PrivacyError):
        check_grid(np.full(10**6, 2.0**20))


@pytest.mark.parametrize("std", [3.0, 10.0, 40.0])
def test_the_grid_costs_no_more_than_the_proof_says(std: float) -> None:
    """The exact privacy curve of the discrete Gaussian, on grids so coarse that the gap can be seen."""
    k = np.arange(-int(60 * std), int(60 * std) + 1)
    log_p = -(k**2) / (2 * std**2)
    log_p -= np.logaddexp.reduce(log_p)
    gap = (1 + 40**2) / (24 * std**2)
    for shift in (1, int(std)):
        log_q = np.roll(log_p, shift)
        log_q[:shift] = -np.inf
        for epsilon in (0.1, 0.5, 1.0):
            exact = np.sum(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0)[shift:])
            continuous = _continuous(shift / std, max(epsilon - gap, 0.0))
            assert exact <= continuous * math.exp(1 / (24 * std**2)) + 1e-12


def _continuous(mu: float, epsilon: float) -> float:
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu))


def test_the_gap_is_charged_for_every_sum() -> None:
    for count in (1, 3):
        events = [Gaussian(4.0)] * count
        mu = math.sqrt(count) / 4
        epsilon = epsilon_of(events, 1e-6)
        assert _continuous(mu, epsilon - count * GRID_GAP) <= 1e-6
        assert delta_of(events, epsilon) <= 1e-6 * (1 + 1e-3)
        assert delta_of(events, 0.0) >= _continuous(mu, 0.0) + count * GRID_GAP
