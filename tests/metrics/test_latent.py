from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import kstest

from locum.errors import ConfigError, DataError
from locum.metrics import latent_ks, separability

quick = settings(max_examples=30, deadline=None, derandomize=True)


@quick
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40), d=st.integers(1, 3))
def test_ks_agrees_with_scipy(seed, n, d) -> None:
    rng = np.random.default_rng(seed)
    y = np.append(rng.integers(3, size=n), [0, 1, 2])
    z = rng.standard_normal((n + 3, d)) * 1.3 + 0.2
    got = latent_ks(z, y)
    assert got.classes == (0, 1, 2)
    for i, c in enumerate(got.classes):
        for j in range(d):
            want = kstest(z[y == c, j], "norm")
            assert got.statistic[i, j] == pytest.approx(want.statistic)
            assert got.pvalue[i, j] == pytest.approx(want.pvalue, abs=1e-9)


def test_the_prior_passes_and_a_shift_does_not(rng) -> None:
    z, y = rng.standard_normal((2000, 2)), np.repeat([0, 1], 1000)
    assert (latent_ks(z, y).pvalue > 0.001).all()
    z[y == 1, 0] += 0.5
    after = latent_ks(z, y)
    assert after.pvalue[1, 0] < 1e-6
    assert after.pvalue[1, 1] > 0.001
    # The gap of a shift s at its widest is 2 Phi(s/2) - 1.
    assert after.statistic[1, 0] == pytest.approx(0.197, abs=0.05)


def test_separable_latents_are_read_and_equal_ones_are_not(rng) -> None:
    y = np.repeat(np.arange(4), 250)
    corners = np.array([[-3, -3], [-3, 3], [3, -3], [3, 3]])
    apart = separability(corners[y] + 0.5 * rng.standard_normal((1000, 2)), y, np.random.default_rng(0))
    same = separability(rng.standard_normal((1000, 2)), y, np.random.default_rng(0))
    assert apart.value > 0.9
    assert same.low < 0.25 < same.high + 0.05
    assert apart.n == same.n == 200


def test_the_seed_decides(rng) -> None:
    z, y = rng.standard_normal((60, 2)), np.tile(["a", "b"], 30)
    runs = [separability(z, y, np.random.default_rng(7)).value for _ in range(2)]
    assert runs[0] == runs[1]


def test_wrong_input_is_named(rng) -> None:
    z = rng.standard_normal((20, 2))
    with pytest.raises(DataError, match="one class only"):
        separability(z, np.zeros(20, dtype=int), rng)
    with pytest.raises(ConfigError, match="test_share"):
        separability(z, np.tile([0, 1], 10), rng, test_share=1.0)
    with pytest.raises(DataError, match="one label per record"):
        latent_ks(z, [0, 1])
