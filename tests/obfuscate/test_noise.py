"""The function f."""

from __future__ import annotations

import math

import numpy as np
import pytest

from locum.accounting import Gaussian, epsilon_of
from locum.errors import ConfigError
from locum.obfuscate.noise import PaperNoise, ShapedNoise

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 2, (4000, 1))
MIX = RNG.normal(size=(5, 5))
REST = (RNG.normal(size=(4000, 5)) @ MIX.T + 3 * CODES).astype(np.float32)


def test_the_seeds_noise_follows_each_records_own_mean() -> None:
    rest = np.repeat([[1.0], [-4.0], [0.0]], 5000, axis=1).astype(np.float32)
    noise = PaperNoise(floor=0.5)
    out = noise.apply(rest, np.zeros((3, 1), int), 2.0, np.random.default_rng(1)) - rest
    assert np.allclose(out.std(axis=1), [2.0, 8.0, 1.0], rtol=0.05)


def test_without_its_floor_a_record_near_zero_gets_no_noise() -> None:
    rest = np.array([[1.0, -1.0]], dtype=np.float32)
    authors = PaperNoise.fit(REST, authors_compat=True, per_batch=False)
    assert np.array_equal(authors.apply(rest, np.zeros((1, 1), int), 9.0, np.random.default_rng(0)), rest)
    ours = PaperNoise.fit(REST, authors_compat=False, per_batch=False)
    assert ours.floor > 0
    assert not np.allclose(ours.apply(rest, np.zeros((1, 1), int), 9.0, np.random.default_rng(0)), rest)


def test_one_mean_for_a_whole_call_in_the_authors_way() -> None:
    rest = np.concatenate([np.zeros((1000, 50)), np.full((1000, 50), 2.0)]).astype(np.float32)
    noise = PaperNoise.fit(rest, authors_compat=True, per_batch=True)
    out = noise.apply(rest, np.zeros((2000, 1), int), 1.0, np.random.default_rng(0)) - rest
    assert np.allclose([out[:1000].std(), out[1000:].std()], 1.0, rtol=0.05)


@pytest.mark.parametrize("knob", [0.3, 2.0, math.inf])
def test_shaped_noise_leaves_means_and_spread_as_they_are(knob: float) -> None:
    noise = ShapedNoise.fit(REST, CODES, blur=1e-6, bound=100.0)
    out = noise.apply(REST, CODES, knob, np.random.default_rng(2))
    for k in (0, 1):
        a, b = REST[CODES[:, 0] == k], out[CODES[:, 0] == k]
        assert np.allclose(a.mean(axis=0), b.mean(axis=0), atol=0.25)
        assert np.allclose(np.cov(a.T), np.cov(b.T), atol=0.12 * np.trace(np.cov(a.T)))


def test_no_noise_gives_the_record_and_infinite_noise_nothing_of_it() -> None:
    noise = ShapedNoise.fit(REST, CODES, blur=1e-6, bound=100.0)
    assert np.allclose(noise.apply(REST, CODES, 0.0, np.random.default_rng(0)), REST, atol=1e-3)
    gone = noise.apply(REST, CODES, math.inf, np.random.default_rng(0))
    other = noise.apply(REST[::-1].copy(), CODES, math.inf, np.random.default_rng(0))
    assert np.array_equal(gone, other)


def test_what_a_record_adds_is_bounded() -> None:
    noise = ShapedNoise.fit(REST, CODES, blur=1.0, bound=2.0)
    far = (REST[:10] * 1e4).astype(np.float32)
    codes, rng = CODES[:10], np.random.default_rng
    a, b = noise.apply(far, codes, 3.0, rng(5)), noise.apply(REST[:10], codes, 3.0, rng(5))
    kept = 1 / math.sqrt(1 + 9)
    for i, k in enumerate(codes[:, 0]):
        apart = np.linalg.norm(np.linalg.solve(noise.factors[k], a[i] - b[i]))
        assert apart <= kept * 2 * noise.bound + 1e-3


def test_local_epsilon_is_that_of_a_normal_mechanism() -> None:
    noise = ShapedNoise.fit(REST, CODES, blur=1.0, bound=2.0)
    assert noise.local_epsilon(8.0, 1e-5) == epsilon_of([Gaussian(2.0)], 1e-5)
    assert noise.local_epsilon(0.0, 1e-5) == math.inf
    assert noise.local_epsilon(math.inf, 1e-5) == 0.0
    assert PaperNoise(1.0).local_epsilon(8.0, 1e-5) == math.inf


def test_an_unknown_combination_is_drawn_from_all() -> None:
    noise = ShapedNoise.fit(REST, CODES, blur=1e-6)
    out = noise.apply(REST, np.full_like(CODES, -1), math.inf, np.random.default_rng(0))
    assert np.allclose(out.mean(axis=0), REST.mean(axis=0), atol=0.3)


def test_both_are_restored_from_their_numbers() -> None:
    for noise in (ShapedNoise.fit(REST, CODES, blur=1.0), PaperNoise(0.25, per_batch=True)):
        again = type(noise).restore(noise.tensors())
        one, two = (n.apply(REST, CODES, 1.0, np.random.default_rng(3)) for n in (noise, again))
        assert np.array_equal(one, two)


def test_the_seeds_noise_has_no_limit() -> None:
    with pytest.raises(ConfigError, match="no limit"):
        PaperNoise(1.0).apply(REST, CODES, math.inf, np.random.default_rng(0))


def test_few_records_do_not_get_their_own_mean() -> None:
    codes = CODES.copy()
    codes[:3] = 7
    noise = ShapedNoise.fit(REST, codes, blur=1e-6)
    assert noise.combinations.tolist() == [[0], [1]]
    out = noise.apply(REST[:3], codes[:3], math.inf, np.random.default_rng(0))
    assert np.isfinite(out).all()
    assert len(noise.means) == 3
