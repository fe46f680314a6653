"""Neighbor replay with conditions: whatever combination a unit is in, it moves each sum by at most 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import load_reference
from locum.generate.private import FIRST, Descent, HeadQuery
from locum.release import cell_of

D, WIDTHS, CELLS = 4, (2, 3, 2), 12
numbers = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 1e-30, 1e30, -3e38, float("nan"), float("inf")]))
codes = st.tuples(*(st.integers(0, width - 1) for width in WIDTHS))
record = st.tuples(st.lists(numbers, min_size=D, max_size=D), codes)


def replay(rows: list, subject: list[int] | None, extra: int) -> None:
    """All sums of a short fit on all records and on all but the last `extra`, at the same public numbers."""
    X = np.array([x for x, _ in rows], dtype=np.float32).reshape(-1, D)
    cells = cell_of(np.array([c for _, c in rows], dtype=np.int64).reshape(-1, len(WIDTHS)), WIDTHS)
    owners = None if subject is None else np.array(subject)
    reference, descent = load_reference("none", D), Descent(0.5, CELLS, D)
    few = slice(0, len(rows) - extra)
    pair = [
        HeadQuery(X[part], cells[part], None if owners is None else owners[part], CELLS, reference)
        for part in (slice(None), few)
    ]

    def compared(sums: list) -> np.ndarray:
        found = [one.to_array() for one in sums]
        assert np.linalg.norm(found[0] - found[1]) <= 1 + 1e-9
        return found[0] + np.random.default_rng(descent.taken).normal(scale=0.5, size=len(found[0]))

    descent.take(compared([query.first(FIRST) for query in pair]))
    for query in pair:
        query.recenter(descent.center)
    descent.take(compared([query.class_sums() for query in pair]))
    for _ in range(min(3, descent.schedule.steps)):  # type: ignore[union-attr]
        descent.take(compared([query.gradient(descent.rule, descent.clip) for query in pair]))


@settings(max_examples=60, deadline=None)
@given(others=st.lists(record, max_size=12), unit=record)
def test_one_record_in_any_combination(others: list, unit: tuple) -> None:
    replay([*others, unit], None, 1)


@settings(max_examples=60, deadline=None)
@given(
    others=st.lists(st.tuples(record, st.integers(0, 3)), max_size=12), unit=st.lists(record, min_size=1, max_size=6)
)
def test_one_subject_with_records_in_several_combinations(others: list, unit: list) -> None:
    rows = [row for row, _ in others]
    replay([*rows, *unit], [owner for _, owner in others] + [9] * len(unit), len(unit))


def test_the_bound_is_reached() -> None:
    """A record moves the class sums by all of the bound: the sums of its own combination and of no other."""
    query = HeadQuery(np.array([[3.0, 0, 0, 0]], np.float32), np.array([7]), None, CELLS, load_reference("none", D))
    query.recenter(np.zeros(D))
    sums = query.class_sums().to_array().reshape(CELLS, D)
    assert np.linalg.norm(sums[7]) == pytest.approx(1, abs=1e-4)
    assert not np.delete(sums, 7, axis=0).any()
