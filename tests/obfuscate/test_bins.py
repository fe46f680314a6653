"""Numbers as ranges, and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from locum.obfuscate.table import NumberBins

columns = arrays(np.float32, st.tuples(st.integers(1, 60), st.just(2)), elements=st.floats(0, 1, width=32))


@given(columns, st.integers(2, 9))
def test_a_number_comes_back_from_its_own_range(Z: np.ndarray, most: int) -> None:
    bins = NumberBins.fit(Z, (), most)
    Q = bins.split(Z)
    back = bins.join(Q, np.random.default_rng(0))
    assert (Q.sum(axis=1) == 2).all()
    assert np.array_equal(bins.split(back), Q)
    for low, high in zip(bins.low, bins.high, strict=True):
        assert (low <= high).all()
        assert (high[:-1] < low[1:]).all()


def test_what_many_share_comes_back_as_it_was() -> None:
    gains = np.where(np.arange(1000) % 10 == 0, np.random.default_rng(0).random(1000), 0.0).astype(np.float32)
    Z = gains[:, None]
    bins = NumberBins.fit(Z, (), 8)
    back = bins.join(bins.split(Z), np.random.default_rng(1))
    assert (back[Z == 0] == 0).all()
    assert (back[Z > 0] > 0).all()


def test_blocks_keep_their_order_in_front() -> None:
    Z = np.array([[0.2, 1, 0, 0.7], [0.4, 0, 1, 0.1]], dtype=np.float32)
    bins = NumberBins.fit(Z, (slice(1, 3),), 4)
    assert bins.columns == (0, 3)
    Q = bins.split(Z)
    assert np.array_equal(Q[:, :2], Z[:, 1:3])
    assert np.array_equal(bins.join(Q, np.random.default_rng(0))[:, 1:3], Z[:, 1:3])


def test_numbers_beyond_the_fitted_go_to_the_last_range() -> None:
    bins = NumberBins.fit(np.linspace(0.2, 0.8, 50, dtype=np.float32)[:, None], (), 5)
    assert bins.split(np.array([[0.0], [1.0]], dtype=np.float32)).argmax(axis=1).tolist() == [0, 4]
