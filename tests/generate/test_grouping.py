"""Groups of k-Same against a twin that loops over everything."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError
from locum.generate import k_groups, ksame as grouping

Distance = Callable[[int, int], float]


def naive(distance: Distance, n: int, k: int, subject: Sequence[Hashable] | None = None) -> list[int]:
    """The description, word for word; every total is summed afresh."""
    who: Sequence[Hashable] = range(n) if subject is None else subject
    group = [-1] * n
    free = list(range(n))
    formed = 0
    while len({who[i] for i in free}) >= k:
        seed = max(free, key=lambda i: (sum(distance(i, j) for j in free), -i))
        members = [seed]
        for j in sorted(free, key=lambda j: (distance(seed, j), j)):
            if len(members) < k and who[j] not in {who[m] for m in members}:
                members.append(j)
        for m in members:
            group[m] = formed
        free = [i for i in free if i not in members]
        formed += 1
    return [formed - 1 if g < 0 else g for g in group]


def on_grid(X: np.ndarray) -> Distance:
    """Distances in the fixed point of the module, with Python integers."""
    q = [[int(v) for v in row] for row in grouping._points(X)[:, :-2]]
    D = [[math.floor(16 * math.sqrt(sum((u - v) ** 2 for u, v in zip(a, b, strict=True)))) for b in q] for a in q]
    return lambda i, j: D[i][j]


def in_floats(X: np.ndarray) -> Distance:
    D = [[math.dist(a, b) for b in X.tolist()] for a in X.tolist()]
    return lambda i, j: D[i][j]


def partition(group: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(group == g).tolist()) for g in np.unique(group)}


def textbook(X: np.ndarray, k: int) -> np.ndarray:
    X = X.astype(np.float64)
    D = np.sqrt(((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)) if X.size < 1e5 else _rowwise(X)
    group, free, formed = np.full(len(X), -1), np.arange(len(X)), 0
    while len(free) >= k:
        sub = D[np.ix_(free, free)]
        members = free[np.argsort(sub[np.argmax(sub.sum(axis=1))], kind="stable")[:k]]
        group[members] = formed
        free, formed = np.setdiff1d(free, members), formed + 1
    group[free] = formed - 1
    return group


def _rowwise(X: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(X - x, axis=1) for x in X])


@st.composite
def grids(draw: Any) -> tuple[np.ndarray, int]:
    """Whole numbers, few values: duplicates and ties everywhere."""
    n, d, k = draw(st.integers(2, 24)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    top = draw(st.integers(0, 6))
    rows = draw(st.lists(st.lists(st.integers(-top, top), min_size=d, max_size=d), min_size=n, max_size=n))
    return np.array(rows, dtype=np.int64), min(k, n)


@st.composite
def clouds(draw: Any) -> tuple[np.ndarray, int]:
    n, d, k = draw(st.integers(2, 30)), draw(st.integers(1, 6)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = 10.0 ** draw(st.integers(-300, 300))
    return rng.normal(size=(n, d)) * scale, min(k, n)


@given(grids())
@settings(max_examples=150, deadline=None)
def test_ties_and_duplicates_equal_the_twin(case: tuple[np.ndarray, int]) -> None:
    X, k = case
    assert k_groups(X, k).tolist() == naive(on_grid(X), len(X), k)


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=30), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_on_a_line_whole_numbers_are_exact_with_no_help_from_the_module(line: list[int], k: int) -> None:
    k = min(k, len(line))
    assert k_groups(np.array(line)[:, None], k).tolist() == naive(lambda i, j: abs(line[i] - line[j]), len(line), k)


@given(clouds())
@settings(max_examples=100, deadline=None)
def test_continuous_data_equal_the_twin_in_plain_floats(case: tuple[np.ndarray, int]) -> None:
    X, k = case
    # The twin works on data of order 1, where its own squares cannot overflow.
    assert k_groups(X, k).tolist() == naive(in_floats(X / np.abs(X).max()), len(X), k)


@given(grids(), st.data())
@settings(max_examples=150, deadline=None)
def test_subjects_equal_the_twin(case: tuple[np.ndarray, int], data: st.DataObject) -> None:
    X, k = case
    subject = data.draw(st.lists(st.integers(0, 12), min_size=len(X), max_size=len(X)))
    if len(set(subject)) < k:
        with pytest.raises(DataError, match="distinct subjects"):
            k_groups(X, k, subject)
        return
    group = k_groups(X, k, subject)
    assert group.tolist() == naive(on_grid(X), len(X), k, subject)
    for members in partition(group):
        assert len({subject[i] for i in members}) >= k


@given(grids(), st.integers(0, 4), st.data())
@settings(max_examples=150, deadline=None)
def test_storage_and_block_shape_change_nothing(
    case: tuple[np.ndarray, int], panel: int, data: st.DataObject
) -> None:
    X, k = case
    subject = data.draw(st.none() | st.just(np.arange(len(X)) // 2))
    if subject is not None and len(np.unique(subject)) < k:
        return
    kept = k_groups(X, k, subject)
    with mock.patch.object(grouping, "_BLOCK", 5):
        assert np.array_equal(k_groups(X, k, subject), kept)
        # Below 4 n^2 bytes (for n > 8, whatever the panel) distances are not kept.
        lean = min(panel * 8 * len(X), 4 * len(X) ** 2 - 1)
        assert np.array_equal(k_groups(X, k, subject, max_bytes=lean), kept)


@given(clouds(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_records_changes_no_group(case: tuple[np.ndarray, int], random: Any) -> None:
    X, k = case
    order = random.sample(range(len(X)), len(X))
    shuffled = k_groups(X[order], k)
    back = np.empty_like(shuffled)
    back[order] = shuffled
    assert np.array_equal(back, k_groups(X, k))


@given(grids())
@settings(max_examples=100, deadline=None)
def test_every_record_is_in_a_group_of_k_or_more(case: tuple[np.ndarray, int]) -> None:
    X, k = case
    sizes = np.bincount(k_groups(X, k))
    assert len(sizes) == len(X) // k
    assert sizes.sum() == len(X)
    assert (sizes[:-1] == k).all()
    assert sizes[-1] == k + len(X) % k


def test_several_blocks_and_panels_equal_the_textbook() -> None:
    n, rng = 1101, np.random.default_rng(1)
    X = (rng.normal(size=(8, 32))[rng.integers(8, size=n)] + 0.5 * rng.normal(size=(n, 32))).astype(np.float32)
    expected = textbook(X, 5)
    assert np.array_equal(k_groups(X, 5), expected)
    with mock.patch.object(grouping, "_PANEL", 40):
        assert np.array_equal(k_groups(X, 5, max_bytes=2**22), expected)


@pytest.mark.parametrize("panel", [1, 3, 20, 31])
def test_corners_of_a_cube_all_tie_in_both_modes(panel: int) -> None:
    X = (np.arange(64)[:, None] >> np.arange(6)) & 1
    expected = naive(on_grid(X), 64, 3)
    assert expected.index(0) == 0  # all totals are equal, so the first record opens the first group
    assert k_groups(X, 3).tolist() == expected
    assert k_groups(X, 3, max_bytes=panel * 8 * 64).tolist() == expected


def test_the_grid_does_not_depend_on_the_order_of_records() -> None:
    rng = np.random.default_rng(2)
    X, order = rng.normal(size=(400, 64)), rng.permutation(400)
    assert np.array_equal(grouping._points(X[order]), grouping._points(X)[order])


def test_a_panel_is_used_more_than_once() -> None:
    """Else the lean mode would be right and useless."""
    X = np.random.default_rng(3).normal(size=(600, 8))
    choose = grouping._Recomputed._choose_panel
    with mock.patch.object(grouping._Recomputed, "_choose_panel", autospec=True, side_effect=choose) as spy:
        k_groups(X, 3, max_bytes=2**20)
    assert 1 < spy.call_count < 100


def test_identical_points_far_from_the_origin_have_distance_zero() -> None:
    X = np.repeat(np.random.default_rng(0).normal(1e4, 1, size=(6, 50)).astype(np.float32), 4, axis=0)
    assert partition(k_groups(X, 4)) == {frozenset(range(i, i + 4)) for i in range(0, 24, 4)}


def test_grid_distances_are_true_to_seven_digits() -> None:
    X = np.random.default_rng(1).normal(size=(50, 768)).astype(np.float32)
    points = grouping._points(X)
    got = grouping._between(points, grouping._facing(points))
    true = _rowwise(X.astype(np.float64))
    ratio = got[0, 1] / true[0, 1]
    # Scales are powers of two by design.
    assert np.allclose(got / 2.0 ** round(math.log2(ratio)), true, rtol=1e-7, atol=1e-7)


def test_leftovers_join_the_last_group() -> None:
    # By hand: 9 is farthest and takes 5.1; of 0, 0.1, 5 the last is farthest, takes 0.1; 0 is left over.
    assert k_groups([[0.0], [0.1], [5.0], [5.1], [9.0]], 2).tolist() == [1, 1, 1, 0, 0]


def test_a_subject_with_most_records_fills_the_last_group_only() -> None:
    X = np.arange(10.0)[:, None]
    subject = ["a"] * 7 + ["b", "c", "d"]
    group = k_groups(X, 2, subject)
    assert group.max() == 1
    assert all(len({subject[i] for i in m}) >= 2 for m in partition(group))


@pytest.mark.parametrize("k", [1, 0, -3, 2.0, "5", True, None])
def test_a_wrong_k_is_refused(k: Any) -> None:
    with pytest.raises(ConfigError, match="`k` must be a whole number of 2 or more"):
        k_groups(np.eye(4), k)


@pytest.mark.parametrize(
    ("X", "subject", "text"),
    [
        (np.eye(3), None, "at least 4 records; got 3"),
        (np.eye(6), list("aabbcc"), r"at least 4 distinct subjects \(in 6 records\); got 3"),
        (np.eye(6), [1, 2, 3], "each of 6 records"),
        (np.eye(6), [1, 2, 3, 4, 5, np.nan], "text or a whole number"),
        (np.eye(6), ["a", "b", "c", "d", "e", None], "text or a whole number"),
        (np.full((6, 2), np.nan), None, "finite; record 0"),
        (np.arange(6), None, "table of numbers"),
        (np.empty((6, 0)), None, "table of numbers"),
        (np.array([["a"]] * 6), None, "table of numbers"),
    ],
)
def test_unusable_data_are_refused(X: Any, subject: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        k_groups(X, 4, subject)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.uint8, np.bool_])
def test_any_kind_of_number_will_do_and_the_caller_keeps_the_data(dtype: Any) -> None:
    X = np.random.default_rng(5).integers(0, 200, size=(40, 3)).astype(dtype)
    before = X.copy()
    assert np.array_equal(k_groups(X, 3), k_groups(X.astype(np.float64), 3))
    assert np.array_equal(X, before)


@pytest.mark.skipif("LOCUM_DATA" not in os.environ, reason="set LOCUM_DATA to the folder of real embeddings")
def test_real_embeddings_equal_the_textbook() -> None:
    path = Path(os.environ["LOCUM_DATA"]) / "breastmnist_efflite0.npz"
    if not path.exists():
        pytest.skip("breastmnist_efflite0.npz is not in LOCUM_DATA")
    with np.load(path, allow_pickle=False) as file:
        X = file["train_x"]
    expected = textbook(X, 5)
    assert np.array_equal(k_groups(X, 5), expected)
    assert np.array_equal(k_groups(X, 5, max_bytes=2**20), expected)
