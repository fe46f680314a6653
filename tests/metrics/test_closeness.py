from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import DataError
from locum.metrics import average_nearest_distance, nearest_distance_profile

quick = settings(max_examples=30, deadline=None, derandomize=True)


def naive_distance(released: np.ndarray, real: np.ndarray) -> float:
    return sum(min(float(np.linalg.norm(a - f)) for f in real) for a in released) / len(released)


@quick
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 15), m=st.integers(1, 15), d=st.integers(1, 5))
def test_d_is_equation_1_of_the_replica_paper(seed, n, m, d) -> None:
    rng = np.random.default_rng(seed)
    released, real = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    e = average_nearest_distance(released, real)
    assert e.value == pytest.approx(naive_distance(released, real))
    assert e.n == n
    assert e.low <= e.value <= e.high
    assert average_nearest_distance(3 * released + 1, 3 * real + 1).value == pytest.approx(3 * e.value)


def test_a_copy_has_distance_zero_and_a_profile_that_says_so(rng) -> None:
    real = rng.standard_normal((200, 8)).astype(np.float32)
    assert average_nearest_distance(real, real).value == 0
    p = nearest_distance_profile(real, real)
    assert (p.copies, p.closer) == (200, 1.0)
    assert p.mean_within_real.low > 0


def test_k_same_lies_further_away_than_a_copy_and_nearer_than_noise(rng) -> None:
    real = rng.standard_normal((100, 8))
    pairs = real.reshape(50, 2, 8).mean(axis=1)
    noise = 10 * rng.standard_normal((50, 8))
    assert 0 < average_nearest_distance(pairs, real).value < average_nearest_distance(noise, real).value


def test_fresh_data_looks_like_the_real_data(rng) -> None:
    real, fresh = rng.standard_normal((2000, 4)), rng.standard_normal((2000, 4))
    p = nearest_distance_profile(fresh, real)
    assert p.copies == 0
    assert 0.03 < p.closer < 0.08
    assert p.mean_released.value == pytest.approx(p.mean_within_real.value, rel=0.05)


def test_profile_by_hand() -> None:
    p = nearest_distance_profile([[0.0], [2.0]], [[0.0], [1.0], [5.0]])
    assert p.levels[0] == 0.0
    assert p.levels[-1] == 1.0
    assert (p.released[0], p.released[-1]) == (0.0, 1.0)
    assert (p.within_real[0], p.within_real[-1]) == (1.0, 4.0)
    assert p.mean_released.value == 0.5
    assert p.mean_within_real.value == 2.0
    assert json.loads(json.dumps(p.to_dict()))["mean_released"]["n"] == 2


def test_one_real_record_has_no_neighbor() -> None:
    with pytest.raises(DataError, match="at least 2 records"):
        nearest_distance_profile([[0.0]], [[0.0]])


def test_real_embeddings(breast) -> None:
    p = nearest_distance_profile(breast["test_x"], breast["train_x"])
    # The data set is known to hold one train image again in its test part.
    assert p.copies == 1
    assert p.closer < 0.2
