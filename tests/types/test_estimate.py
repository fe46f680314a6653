from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from locum import Estimate
from locum.errors import ConfigError
from locum.types import AttackResult


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40))
def test_runs_give_students_interval(values: list[float]) -> None:
    e = Estimate.from_runs(values)
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert e.value == pytest.approx(np.mean(values), abs=1e-6)
    # The table has three digits, and beyond 31 runs the normal's point stands in.
    assert e.high - e.low == pytest.approx(2 * half, rel=0.06, abs=1e-6)


def test_one_run_has_no_end_and_survives_json() -> None:
    e = Estimate.from_runs([0.5])
    assert (e.low, e.high) == (-math.inf, math.inf)
    assert Estimate.from_dict(e.to_dict()) == e
    assert "one run" in f"{e}"


def test_order_is_checked() -> None:
    with pytest.raises(ConfigError, match="low <= value <= high"):
        Estimate(1.0, 2.0, 3.0, 4)
    with pytest.raises(ConfigError, match="at least one"):
        Estimate.from_runs([])


@pytest.mark.parametrize(
    ("attack", "control", "verdict"),
    [
        ((0.8, 0.7, 0.9), (0.5, 0.4, 0.6), "leak"),
        ((0.8, 0.7, 0.9), (0.8, 0.7, 0.9), "inconclusive"),
        ((0.52, 0.49, 0.55), (0.5, 0.4, 0.6), "no excess risk found"),
        ((0.52, 0.40, 0.64), (0.5, 0.4, 0.6), "inconclusive"),
        ((0.51, 0.505, 0.515), (0.5, 0.49, 0.51), "leak"),
    ],
)
def test_verdicts(attack: tuple, control: tuple, verdict: str) -> None:
    result = AttackResult("a", "auc", Estimate(*attack, 9), Estimate(*control, 9), Estimate.exact(0.5))
    assert result.verdict == verdict
    assert result.to_dict()["verdict"] == verdict
