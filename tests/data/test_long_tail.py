"""Long tails with the counts that the literature has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.data import load_sample, long_tail_counts, make_long_tail
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingSet


def test_known_totals_of_cifar() -> None:
    assert sum(long_tail_counts(5000, 10, 100)) == 12406
    assert sum(long_tail_counts(500, 100, 100)) == 10847
    assert long_tail_counts(40, 1, 7) == [40]
    assert long_tail_counts(40, 3, 1) == [40, 40, 40]


@given(st.integers(1, 12), st.integers(2, 6), st.integers(1, 50))
def test_exact_powers_lose_no_record_to_rounding(root: int, classes: int, times: int) -> None:
    ratio = root ** (classes - 1)
    n_max = ratio * times
    exact = [int(Fraction(n_max) / root**i) for i in range(classes)]
    assert long_tail_counts(n_max, classes, ratio) == exact


def test_a_tail_has_its_counts_and_only_records_of_the_set() -> None:
    digits = load_sample("digits")
    order = [*range(9, -1, -1)]
    tail = make_long_tail(digits, 20, np.random.default_rng(0), order=order, n_max=150)
    assert tail.counts[order].tolist() == long_tail_counts(150, 10, 20)
    numbered = EmbeddingSet(np.arange(len(digits))[:, None], digits.y, info=digits.info)
    chosen = make_long_tail(numbered, 20, np.random.default_rng(0), order=order, n_max=150).X[:, 0].astype(int)
    assert len(set(chosen.tolist())) == len(chosen)
    assert chosen.tolist() == sorted(chosen.tolist())
    np.testing.assert_array_equal(digits.X[chosen], tail.X)
    np.testing.assert_array_equal(digits.y[chosen], tail.y)


def test_the_head_takes_all_its_records_by_default() -> None:
    digits = load_sample("digits")
    assert make_long_tail(digits, 10, np.random.default_rng(0)).counts[0] == digits.counts[0]


def test_each_wrong_wish_gets_its_own_sentence() -> None:
    rng = np.random.default_rng(0)
    data = EmbeddingSet.from_arrays(np.ones((6, 1)), [*"aaaabb"])
    with pytest.raises(DataError, match="Class 'b' has 2 records and its place in the tail needs 4"):
        make_long_tail(data, 1, rng)
    with pytest.raises(DataError, match=r"Class 'a' has 4 records .* needs 5"):
        make_long_tail(data, 2, rng, n_max=5)
    for order in ([0], [0, 0], [1, 2]):
        with pytest.raises(ConfigError, match="`order` must name each class code"):
            make_long_tail(data, 2, rng, order=order)
    for ratio in (0.5, 0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="`ratio` must be 1 or more"):
            long_tail_counts(10, 2, ratio)
    with pytest.raises(ConfigError, match="rarest class is empty"):
        long_tail_counts(10, 2, 11)
    with pytest.raises(ConfigError, match="`classes` must be 1 or more"):
        long_tail_counts(10, 0, 2)
