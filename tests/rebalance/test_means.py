from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import DataError
from locum.rebalance import shrunk_means

quick = settings(max_examples=40, deadline=None, derandomize=True)


def naive(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Center and shares with plain loops: moments of a random-effects model, weighed once, in units of the spread."""
    classes = sorted(set(y.tolist()))
    n = [int((y == c).sum()) for c in classes]
    means = [X[y == c].mean(axis=0) for c in classes]
    gaps = [x - means[classes.index(c)] for x, c in zip(X, y.tolist(), strict=True)]
    covariance = sum(np.outer(g, g) for g in gaps) / (len(y) - len(classes))
    variance = np.diag(np.diag(covariance))
    free, d = len(y) - len(classes), X.shape[1]
    floor = 1e-3 * np.trace(covariance) / d * np.eye(d)
    steady = free / (free + d) * (covariance - variance) + variance + floor
    inverse = np.linalg.inv(steady)
    noise = [float(np.trace(inverse @ covariance)) / k for k in n]
    weights = [1 / len(n)] * len(n)
    for _ in range(2):
        center = sum(w * m for w, m in zip(weights, means, strict=True))
        scatter = sum(w * float((m - center) @ inverse @ (m - center)) for w, m in zip(weights, means, strict=True))
        by_luck = sum(w * (1 - w) * v for w, v in zip(weights, noise, strict=True))
        between = max(0.0, (scatter - by_luck) / sum(w * (1 - w) for w in weights))
        final = center, np.array([v / (v + between) for v in noise])
        total = sum(1 / (between + v) for v in noise)
        weights = [1 / (between + v) / total for v in noise]
    return final


@quick
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_agrees_with_plain_loops(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.normal(size=(len(y), 4)) + 2 * rng.normal(size=(len(sizes), 4))[y]
    found = shrunk_means(X, y)
    assert ((found.share >= 0) & (found.share <= 1)).all()
    if len(y) == len(sizes):
        assert not found.share.any()
        return
    center, share = naive(X, y)
    np.testing.assert_allclose(found.center, center, atol=1e-9)
    np.testing.assert_allclose(found.share, share, atol=1e-9)
    np.testing.assert_allclose(found.means + found.shifts, found.means + share[:, None] * (center - found.means))


def test_rarer_classes_move_further(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], [200, 20, 2])
    X = rng.normal(size=(len(y), 30)) + rng.normal(size=(3, 30))[y]
    share = shrunk_means(X, y).share
    assert share[0] < 0.02 < share[1] < share[2] < 0.8


def test_expected_means_come_nearer_to_the_truth() -> None:
    """What it is for: over many worlds, the squared error of small classes falls, that of large ones stays."""
    plain, shrunk = np.zeros(2), np.zeros(2)
    sizes = np.array([50] * 5 + [2] * 5)
    y = np.repeat(np.arange(10), sizes)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(10, 40))
        found = shrunk_means(truth[y] + 2 * rng.normal(size=(len(y), 40)), y)
        for total, guess in ((plain, found.means), (shrunk, found.means + found.shifts)):
            total += np.square(guess - truth).sum(axis=1).reshape(2, 5).mean(axis=1)
    assert shrunk[1] < 0.5 * plain[1]
    assert shrunk[0] < 1.02 * plain[0]


def test_classes_without_a_difference_meet_in_the_middle(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2, 3], 5)
    X = rng.normal(size=(20, 50))
    assert shrunk_means(X, y).share.min() > 0.5


def test_edges() -> None:
    same = shrunk_means(np.ones((4, 2)), np.array([0, 0, 1, 1]))
    assert not same.shifts.any()
    alone = shrunk_means(np.arange(6.0).reshape(3, 2), np.zeros(3, dtype=np.int64))
    assert not alone.shifts.any()
    with pytest.raises(DataError, match="record"):
        shrunk_means(np.ones((2, 2)), np.array([0, 2]))


def test_half_precision_does_not_round_the_sums(rng: np.random.Generator) -> None:
    X, y = rng.normal(8, 1, size=(3000, 4)), np.repeat([0, 1], [2990, 10])
    rough, fine = shrunk_means(X.astype(np.float16), y), shrunk_means(X, y)
    np.testing.assert_allclose(rough.share, fine.share, rtol=0.05)
    np.testing.assert_allclose(rough.means, fine.means, atol=1e-2)
