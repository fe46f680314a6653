"""Judges that read features linearly: windows, and what known labels add."""

from __future__ import annotations

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.obfuscate import linear_judges
from locum.obfuscate.evaluation import make_judges
from locum.obfuscate.linear_judges import BackboneJudge, LinearReader, PatchesJudge, Regression


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
    with pytest.raises(ConfigError, match="Trees read tables only: judge images with network or patches or backbone"):
        make_judges(["trees"], images)
    with pytest.raises(ConfigError, match="Patches read images only"):
        make_judges(["patches"], table)


@pytest.mark.parametrize("n", [30, 200])
def test_a_regression_is_the_ridge_of_the_textbook(n: int, rng: np.random.Generator) -> None:
    found, y = rng.standard_normal((n, 60)), rng.integers(0, 3, n)
    wanted, every = np.eye(3)[y], np.arange(n)
    got = Regression.fit(found, wanted, np.full(60, 2.0), every[:0], every)
    scaled = (found - found.mean(axis=0)) / 2
    # Nothing is held out: the first penalty, 10, is taken.
    weights = np.linalg.solve(scaled.T @ scaled + 10 * np.eye(60), scaled.T @ (wanted - wanted.mean(axis=0))) / 2
    np.testing.assert_allclose(got.weights, weights, atol=1e-9)
    np.testing.assert_allclose(got.scores(found), wanted.mean(axis=0) + (found - found.mean(axis=0)) @ weights)


def test_known_labels_add_what_they_tell_and_weights_of_their_own(rng: np.random.Generator) -> None:
    """For one label the feature means the opposite: only weights per label can use it."""
    known = rng.integers(0, 2, (1500, 1))
    found, noise = rng.standard_normal((1500, 3)), rng.standard_normal(1500)
    y = ((found[:, 0] * np.where(known[:, 0], 1, -1) + 0.3 * noise) > 0).astype(np.int64)
    blind = LinearReader.fit(found[:1000], y[:1000], None, np.random.default_rng(0))
    told = LinearReader.fit(found[:1000], y[:1000], known[:1000], np.random.default_rng(0))
    right = [
        (reader.scores(found[1000:], codes).argmax(axis=1) == y[1000:]).mean()
        for reader, codes in ((blind, None), (told, known[1000:]))
    ]
    assert right[0] < 0.6
    assert right[1] > 0.85
    # A label that was not there is read by what all rows tell.
    assert np.isfinite(told.scores(found[:2], np.array([[9], [9]]))).all()


def test_a_backbone_looks_at_equal_images_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).random((5, 3, 16, 16)).astype(np.float32)
    shown = images[[3, 1, 3, 3, 0]]
    # One by one, without a memory.
    wanted = np.concatenate([BackboneJudge().read(image[None]) for image in shown])
    looked: list[int] = []
    look = BackboneJudge._look
    monkeypatch.setattr(BackboneJudge, "_look", lambda self, pixels: looked.append(len(pixels)) or look(self, pixels))
    judge = BackboneJudge()
    assert np.allclose(judge.read(shown), wanted, atol=1e-4)
    assert np.allclose(judge.read(shown[::-1]), wanted[::-1], atol=1e-4)
    assert judge.read(images).shape == (5, wanted.shape[1])
    assert looked == [3, 0, 2]


def test_a_backbone_forgets_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_judges, "_REMEMBERED", 3)
    images, judge = np.random.default_rng(0).random((5, 1, 16, 16)), BackboneJudge()
    whole = judge.read(images)
    assert len(judge._vectors) == 3
    assert np.allclose(judge.read(images[4:]), whole[4:], atol=1e-4)
    assert len(judge._vectors) == 1
