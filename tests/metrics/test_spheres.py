from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from locum.errors import DataError
from locum.metrics import bounding_sphere, sphere_by_class

quick = settings(max_examples=30, deadline=None, derandomize=True)


@quick
@given(
    seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 15), min_size=1, max_size=4), d=st.integers(1, 6)
)
def test_one_ball_a_class(seed: int, sizes: list[int], d: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(y), d))
    found, compat = sphere_by_class(x, y), sphere_by_class(x, y, authors_compat=True)
    for c in range(len(sizes)):
        part = x[y == c]
        assert found[c] == bounding_sphere(part)[1]
        # From the mean on it can only shrink, and never below the smallest ball.
        around_mean = np.linalg.norm(part - part.mean(axis=0), axis=1).max()
        assert found[c] <= compat[c] * (1 + 1e-6) + 1e-9
        assert compat[c] <= around_mean + 1e-9


def test_the_authors_way_agrees_with_plain_scipy(rng: np.random.Generator) -> None:
    x = rng.normal(size=(30, 3))
    result = minimize(lambda c: np.linalg.norm(x - c, axis=1).max(), x.mean(axis=0), method="L-BFGS-B")
    want = np.linalg.norm(x - result.x, axis=1).max()
    got = sphere_by_class(x, np.zeros(30, dtype=int), authors_compat=True)[0]
    assert got == pytest.approx(want, rel=0.02)


def test_wrong_input_is_named() -> None:
    with pytest.raises(DataError, match="one label per record"):
        sphere_by_class([[0.0], [1.0]], [0])


def test_real_embeddings(breast) -> None:
    x, y = breast["train_x"], breast["train_y"].ravel()
    found = sphere_by_class(x, y)
    compat = sphere_by_class(x, y, authors_compat=True)
    assert set(found) == {0, 1}
    assert all(found[c] <= compat[c] * (1 + 1e-6) < 1.2 * found[c] for c in found)
