"""The privacy budget: what it accepts and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from locum.errors import ConfigError, PrivacyError
from locum.types import DP


def test_the_defaults() -> None:
    budget = DP(1.0, 1e-5)
    assert (budget.unit, budget.n_public, budget.relation) == ("record", None, "add-or-remove")


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, True, "1", None])
def test_epsilon_is_above_nothing_and_finite(epsilon: Any) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        DP(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, -1e-5, 1, 2, math.nan, True, "1e-5", None])
def test_delta_is_a_small_probability(delta: Any) -> None:
    with pytest.raises(ConfigError, match="delta"):
        DP(1.0, delta)


@pytest.mark.parametrize("n", [0, -5, 1.5, math.nan, math.inf, True, "many", "2000"])
def test_n_public_is_a_count(n: Any) -> None:
    with pytest.raises(ConfigError, match="n_public"):
        DP(1.0, 1e-9, n_public=n)


@pytest.mark.parametrize("n", [1, 3, 7, 1000, 3000, 12345])
def test_delta_may_be_a_tenth_of_one_in_n_and_no_more(n: int) -> None:
    assert DP(1.0, 1 / (10 * n), n_public=n).size() == n
    with pytest.raises(PrivacyError, match="publishing single records"):
        DP(1.0, 1.01 / (10 * n), n_public=n)


def test_a_huge_count_is_no_crash() -> None:
    with pytest.raises(PrivacyError, match="publishing single records"):
        DP(1.0, 1e-9, n_public=10**400)


def test_unit_and_relation_are_names() -> None:
    with pytest.raises(ConfigError, match="'patient'"):
        DP(1.0, 1e-5, unit="patient")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'swap'"):
        DP(1.0, 1e-5, relation="swap")  # type: ignore[arg-type]


def test_numbers_of_other_libraries_become_plain_ones() -> None:
    budget = DP(np.float32(1), np.float64(1e-5), n_public=np.int64(2000))  # type: ignore[arg-type]
    assert budget == DP(1.0, 1e-5, n_public=2000)
    assert [type(v) for v in (budget.epsilon, budget.delta, budget.n_public)] == [float, float, int]


def test_without_a_public_size_the_flag_is_named() -> None:
    with pytest.raises(PrivacyError, match="--n-public"):
        DP(1.0, 1e-5).size()
