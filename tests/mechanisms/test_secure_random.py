from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from locum.mechanisms import SecureRandom
from locum.mechanisms.secure_random import normals

ONES = np.ones(500, dtype=np.int64)


def inclusion(seed: int | None, rate: float, units: int = 500, steps: int = 400) -> np.ndarray:
    rng = SecureRandom(np.ones(units, dtype=np.int64), rate, 2, 1.0, insecure_seed=seed)
    table = np.zeros((steps, units), dtype=bool)
    for step in range(steps):
        table[step, rng.draw(step).members] = True
    return table


def noise(seed: int | None, std: float = 1.0, values: int = 100_001, step: int = 0) -> np.ndarray:
    return SecureRandom(ONES, 0.1, values, std, insecure_seed=seed).draw(step).noise.copy()


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_each_unit_joins_each_step_independently(seed: int | None, rate: float) -> None:
    table = inclusion(seed, rate)
    steps, units = table.shape
    spread = np.sqrt(rate * (1 - rate) / table.size)
    assert abs(table.mean() - rate) < 5 * spread
    # Sizes of batches, and turns of units, are binomial: a sampler of fixed size has no spread in the first.
    sizes, turns = table.sum(axis=1), table.sum(axis=0)
    for counts, n in ((sizes, units), (turns, steps)):
        ratio = counts.var() / (n * rate * (1 - rate))
        assert abs(ratio - 1) < 5 * np.sqrt(2 / len(counts))
    assert (
        stats.kstest(sizes + np.random.default_rng(0).uniform(-0.5, 0.5, steps), _jittered(units, rate)).pvalue > 1e-4
    )
    # Neither neighbors nor steps that follow each other know of each other.
    centered = (table - rate) / np.sqrt(rate * (1 - rate))
    for product in (centered[:, 1:] * centered[:, :-1], centered[1:] * centered[:-1]):
        assert abs(product.mean()) < 5 / np.sqrt(product.size)


def _jittered(n: int, rate: float) -> Callable[[np.ndarray], np.ndarray]:
    """The law of a binomial count plus a uniform number from -1/2 to 1/2."""
    law = stats.binom(n, rate)
    return lambda x: law.cdf(np.floor(x - 0.5)) + law.pmf(np.floor(x + 0.5)) * ((x + 0.5) % 1)


def test_the_measured_rate_tells_ten_percent_apart() -> None:
    table = inclusion(5, 0.1, steps=2000)
    error = 5 * np.sqrt(0.09 / table.size)
    assert abs(table.mean() - 0.1) < error < 0.1 * 0.1 / 2


def test_a_rate_of_one_takes_every_unit() -> None:
    assert inclusion(None, 1.0, units=50, steps=20).all()


@pytest.mark.parametrize("seed", [None, 4])
def test_noise_is_normal(seed: int | None) -> None:
    x = noise(seed, std=2.5, values=200_001)
    n = len(x)
    assert abs(x.mean()) < 5 * 2.5 / np.sqrt(n)
    assert abs(x.std() / 2.5 - 1) < 5 / np.sqrt(2 * n)
    assert abs(stats.skew(x)) < 5 * np.sqrt(6 / n)
    assert abs(stats.kurtosis(x)) < 5 * np.sqrt(24 / n)
    assert stats.kstest(x / 2.5, "norm").pvalue > 1e-4
    assert len(np.unique(x)) == n
    # The two numbers of a pair share their radius and nothing else.
    half = n // 2
    first, second = x[:half], x[half + 1 : 2 * half + 1]
    for f in (np.asarray, np.abs, np.square):
        assert abs(np.corrcoef(f(first), f(second))[0, 1]) < 5 / np.sqrt(half)


def test_noise_is_normal_far_out() -> None:
    x = np.abs(np.concatenate([noise(6, values=1_000_000, step=step) for step in range(4)]))
    for z in (3.0, 4.0, 4.5):
        expected = len(x) * 2 * stats.norm.sf(z)
        assert abs((x > z).sum() - expected) < 5 * np.sqrt(expected)


def test_no_word_gives_an_infinite_number() -> None:
    """Every bit pattern is a number: 0 as a uniform would be an infinite radius."""
    edges = [0, -1, 1, 2**63 - 1, -(2**63), 2**62, -(2**62)]
    for radius, angle in itertools.product(edges, edges):
        out = np.empty((1, 2))
        normals(np.array([radius, angle], dtype=np.int64), 1.0, out)
        assert np.isfinite(out).all()
        assert np.linalg.norm(out) < 9.5
    normals(np.array([0, 0], dtype=np.int64), 1.0, out)
    assert np.linalg.norm(out) > 9.4


def test_runs_differ_and_steps_differ_and_tests_repeat() -> None:
    assert not np.isin(noise(None), noise(None)).any()
    assert not np.isin(noise(1), noise(2)).any()
    assert not np.isin(noise(1), noise(1, step=1)).any()
    assert np.array_equal(noise(1), noise(1))
    assert np.array_equal(inclusion(1, 0.3), inclusion(1, 0.3))
    assert not np.array_equal(inclusion(None, 0.3), inclusion(None, 0.3))


@pytest.mark.parametrize("seed", [None, 2])
def test_working_ahead_overwrites_nothing_in_use(seed: int | None) -> None:
    rng = SecureRandom(ONES, 0.1, 999, 1.0, latent=3, insecure_seed=seed)
    seen = []
    for draw in rng.steps(5, 45):
        before = draw.noise.copy()
        seen.append(before)
        assert draw.latent.shape == (len(draw.members), 3)
        np.cos(np.linspace(0, 1, 200_000))
        assert np.array_equal(draw.noise, before)
    assert len(seen) == 40
    assert len(np.unique(np.concatenate(seen))) == 40 * 999
    if seed is not None:
        again = SecureRandom(ONES, 0.1, 999, 1.0, latent=3, insecure_seed=seed)
        assert all(np.array_equal(again.draw(5 + i).noise, x) for i, x in enumerate(seen))


def test_latent_noise_is_standard_normal_and_dealt_by_row() -> None:
    counts = np.arange(1, 201)
    few = SecureRandom(counts, 0.5, 2, 7.0, latent=5, insecure_seed=0).draw(0)
    assert few.latent.shape == (counts[few.members].sum(), 5)
    assert few.latent.dtype == np.float32
    assert stats.kstest(few.latent.ravel(), "norm").pvalue > 1e-4
    more = SecureRandom(np.append(counts, 1000), 0.5, 2, 7.0, latent=5, insecure_seed=0).draw(0)
    assert np.array_equal(more.noise, few.noise)
    assert np.array_equal(more.members[: len(few.members)], few.members)
    assert np.array_equal(more.latent[: len(few.latent)], few.latent)


def test_no_units_to_draw_from() -> None:
    draw = SecureRandom(np.ones(0, dtype=np.int64), 0.5, 3, 1.0, latent=4).draw(0)
    assert len(draw.members) == 0
    assert draw.latent.shape == (0, 4)
    assert draw.noise.shape == (3,)


def naive(counts: np.ndarray, rate: float, values: int, std: float, latent: int, seed: int, step: int) -> tuple:
    """The same numbers, one at a time."""

    def words(stream: int, n: int) -> list[int]:
        bits = np.random.SFC64(np.random.SeedSequence([seed, step, stream]))
        return [int(w) for w in bits.random_raw(n)]

    def rows(stream: int, n: int, width: int, std: float) -> np.ndarray:
        half = (width + 1) // 2
        given, out = words(stream, 2 * half * n), np.empty((n, 2 * half))
        for i, k in itertools.product(range(n), range(half)):
            first, second = given[2 * half * i + k], given[2 * half * i + half + k]
            uniform = (np.float64(first % 2**63) + 0.5) * 2.0**-63
            angle = np.float64(second - 2**64 if second >= 2**63 else second) * (np.pi * 2.0**-63)
            radius = np.sqrt(-2.0 * std**2 * np.log(uniform))
            out[i, k], out[i, half + k] = radius * np.cos(angle), radius * np.sin(angle)
        return out[:, :width]

    members = [i for i, word in enumerate(words(0, len(counts))) if word % 2**63 < round(rate * 2**63)]
    noise = rows(1, 1, values, std)[0]
    return members, noise, rows(2, int(sum(counts[i] for i in members)), latent, 1.0)


@pytest.mark.parametrize("values", [1, 6, 1001])
def test_a_seed_gives_the_numbers_of_a_naive_twin(values: int) -> None:
    counts = np.random.default_rng(0).integers(1, 4, 60)
    rng = SecureRandom(counts, 0.3, values, 2.5, latent=5, dtype=np.float64, insecure_seed=11)
    for step in (0, 7):
        members, noise, latent = naive(counts, 0.3, values, 2.5, 5, 11, step)
        draw = rng.draw(step)
        assert draw.members.tolist() == members
        assert np.array_equal(draw.noise, noise)
        assert np.array_equal(draw.latent, latent)


def test_it_needs_no_torch() -> None:
    code = "import sys, locum.mechanisms as m; m.SecureRandom; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
