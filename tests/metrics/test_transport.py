from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from locum.errors import ConfigError
from locum.metrics import entropic_wasserstein, sliced_wasserstein
from locum.metrics.transport import _monotone_plan, _self_value, _sinkhorn

quick = settings(max_examples=30, deadline=None, derandomize=True)

seeds = st.integers(0, 2**32 - 1)


def exact(a: np.ndarray, b: np.ndarray, p: int = 2) -> float:
    """Exact W_p of two sets of one size, by linear assignment."""
    cost = cdist(a, b) ** p
    rows, cols = linear_sum_assignment(cost)
    return float(cost[rows, cols].mean() ** (1 / p))


def exact_line(a: np.ndarray, b: np.ndarray) -> float:
    """Exact W_2 on a line for any two sizes: repeat both to their common multiple, then sort."""
    n = np.lcm(len(a), len(b))
    x, y = np.sort(np.repeat(a, n // len(a))), np.sort(np.repeat(b, n // len(b)))
    return float(np.sqrt(np.mean((x - y) ** 2)))


@quick
@given(seed=seeds, n=st.integers(1, 12), m=st.integers(1, 12))
def test_one_dimension_is_exact_for_unequal_sizes(seed, n, m) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, 1)), rng.standard_normal((m, 1)) + 1
    got = sliced_wasserstein(a, b, rng, projections=2)
    assert got.value == pytest.approx(exact_line(a[:, 0], b[:, 0]))
    assert sliced_wasserstein(b, a, rng, projections=2).value == pytest.approx(got.value)


@quick
@given(n=st.integers(1, 30), m=st.integers(1, 30))
def test_the_plan_on_a_line_keeps_all_mass(n, m) -> None:
    rows, cols, mass = _monotone_plan(n, m)
    np.testing.assert_allclose(np.bincount(rows, weights=mass), 1 / n)
    np.testing.assert_allclose(np.bincount(cols, weights=mass), 1 / m)
    assert (mass > 0).all()


@quick
@given(seed=seeds)
def test_sliced_is_a_mean_over_directions_and_below_the_exact_distance(seed) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((20, 3)), rng.standard_normal((20, 3)) + 0.5
    got = sliced_wasserstein(a, b, np.random.default_rng(1), projections=40)
    draw = np.random.default_rng(1)
    squares = []
    for size in (32, 8):
        directions = draw.standard_normal((3, size))
        squares += [exact_line(a @ v, b @ v) ** 2 for v in (directions / np.linalg.norm(directions, axis=0)).T]
    assert got.value == pytest.approx(np.sqrt(np.mean(squares)))
    assert got.low <= got.value <= got.high
    assert got.value <= exact(a, b)


def test_sliced_shift_in_d_dimensions(rng) -> None:
    a = rng.standard_normal((100, 25))
    shift = np.zeros(25)
    shift[0] = 5.0
    e = sliced_wasserstein(a, a + shift, rng, projections=2000)
    assert e.low <= 5 / np.sqrt(25) <= e.high
    assert sliced_wasserstein(a, a[::-1], rng).value == pytest.approx(0)


@quick
@given(seed=seeds, p=st.sampled_from([1, 2]), d=st.integers(1, 4))
def test_entropic_tends_to_the_exact_distance_from_above(seed, p, d) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((12, d)), rng.standard_normal((12, d)) + 1
    want = exact(a, b, p)
    coarse, fine = (entropic_wasserstein(a, b, epsilon=e, p=p) for e in (0.5, 0.02))
    assert want * (1 - 1e-9) <= fine <= coarse * (1 + 1e-3)
    assert fine == pytest.approx(want, rel=0.05)
    assert entropic_wasserstein(b, a, epsilon=0.02, p=p) == pytest.approx(fine, rel=1e-3)


@settings(quick, max_examples=10)
@given(seed=seeds)
def test_debiased_is_zero_for_equal_sets_and_follows_shift_and_scale(seed) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((15, 3)), rng.standard_normal((10, 3)) + 2
    assert entropic_wasserstein(a, a, debias=True) == pytest.approx(0, abs=1e-3)
    assert entropic_wasserstein(a, a) > 0
    got = entropic_wasserstein(a, b, debias=True)
    assert entropic_wasserstein(4 * a + 7, 4 * b + 7, debias=True) == pytest.approx(4 * got, rel=1e-4)
    assert entropic_wasserstein(a, a + 3.0, debias=True) == pytest.approx(3 * np.sqrt(3), rel=1e-3)


def test_entropic_problem_against_plain_sinkhorn(rng) -> None:
    """The textbook iteration on the kernel, far beyond convergence."""
    a, b = rng.standard_normal((8, 2)), rng.standard_normal((6, 2))
    cost = cdist(a, b, "sqeuclidean")
    kernel = np.exp(-cost / (0.3 * cost.mean()))
    u = np.ones(8)
    for _ in range(5000):
        v = 1 / (6 * (kernel.T @ u))
        u = 1 / (8 * (kernel @ v))
    want = np.sqrt((u[:, None] * kernel * v * cost).sum())
    assert entropic_wasserstein(a, b, epsilon=0.3, tolerance=1e-9) == pytest.approx(want, rel=1e-6)
    plan = u[:, None] * kernel * v
    blur = 0.3 * cost.mean()
    value = (plan * cost).sum() + blur * (plan * np.log(plan * 48)).sum()
    assert _sinkhorn(cost, blur, 1e-9, 10_000)[1] == pytest.approx(value, rel=1e-6)


def test_self_value_agrees_with_the_general_solver(rng) -> None:
    a = rng.standard_normal((9, 2))
    cost = cdist(a, a, "sqeuclidean")
    blur = 0.3 * cost.mean()
    assert _self_value(a, 2, blur, 1e-9, 1000) == pytest.approx(_sinkhorn(cost, blur, 1e-9, 10_000)[1], rel=1e-6)


def test_small_blur_and_far_outliers_do_not_overflow(rng) -> None:
    a = np.vstack([rng.standard_normal((30, 2)), [[1e4, 0.0]]])
    b = np.vstack([rng.standard_normal((30, 2)), [[1e4, 1.0]]])
    # The far pair sets the mean cost, so that the rest is blurred: a few units, and no more.
    assert exact(a, b) <= entropic_wasserstein(a, b, epsilon=1e-3) < 4
    assert entropic_wasserstein(np.ones((3, 2)), np.ones((4, 2))) == 0


def test_wrong_settings_are_named(rng) -> None:
    a = rng.standard_normal((20, 2))
    with pytest.raises(ConfigError, match="epsilon"):
        entropic_wasserstein(a, a, epsilon=0)
    with pytest.raises(ConfigError, match="did not converge"):
        entropic_wasserstein(a, a + 1, epsilon=0.001, max_iterations=1)
    with pytest.raises(ConfigError, match="sub-sample"):
        entropic_wasserstein(np.zeros((7000, 1)), np.zeros((7000, 1)))
    with pytest.raises(ConfigError, match="projections"):
        sliced_wasserstein(a, a, rng, projections=1)


def test_real_embeddings(breast) -> None:
    train, test = breast["train_x"][:156], breast["test_x"]
    want = exact(train.astype(float), test.astype(float))
    got = entropic_wasserstein(train, test, epsilon=0.01)
    assert want <= got * (1 + 1e-9)
    assert got == pytest.approx(want, rel=0.05)
    assert sliced_wasserstein(train, test, np.random.default_rng(0)).value < want
