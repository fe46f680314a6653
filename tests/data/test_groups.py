"""Whole subjects to parts, against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.data.splits import assign_groups, class_table, units
from locum.errors import DataError
from locum.types import EmbeddingSet

tables = st.integers(0, 10_000).map(
    lambda s: np.random.default_rng(s).integers(0, 4, (12, 3)) + np.eye(12, 3, dtype=int)
)


def twin(table: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> list[int]:
    """The same greedy rule in plain loops, without the repairs."""
    order = sorted(rng.permutation(len(table)).tolist(), key=lambda g: -table[g].sum())
    total = [max(int(t), 1) for t in table.sum(axis=0)]
    held = [[0.0] * table.shape[1] for _ in shares]
    part = [0] * len(table)
    for g in order:
        scores = []
        for p, share in enumerate(shares):
            terms = ((held[p][c] + v / total[c] / 2) * v / total[c] for c, v in enumerate(table[g]))
            scores.append(round(sum(terms) / share, 12))
        part[g] = scores.index(min(scores))
        for c, v in enumerate(table[g]):
            held[part[g]][c] += v / total[c]
    return part


def test_the_greedy_rule_equals_its_slow_twin() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        # Odd sizes leave no ties that rounding could break differently.
        table = rng.integers(0, 50, (30, 3)) * 2 + 1
        shares = np.array([0.61, 0.28, 0.11])
        fast = assign_groups(table, shares, np.random.default_rng(seed), needed=0)
        assert fast.tolist() == twin(table, shares, np.random.default_rng(seed))


@given(tables, st.integers(2, 6), st.integers(0, 100))
def test_no_needed_part_is_empty_and_the_kept_one_has_all_classes(table: np.ndarray, k: int, seed: int) -> None:
    part = assign_groups(table, np.full(k, 1 / k), np.random.default_rng(seed), k, keep=0)
    assert set(part.tolist()) == set(range(k))
    assert table[part == 0].any(axis=0).all()


def test_a_small_part_gets_large_groups_too() -> None:
    sizes = np.repeat(np.arange(1, 9), 50)[:, None]
    part = assign_groups(sizes, np.array([0.8, 0.2]), np.random.default_rng(0), 2)
    means = [float(sizes[part == p].mean()) for p in (0, 1)]
    assert abs(means[0] - means[1]) < 0.2
    assert abs(sizes[part == 1].sum() / sizes.sum() - 0.2) < 0.01


def test_too_few_subjects_are_refused() -> None:
    with pytest.raises(DataError, match="3 parts need at least 3 subjects; got 2"):
        assign_groups(np.ones((2, 1), dtype=int), np.full(3, 1 / 3), np.random.default_rng(0), 3)


def test_units_and_tables_equal_counting_by_hand() -> None:
    data = EmbeddingSet.from_arrays(np.eye(5), [*"abaca"], subject=["q", "p", "q", "p", "r"])
    unit = units(data)
    assert unit.tolist() == [1, 0, 1, 0, 2]
    assert class_table(unit, data).tolist() == [[0, 1, 1], [2, 0, 0], [1, 0, 0]]
    alone = EmbeddingSet.from_arrays(np.eye(3), [*"aba"])
    assert units(alone).tolist() == [0, 1, 2]
