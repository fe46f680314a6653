"""The learner that compares windows."""

from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.obfuscate.judges import PatchesJudge, make_judges


def stripes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Stripes that lie or stand, anywhere: no single pixel tells which."""
    codes = rng.integers(0, 2, n)
    wave = 0.5 + 0.3 * np.sin(np.arange(16) * 1.6 + rng.uniform(0, 6, (n, 1)))
    images = np.where(codes[:, None, None], wave[:, None, :], wave[:, :, None]) + rng.normal(0, 0.2, (n, 16, 16))
    return images[:, None].astype(np.float32), codes


def test_it_sees_patterns_wherever_they_are(rng: np.random.Generator) -> None:
    predict = PatchesJudge(filters=20).fit(*stripes(300, rng), seed=0)
    X, codes = stripes(200, rng)
    assert (predict(X) == codes).mean() > 0.95


def test_it_learns_nothing_from_random_labels(rng: np.random.Generator) -> None:
    X, _ = stripes(600, rng)
    codes = rng.integers(0, 2, 600)
    predict = PatchesJudge(filters=20).fit(X[:400], codes[:400], seed=0)
    assert abs((predict(X[400:]) == codes[400:]).mean() - 0.5) < 0.15


def test_a_seed_gives_the_same_and_one_code_is_always_guessed(rng: np.random.Generator) -> None:
    X, codes = stripes(120, rng)
    a, b = (PatchesJudge(filters=10).fit(X, codes, seed=3)(X) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert set(PatchesJudge().fit(X, np.full(120, 4), seed=0)(X[:5])) == {4}


def test_each_reads_its_own_kind() -> None:
    images, table = np.zeros((4, 1, 16, 16), np.float32), np.zeros((4, 3), np.float32)
    with pytest.raises(ConfigError, match="Trees read tables only: judge images with network or patches"):
        make_judges(["trees"], images)
    with pytest.raises(ConfigError, match="Patches read images only"):
        make_judges(["patches"], table)
