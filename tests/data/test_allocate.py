"""Whole numbers that follow shares as closely as whole numbers can."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import round_shares
from locum.data.splits import allocate

counts = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any).map(np.array)
shares = st.lists(st.integers(1, 20), min_size=2, max_size=4).map(lambda v: np.array(v) / sum(v))


@given(st.integers(0, 1000), shares)
def test_rounded_shares_sum_and_stay_within_one(n: int, share: np.ndarray) -> None:
    sizes = round_shares(n, share)
    assert sizes.sum() == n
    assert (np.abs(sizes - n * share) < 1 + 1e-6).all()


@given(counts, shares)
def test_every_entry_stays_within_one_of_its_share(count: np.ndarray, share: np.ndarray) -> None:
    table = allocate(count, share)
    assert (table.sum(axis=1) == count).all()
    assert (table >= 0).all()
    assert (np.abs(table - np.outer(count, share)) < 1 + 1e-6).all()
    assert (np.abs(table.sum(axis=0) - count.sum() * share) < 1 + 1e-6).all()


@given(counts, st.integers(1, 1000))
def test_exact_sizes_are_met_exactly(count: np.ndarray, seed: int) -> None:
    n = int(count.sum())
    cuts = np.sort(np.random.default_rng(seed).integers(0, n + 1, size=2))
    sizes = np.diff([0, *cuts, n])
    assert allocate(count, sizes / n).sum(axis=0).tolist() == sizes.tolist()


@pytest.mark.parametrize(
    ("count", "sizes"), [([4, 5, 5, 4, 2], [8, 2, 10]), ([2, 4, 2, 4], [4, 3, 1, 4]), ([5, 5, 2, 2], [7, 3, 2, 2])]
)
def test_exact_sizes_that_need_a_move_through_a_third_part(count: list[int], sizes: list[int]) -> None:
    table = allocate(np.array(count), np.array(sizes) / sum(sizes))
    assert table.sum(axis=0).tolist() == sizes
    assert (np.abs(table - np.outer(count, sizes) / sum(sizes)) < 1).all()


@given(counts, shares)
def test_the_kept_part_has_every_class(count: np.ndarray, share: np.ndarray) -> None:
    table = allocate(count, share, keep=0)
    assert (table.sum(axis=1) == count).all()
    assert (table[:, 0] >= (count > 0)).all()
    assert (np.abs(table - np.outer(count, share)) < 1 + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any).map(np.array), shares)
def test_the_sums_are_met_whenever_a_search_of_all_tables_can(count: np.ndarray, share: np.ndarray) -> None:
    wanted = round_shares(int(count.sum()), share)
    ideal = np.outer(count, share)
    low, high = np.floor(ideal + 1e-9), np.maximum(np.ceil(ideal - 1e-9), np.floor(ideal + 1e-9))
    low[:, 0] = np.maximum(low[:, 0], count > 0)
    high = np.maximum(high, low)
    rows = [
        [r for r in product(*(range(int(a), int(b) + 1) for a, b in zip(lo, hi, strict=True))) if sum(r) == n]
        for lo, hi, n in zip(low, high, count, strict=True)
    ]
    possible = any(np.array_equal(np.sum(t, axis=0), wanted) for t in product(*rows))
    assert np.array_equal(allocate(count, share, keep=0).sum(axis=0), wanted) == possible
