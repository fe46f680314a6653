"""Moments from pieces are those of all records, in whatever order parts are merged."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError
from locum.metrics import Moments, frechet_distance, frechet_from_moments


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 40), min_size=1, max_size=8), st.sampled_from([0.0, 1e4, 1e6]))
def test_pieces_in_any_order(seed: int, sizes: list[int], offset: float) -> None:
    rng = np.random.default_rng(seed)
    n, groups = sum(sizes), 3
    X, codes = rng.normal(size=(n, 4)) + offset, rng.integers(0, groups, n)
    edges = np.cumsum([0, *sizes])
    parts = []
    for a, b in pairwise(edges):
        part = Moments(groups, 4)
        part.add(X[a:b], codes[a:b])
        parts.append(part)
    merged = Moments(groups, 4)
    for k in rng.permutation(len(parts)):
        merged.merge(parts[k])
    # The naive twin: all records at once.
    naive = np.zeros((4, 4))
    for g in range(groups):
        mine = X[codes == g].astype(np.longdouble)
        if len(mine):
            centered = (mine - mine.mean(axis=0)).astype(np.float64)
            naive += centered.T @ centered
            np.testing.assert_allclose(merged.means[g], mine.mean(axis=0).astype(np.float64), rtol=1e-10)
    np.testing.assert_allclose(merged.scatter, naive, rtol=1e-10, atol=1e-10 * max(1.0, offset) * n)
    assert merged.counts.tolist() == np.bincount(codes, minlength=groups).tolist()
    np.testing.assert_array_equal(merged.low, X.min(axis=0))
    np.testing.assert_array_equal(merged.high, X.max(axis=0))


def test_distances_from_moments() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(400, 6)), rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 1
    moments = []
    for X in (A, B):
        one = Moments(1, 6)
        one.add(X[:150])
        one.add(X[150:])
        moments.append(one)
    expected = frechet_distance(A, B).value
    assert frechet_from_moments(*moments).value == pytest.approx(expected, rel=1e-10)
    few = Moments(1, 6)
    few.add(A[:5])
    with pytest.raises(ConfigError, match="more records than features"):
        frechet_from_moments(few, moments[1])
