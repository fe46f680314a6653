"""What a subject adds to a gradient: the fast code against a twin that takes one subject after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from locum.generate.private import gradients

FULL, GRID = 2**18 - 1, 2**18


def _twin(residuals: Any, vectors: Any) -> Any:
    """Whole residuals of one subject, with lengths in Python's integers."""
    size = 1 / max(1.0, float(np.abs(residuals).max(initial=0.0)))
    while True:
        whole = np.trunc(residuals * (size * FULL))
        square = _square(whole, vectors)
        if square <= GRID**4:
            return whole
        size *= min(GRID**2 / float(np.sqrt(float(square))), 1.0) * (1 - 2.0**-12)


def _square(whole: Any, vectors: Any) -> int:
    """The squared length of the sum over records of residuals times vectors, entry by entry."""
    total = 0
    for row in whole.astype(object):
        for column in vectors.T.astype(object):
            total += int(sum(int(a) * int(b) for a, b in zip(row, column, strict=True))) ** 2
    return total


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.sampled_from([0.0, 1e-9, 0.3, 1.0, 7.0, 1e6]),
    st.booleans(),
)
def test_every_subject_is_cut_as_if_it_were_alone(seed: int, sizes: list[int], scale: float, alike: bool) -> None:
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(len(sizes)), sizes)[rng.permutation(sum(sizes))]
    n, d, classes = len(subject), 5, 3
    unit = np.repeat(rng.normal(size=(1, d)), n, axis=0) if alike else rng.normal(size=(n, d))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    whole = np.trunc(unit * FULL)
    residuals = rng.normal(size=(classes, n)) * scale
    found = gradients._Pairs(subject, whole).cut(residuals)
    for who in range(len(sizes)):
        rows = np.flatnonzero(subject == who)
        assert _square(found[:, rows], whole[rows]) <= GRID**4
        if len(rows) > 1:
            twin = _twin(residuals[:, rows], whole[rows])
            # The root of a rounded square may differ in its last digit, and the scale with it.
            np.testing.assert_allclose(found[:, rows], twin, atol=1.0)
            # Bit for bit the same without the others.
            alone = gradients._Pairs(np.zeros(len(rows), np.int64), whole[rows]).cut(residuals[:, rows])
            np.testing.assert_array_equal(found[:, rows], alone)


def test_at_the_bound_lengths_are_compared_exactly() -> None:
    # Two records with the same vector of length 2**18 exactly, and residuals whose sum is 2**18 or one more.
    whole = np.zeros((2, 4))
    whole[:, 0] = GRID
    same = (whole @ whole.T).astype(np.int64)[None]
    for residuals, fits in (([GRID - 5, 5], True), ([GRID - 5, 6], False)):
        high, rest, _ = gradients._lengths_squared(np.array([[residuals]], dtype=np.float64), same)
        assert int(high[0]) * 2**36 + int(rest[0]) == sum(residuals) ** 2 * GRID**2
        assert bool(high[0] < GRID**2 or (high[0] == GRID**2 and rest[0] == 0)) is fits
