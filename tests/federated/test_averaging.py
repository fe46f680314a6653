"""Averages of weights, against loops over single numbers."""

from __future__ import annotations

import doctest
import statistics

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.errors import ConfigError
from locum.federated import aggregation as averaging, average

HOWS = ("mean", "median", "trimmed-mean")
numbers = st.floats(-1e3, 1e3, width=32)
tables = st.integers(3, 9).flatmap(
    lambda m: st.tuples(
        st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=m, max_size=m),
        st.lists(st.floats(0.1, 100), min_size=m, max_size=m),
    )
)


def as_updates(rows: list[list[float]]) -> list[dict[str, np.ndarray]]:
    """Two tensors of two numbers each."""
    return [{"w": np.float32([row[:2]]), "b": np.float32(row[2:])} for row in rows]


def flat(weights: dict[str, np.ndarray]) -> list[float]:
    return [float(v) for v in (*weights["w"].ravel(), *weights["b"].ravel())]


def naive(rows: list[list[float]], shares: list[float], how: str, trim: float) -> list[float]:
    out = []
    for column in zip(*rows, strict=True):
        if how == "mean":
            out.append(sum(s * v for s, v in zip(shares, column, strict=True)) / sum(shares))
        elif how == "median":
            out.append(statistics.median(column))
        else:
            cut = max(1, int(trim * len(column)))
            out.append(statistics.fmean(sorted(column)[cut:-cut]))
    return out


@given(tables, st.sampled_from(HOWS), st.sampled_from([0.0, 0.2, 0.33]))
def test_it_is_what_the_loop_says(table: tuple[list[list[float]], list[float]], how: str, trim: float) -> None:
    rows, shares = table
    found = average(as_updates(rows), shares, how, trim)
    assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
        "w": ((1, 2), np.float32),
        "b": ((2,), np.float32),
    }
    np.testing.assert_allclose(flat(found), naive(rows, shares, how, trim), rtol=1e-5, atol=1e-3)
    # Nothing hangs on who answered first.
    turned = average(as_updates(rows[::-1]), shares[::-1], how, trim)
    np.testing.assert_allclose(flat(turned), flat(found), rtol=1e-5, atol=1e-4)


@given(tables, st.lists(st.sampled_from([1e30, -1e30, 0.0]), min_size=4, max_size=4), st.floats(0.1, 1e9))
def test_one_liar_moves_a_robust_average_no_farther_than_the_honest_go(
    table: tuple[list[list[float]], list[float]], lie: list[float], weight: float
) -> None:
    rows, shares = table
    low, high = np.min(rows, axis=0), np.max(rows, axis=0)
    for how in HOWS[1:]:
        found = flat(average(as_updates([*rows, lie]), [*shares, weight], how))
        assert (np.float32(low) - 1e-3 <= found).all()
        assert (found <= np.float32(high) + 1e-3).all()


@pytest.mark.parametrize(
    ("shares", "how"),
    [
        ([], "mean"),
        ([1.0], "mean"),
        ([1, 0], "mean"),
        ([1, -1], "mean"),
        ([1, np.inf], "mean"),
        ([1, 1], "trimmed-mean"),
    ],
)
def test_what_has_no_average_is_refused(shares: list[float], how: str) -> None:
    with pytest.raises(ConfigError):
        average(as_updates([[0.0] * 4] * (2 if shares else 0)), shares, how)
    with pytest.raises(ConfigError, match="how"):
        average(as_updates([[0.0] * 4]), [1.0], "mode")


def test_the_example_runs() -> None:
    assert doctest.testmod(averaging).failed == 0
