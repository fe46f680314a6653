from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError
from locum.metrics import distances, k_nearest, k_nearest_of_blocks, nearest, squared_distances
from locum.metrics.distances import pair_distances

quick = settings(max_examples=30, deadline=None, derandomize=True)

seeds = st.integers(0, 2**32 - 1)


def naive(queries: np.ndarray, reference: np.ndarray, k: int, exclude_self: bool = False):
    """All differences, one query at a time, in float64."""
    distances, indices = [], []
    for i, q in enumerate(queries):
        gap = np.sqrt(((reference.astype(np.float64) - q.astype(np.float64)) ** 2).sum(axis=1))
        if exclude_self:
            gap[i] = np.inf
        order = np.argsort(gap, kind="stable")[:k]
        distances.append(gap[order])
        indices.append(order)
    return np.array(distances), np.array(indices)


@quick
@given(
    seed=seeds,
    n=st.integers(1, 40),
    m=st.integers(2, 60),
    d=st.integers(1, 12),
    k=st.integers(1, 4),
    chunk=st.integers(1, 70),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    offset=st.sampled_from([0.0, 300.0]),
)
def test_agrees_with_the_naive_twin(seed, n, m, d, k, chunk, dtype, offset) -> None:
    rng = np.random.default_rng(seed)
    q = (rng.standard_normal((n, d)) + offset).astype(dtype)
    r = (rng.standard_normal((m, d)) + offset).astype(dtype)
    k = min(k, m)
    got, at = k_nearest(q, r, k, chunk=chunk)
    want, want_at = naive(q, r, k)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(at, want_at)


@quick
@given(seed=seeds, n=st.integers(3, 50), d=st.integers(1, 6), k=st.integers(1, 2), chunk=st.integers(1, 60))
def test_self_is_left_out_and_duplicates_are_not(seed, n, d, k, chunk) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, size=(n, d)).astype(np.float32)
    got, at = k_nearest(x, x, k, exclude_self=True, chunk=chunk)
    want, _ = naive(x, x, k, exclude_self=True)
    np.testing.assert_allclose(got, want)
    assert (at != np.arange(n)[:, None]).all()
    for j in range(k):
        np.testing.assert_allclose(pair_distances(x, x, np.arange(n), at[:, j]), got[:, j])


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_copy_is_found_at_distance_zero(rng, offset) -> None:
    r = (rng.standard_normal((3000, 64)) + offset).astype(np.float32)
    pick = rng.permutation(3000)[:500]
    distance, index = nearest(r[pick], r)
    assert (distance == 0).all()
    np.testing.assert_array_equal(index, pick)


def test_tight_clusters_far_apart_are_told_apart(rng) -> None:
    """Gaps of 1e-5 beside norms of 1e3: float32 scores alone cannot decide."""
    centers = 1e3 * rng.standard_normal((4, 32))
    r = (centers[rng.integers(4, size=2000)] + 1e-2 * rng.standard_normal((2000, 32))).astype(np.float32)
    q = r[:300] + np.float32(1e-3) * rng.standard_normal((300, 32)).astype(np.float32)
    for k in (1, 3):
        got, _ = k_nearest(q, r, k)
        want, _ = naive(q, r, k)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_plain_float32_scores_would_fail_there(rng) -> None:
    """The trap of the test above is real: the usual formula picks wrong neighbors."""
    r = (1e3 + 1e-2 * rng.standard_normal((500, 32))).astype(np.float32)
    scores = r @ r.T - 0.5 * (r * r).sum(axis=1)
    assert (scores.argmax(axis=1) != np.arange(500)).mean() > 0.5
    assert (nearest(r, r)[0] == 0).all()


def test_all_records_equal() -> None:
    x = np.full((300, 5), 7.0, dtype=np.float32)
    assert (nearest(x, x)[0] == 0).all()
    distance, index = k_nearest(x, x, 3, exclude_self=True)
    assert (distance == 0).all()
    assert (index != np.arange(300)[:, None]).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12])
def test_any_scale(rng, scale) -> None:
    r = (scale * rng.standard_normal((200, 6))).astype(np.float64)
    q = (scale * rng.standard_normal((30, 6))).astype(np.float64)
    want, at = naive(q, r, 2)
    got, got_at = k_nearest(q, r, 2)
    np.testing.assert_allclose(got, want, rtol=1e-9)
    np.testing.assert_array_equal(got_at, at)


@quick
@given(seed=seeds)
def test_shift_and_rotation_change_nothing(seed) -> None:
    rng = np.random.default_rng(seed)
    q, r = rng.standard_normal((20, 5)), rng.standard_normal((40, 5))
    turn, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    shift = rng.standard_normal(5)
    distance, index = nearest(q, r)
    moved, moved_index = nearest(q @ turn + shift, r @ turn + shift)
    np.testing.assert_allclose(distance, moved, atol=1e-12)
    np.testing.assert_array_equal(index, moved_index)


def test_order_of_the_reference_does_not_matter(rng) -> None:
    """Sorted from far to near, each chunk beats the one before: the worst case for screening."""
    q, r = rng.standard_normal((50, 8)).astype(np.float32), rng.standard_normal((3000, 8)).astype(np.float32)
    far_first = np.argsort(-np.linalg.norm(r - q[0], axis=1))
    want, at = k_nearest(q, r, 5)
    got, got_at = k_nearest(q, r[far_first], 5, chunk=128)
    np.testing.assert_allclose(got, want)
    np.testing.assert_array_equal(far_first[got_at], at)


@pytest.mark.parametrize("k", [1, 5])
def test_work_space_does_not_grow_with_the_data(k) -> None:
    """Twice the records on both sides: only the results grow. So 100k x 100k fits, too."""
    rng = np.random.default_rng(0)
    peaks = []
    for n in (3000, 6000):
        x = rng.standard_normal((n, 96), dtype=np.float32)
        tracemalloc.start()
        k_nearest(x, x, k, exclude_self=True, chunk=1024)
        peaks.append(tracemalloc.get_traced_memory()[1] - 16 * n * k)
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 1024 * (12 * 96 + 12_000) + 30e6


def test_work_space_of_the_default_is_bounded(rng) -> None:
    """The worst case: d = 768, default chunk, a crowd of near ties."""
    r = (1e3 + 1e-3 * rng.standard_normal((9000, 768), dtype=np.float32)).astype(np.float32)
    r[0] = -1e3
    tracemalloc.start()
    distance, _ = nearest(r[:64], r)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (distance == 0).all()
    assert peak < 8192 * (12 * 768 + 12_000) + 30e6


def first_of_all_pairs(q: np.ndarray, r: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair, measured alone as the search measures it; the lower position wins a tie."""
    rows = np.arange(len(r))
    all_pairs = np.stack([pair_distances(q, r, np.full(len(r), i), rows) for i in range(len(q))])
    order = np.argsort(all_pairs, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_pairs, order, axis=1), order


@quick
@given(
    seed=seeds,
    n=st.integers(1, 30),
    m=st.integers(1, 400),
    d=st.integers(1, 9),
    k=st.integers(1, 90),
    chunk=st.integers(1, 400),
    kind=st.sampled_from(["normal", "whole numbers", "all but equal", "one far away"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_no_bit_depends_on_the_blocks(seed, n, m, d, k, chunk, kind, dtype) -> None:
    """Also if most records are tied, or float32 cannot tell them apart: then crowds are settled in float64."""
    rng = np.random.default_rng(seed)
    k = min(k, m)
    both = rng.standard_normal((n + m, d))
    if kind == "whole numbers":
        both = rng.integers(-1, 2, size=(n + m, d)).astype(np.float64)
    elif kind == "all but equal":
        both = 100 + 1e-6 * both
    elif kind == "one far away":
        both[rng.integers(n + m)] *= 1e9
    q, r = both[:n].astype(dtype), both[n:].astype(dtype)
    want, want_at = first_of_all_pairs(q, r, k)
    cuts = np.sort(rng.integers(0, m + 1, size=rng.integers(0, 5)))
    for got, at in (
        k_nearest(q, r, k),
        k_nearest(q, r, k, chunk=chunk),
        k_nearest_of_blocks(q, np.split(r, cuts), k, chunk=chunk),
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(at, want_at)


def test_no_bit_depends_on_the_threads(rng) -> None:
    from threadpoolctl import threadpool_limits

    q, r = (rng.standard_normal((3000, 40), dtype=np.float32) for _ in range(2))
    found = []
    for threads in (1, 4):
        with threadpool_limits(threads):
            found.append(k_nearest(q, r, 3))
    assert len(q) * r.size > distances._LARGE
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_a_distance_does_not_depend_on_the_other_pairs(rng) -> None:
    """Beyond 8,192 features numpy's einsum sums a row differently, depending on the rows before it."""
    a, b, rows = rng.standard_normal((50, 9000)), rng.standard_normal((50, 9000)), np.arange(50)
    alone = [pair_distances(a, b, rows[i : i + 1], rows[i : i + 1])[0] for i in rows]
    np.testing.assert_array_equal(pair_distances(a, b, rows, rows), alone)


def test_copies_are_found_in_blocks(rng) -> None:
    r = rng.standard_normal((500, 8)).astype(np.float32)
    distance, index = k_nearest_of_blocks(r[::7], (r[i : i + 33] for i in range(0, 500, 33)), 1)
    assert (distance == 0).all()
    np.testing.assert_array_equal(index[:, 0], np.arange(500)[::7])


@pytest.mark.parametrize(
    ("blocks", "k", "error", "words"),
    [
        ([], 1, ConfigError, "at most the 0 records"),
        ([[[1.0]], [[2.0]]], 3, ConfigError, "at most the 2 records"),
        ([[[1.0, 2.0]]], 1, DataError, "equally many features"),
        ([[[1.0]], [[np.nan]]], 1, DataError, "finite"),
    ],
)
def test_wrong_blocks_are_named(blocks, k, error, words) -> None:
    with pytest.raises(error, match=words):
        k_nearest_of_blocks([[0.0]], blocks, k)


def test_squared_distances_by_hand() -> None:
    np.testing.assert_allclose(
        squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])), [[25, 0]]
    )


@pytest.mark.parametrize(
    ("queries", "reference", "options", "error", "words"),
    [
        ([[1.0]], [[1.0, 2.0]], {}, DataError, "equally many features"),
        ([1.0, 2.0], [[1.0]], {}, DataError, "table of records"),
        ([[np.nan]], [[1.0]], {}, DataError, "finite"),
        ([[1.0]], [[np.inf]], {}, DataError, "finite"),
        ([["a"]], [[1.0]], {}, DataError, "numbers"),
        (np.empty((0, 2)), [[1.0, 1.0]], {}, DataError, "at least 1 record"),
        ([[1.0]], [[1.0]], {"k": 2}, ConfigError, "at most the 1 record"),
        ([[1.0]], [[1.0]], {"k": 0}, ConfigError, "1 or more"),
        ([[1.0]], [[1.0], [2.0]], {"exclude_self": True}, ConfigError, "same table twice"),
        ([[1.0]], [[1.0]], {"exclude_self": True}, ConfigError, "at most the 0"),
        ([[1.0]], [[1.0]], {"chunk": 0}, ConfigError, "chunk"),
    ],
)
def test_wrong_input_is_named(queries, reference, options, error, words) -> None:
    with pytest.raises(error, match=words):
        k_nearest(queries, reference, **({"k": 1} | options))


def test_real_embeddings_agree_with_scikit_learn(breast) -> None:
    from sklearn.neighbors import NearestNeighbors

    train, test = breast["train_x"], breast["test_x"]
    want, _ = (
        NearestNeighbors(n_neighbors=3, algorithm="brute").fit(train.astype(float)).kneighbors(test.astype(float))
    )
    got, _ = k_nearest(test, train, 3)
    # One train image equals a test image; scikit-learn's cancellation leaves it at 1e-7, not 0.
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert (nearest(train, train)[0] == 0).all()
