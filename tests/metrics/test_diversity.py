from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

from locum.errors import ConfigError, DataError
from locum.metrics import bounding_sphere, coverage, coverage_by_class, dispersion, dispersion_estimate

quick = settings(max_examples=30, deadline=None, derandomize=True)

seeds = st.integers(0, 2**32 - 1)


@quick
@given(seed=seeds, n=st.integers(2, 30), d=st.integers(1, 6), chunk=st.integers(1, 40))
def test_dispersion_agrees_with_plain_loops(seed, n, d, chunk) -> None:
    x = np.random.default_rng(seed).standard_normal((n, d))
    want = sum(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(x, 2))
    got = dispersion(x, chunk=chunk)
    assert got.total == pytest.approx(want)
    assert got.pairs == n * (n - 1) // 2
    assert got.mean == pytest.approx(want / got.pairs)


def test_dispersion_of_a_large_offset_and_of_duplicates(rng) -> None:
    x = rng.standard_normal((60, 4)) + 1e5
    assert dispersion(x).total == pytest.approx(pdist(x).sum())
    assert dispersion(np.ones((10, 3))).total == 0


def test_estimate_covers_the_exact_mean(rng) -> None:
    x = rng.standard_normal((100, 5))
    exact = dispersion(x).mean
    covered = 0
    for seed in range(60):
        e = dispersion_estimate(x, np.random.default_rng(seed), pairs=400)
        covered += e.low <= exact <= e.high
    assert covered >= 51


def test_averaging_groups_lowers_dispersion(rng) -> None:
    """What the replica paper says of k-Same."""
    x = rng.standard_normal((60, 5))
    groups = np.repeat(x.reshape(20, 3, 5).mean(axis=1), 3, axis=0)
    assert dispersion(groups).total < dispersion(x).total


def naive_coverage(generated: np.ndarray, reference: np.ndarray) -> float:
    hit = {int(np.argmin([np.linalg.norm(g - r) for r in reference])) for g in generated}
    return len(hit) / len(reference)


@quick
@given(seed=seeds, n=st.integers(1, 20), m=st.integers(1, 20), d=st.integers(1, 4))
def test_coverage_agrees_with_plain_loops(seed, n, m, d) -> None:
    rng = np.random.default_rng(seed)
    g, r = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    c = coverage(g, r)
    assert c == pytest.approx(naive_coverage(g, r))
    assert 1 / m <= c <= min(1, n / m)
    assert coverage(g[rng.permutation(n)], r[rng.permutation(m)]) == pytest.approx(c)


def test_a_set_covers_itself_and_one_point_covers_one(rng) -> None:
    x = rng.standard_normal((30, 3))
    assert coverage(x, x) == 1
    assert coverage(np.repeat(x[:1], 50, axis=0), x) == pytest.approx(1 / 30)


def test_coverage_by_class_looks_within_the_class_only(rng) -> None:
    r, y = rng.standard_normal((40, 3)), np.repeat([0, 1, 2, 3], 10)
    g, y_g = rng.standard_normal((24, 3)), np.repeat([0, 1, 2], 8)
    got = coverage_by_class(g, y_g, r, y)
    assert got == {c: pytest.approx(naive_coverage(g[y_g == c], r[y == c])) for c in (0, 1, 2)} | {3: 0.0}
    with pytest.raises(DataError, match="one label per record"):
        coverage_by_class(g, y_g[:-1], r, y)


def lbfgs_from_the_mean(x: np.ndarray) -> float:
    """As in the thesis: the furthest distance itself is minimised."""
    result = minimize(lambda c: np.linalg.norm(x - c, axis=1).max(), x.mean(axis=0), method="L-BFGS-B")
    return float(np.linalg.norm(x - result.x, axis=1).max())


def dual_bound(x: np.ndarray) -> float:
    """A lower bound of the best radius, from the dual problem: proves that no smaller ball exists."""
    x = x - x.mean(axis=0)
    gram = x @ x.T
    result = minimize(
        lambda w: w @ gram @ w - w @ np.diag(gram),
        np.full(len(x), 1 / len(x)),
        jac=lambda w: 2 * gram @ w - np.diag(gram),
        bounds=[(0, 1)] * len(x),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    w = np.maximum(result.x, 0)
    w /= w.sum()
    return float(np.sqrt(w @ np.diag(gram) - w @ gram @ w))


@settings(quick, max_examples=15)
@given(seed=seeds, n=st.integers(1, 25), d=st.integers(1, 8), heavy=st.booleans())
def test_ball_holds_all_and_is_the_smallest(seed, n, d, heavy) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, size=(n, d)) if heavy else rng.standard_normal((n, d))
    center, radius = bounding_sphere(x)
    distances = np.linalg.norm(x - center, axis=1)
    assert distances.max() == pytest.approx(radius, abs=1e-9)
    assert radius <= np.linalg.norm(x - x.mean(axis=0), axis=1).max() + 1e-12
    assert radius <= lbfgs_from_the_mean(x) * (1 + 1e-5) + 1e-9
    assert radius >= dual_bound(x) * (1 - 1e-9) - 1e-9
    assert radius <= dual_bound(x) * (1 + 1e-3) + 1e-6


@quick
@given(seed=seeds)
def test_ball_follows_shift_and_scale(seed) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((15, 4))
    center, radius = bounding_sphere(x)
    moved, larger = bounding_sphere(5 * x[::-1] + 2)
    assert larger == pytest.approx(5 * radius, rel=1e-5)
    np.testing.assert_allclose(moved, 5 * center + 2, atol=0.05)


def test_ball_by_hand() -> None:
    center, radius = bounding_sphere(np.vstack([np.eye(3), np.zeros((1, 3))]))
    # The furthest three are the corners of a triangle around (1/3, 1/3, 1/3).
    np.testing.assert_allclose(center, [1 / 3] * 3, atol=1e-4)
    assert radius == pytest.approx(np.sqrt(2 / 3), rel=1e-5)
    assert bounding_sphere([[2.0, 3.0]])[1] == 0
    assert bounding_sphere(np.full((9, 4), 0.1))[1] == pytest.approx(0, abs=1e-12)
    with pytest.raises(ConfigError, match="tolerance"):
        bounding_sphere([[1.0]], tolerance=0)


def test_real_embeddings(breast) -> None:
    x, y = breast["train_x"], breast["train_y"]
    part = x[y == 0].astype(np.float64)
    center, radius = bounding_sphere(part)
    around_mean = np.linalg.norm(part - part.mean(axis=0), axis=1).max()
    assert np.linalg.norm(part - center, axis=1).max() == pytest.approx(radius)
    assert radius < around_mean
    assert dispersion(part).mean == pytest.approx(pdist(part).mean())
    assert 0 < coverage(breast["test_x"], x) < 0.3
