"""Forecasts: more of anything helps, the way back agrees, and what cannot be asked for is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.errors import ConfigError
from locum.recipes import epsilon_for, forecast
from locum.recipes.forecasting import TABLE, _Curve
from locum.types import DP

BUDGET = DP(1.0, 1e-6)


@given(st.integers(10, 10**6), st.floats(0.05, 10), st.integers(2, 50))
def test_more_records_more_epsilon_and_fewer_classes_never_hurt(units: int, epsilon: float, classes: int) -> None:
    here = forecast(DP(epsilon, 1e-6), units=units, classes=classes).kept.value
    slack = 1e-9
    assert forecast(DP(epsilon, 1e-6), units=2 * units, classes=classes).kept.value >= here - slack
    assert forecast(DP(2 * epsilon, 1e-6), units=units, classes=classes).kept.value >= here - slack
    assert forecast(DP(epsilon, 1e-6), units=units, classes=classes + 1).kept.value <= here + slack


def test_measured_releases_lie_in_their_own_range() -> None:
    """Nine of ten at least; a range is twice the typical distance."""
    rows = json.loads(TABLE.read_text())["releases"]
    signals, kept = (np.array([row[key] for row in rows]) for key in ("signal", "kept"))
    curve = _Curve(signals, kept)
    inside = [abs(curve.at(s)[0] - k) <= curve.at(s)[1] for s, k in zip(signals, kept, strict=True)]
    assert np.mean(inside) >= 0.9


def test_a_set_is_forecast_from_the_others() -> None:
    """Leaving out each data set in turn, its own releases are forecast to within a fifth where there is signal."""
    rows = json.loads(TABLE.read_text())["releases"]
    for name in {row["set"] for row in rows}:
        others = [row for row in rows if row["set"] != name]
        curve = _Curve(np.array([r["signal"] for r in others]), np.array([r["kept"] for r in others]))
        own = [row for row in rows if row["set"] == name and row["signal"] > 4]
        assert all(abs(curve.at(row["signal"])[0] - row["kept"]) < 0.2 for row in own)


@pytest.mark.parametrize("want", [0.7, 0.85, 0.9])
def test_the_epsilon_that_was_found_gives_what_was_wanted(want: float) -> None:
    found = epsilon_for(want, BUDGET, units=5000, classes=4)
    assert found.auc.value >= want
    less = forecast(DP(0.9 * found.epsilon, 1e-6), units=5000, classes=4)
    assert less.auc.value <= found.auc.value


def test_what_cannot_be_asked_for() -> None:
    for want in (0.5, 0.95, 1.2):
        with pytest.raises(ConfigError, match="--real-auc"):
            epsilon_for(want, BUDGET, units=5000, classes=4)
    with pytest.raises(ConfigError, match="collect more"):
        epsilon_for(0.94, BUDGET, units=5, classes=10)
    for wrong in (
        {"units": 0, "classes": 2},
        {"units": 10, "classes": 1},
        {"units": 10, "classes": 2, "real_auc": 2},
    ):
        with pytest.raises(ConfigError):
            forecast(BUDGET, **wrong)  # type: ignore[arg-type]


def test_the_table_is_in_the_package() -> None:
    assert TABLE.parent == Path(__file__).parents[2] / "src" / "locum" / "recipes"
