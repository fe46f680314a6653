"""Noise with the spectrum of images."""

from __future__ import annotations

import math

import numpy as np
import pytest

from locum.errors import DataError
from locum.obfuscate.noise import SpectralNoise

N, SIDE = 600, 16


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    """Clouds, coarser than fine, alike in their channels, brighter in the upper half for label 1."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (N, 1))
    waves = np.fft.rfft2(rng.normal(size=(N, 2, SIDE, SIDE)))
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
    clouds = np.fft.irfft2(waves / (1 + 20 * frequency), s=(SIDE, SIDE))
    clouds[:, 1] = 0.8 * clouds[:, 0] + 0.2 * clouds[:, 1]
    out = 0.5 + 0.12 * clouds / clouds.std()
    out[codes[:, 0] == 1, :, :8] += 0.1
    return out.clip(0, 1).astype(np.float32), codes


def power(x: np.ndarray) -> np.ndarray:
    return np.square(np.abs(np.fft.rfft2(x - x.mean(axis=0)))).mean(axis=0)


def test_no_noise_gives_the_images(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, codes = images
    noise = SpectralNoise.fit(X, codes)
    np.testing.assert_allclose(noise.apply(X, codes, 0, np.random.default_rng(0)), X, atol=2e-4)
    np.testing.assert_allclose(noise.apply(X, codes, 0, np.random.default_rng(0), plain=0.3), X, atol=2e-4)


@pytest.mark.parametrize("strength", [1.0, 3.0, math.inf])
def test_means_and_spectra_stay_whatever_the_noise(images: tuple[np.ndarray, np.ndarray], strength: float) -> None:
    X, codes = images
    out = SpectralNoise.fit(X, codes).apply(X, codes, strength, np.random.default_rng(1))
    for label in (0, 1):
        a, b = X[codes[:, 0] == label], out[codes[:, 0] == label]
        np.testing.assert_allclose(a.mean(axis=(0, 2, 3)), b.mean(axis=(0, 2, 3)), atol=0.02)
        ratio = np.sort((power(b) / power(a)).ravel())
        assert 0.8 < np.median(ratio) < 1.2
        assert 0.5 < ratio[5] < ratio[-5] < 2


def test_the_whole_noise_is_by_the_definition(images: tuple[np.ndarray, np.ndarray]) -> None:
    """Against the long way round: the covariance of all pixels that the spectrum stands for."""
    X, codes = images
    noise = SpectralNoise.fit(X, codes)
    unit = np.zeros((2 * SIDE * SIDE, 2, SIDE, SIDE), np.float32)
    unit.reshape(len(unit), -1)[np.arange(len(unit)), np.arange(len(unit))] = 1
    whitening = noise._white(unit).reshape(len(unit), -1).astype(np.float64)
    covariance = np.linalg.inv(whitening @ whitening.T)
    centered = X - noise.means[codes[:, 0]]
    shifted = np.stack([np.roll(centered, (i, j), axis=(2, 3)) for i in range(0, SIDE, 4) for j in range(0, SIDE, 4)])
    wanted = np.cov(shifted.reshape(-1, 2 * SIDE * SIDE).T)
    assert np.corrcoef(covariance.ravel(), wanted.ravel())[0, 1] > 0.98
    assert np.trace(covariance) == pytest.approx(np.trace(wanted), rel=0.05)


def test_a_fresh_draw_tells_nothing_but_the_label(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, codes = images
    noise = SpectralNoise.fit(X, codes)
    a, b = (noise.apply(X[rows], codes[rows], math.inf, np.random.default_rng(2)) for rows in (codes[:, 0] == 1,) * 2)
    np.testing.assert_array_equal(a, b)
    other = noise.apply(X[::-1][: len(a)], np.ones((len(a), 1), np.int64), math.inf, np.random.default_rng(2))
    np.testing.assert_array_equal(a, other)


def test_labels_not_told_do_not_move_the_mean(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, codes = images
    noise = SpectralNoise.fit(X, codes)
    up = [
        noise.apply(X, codes, math.inf, np.random.default_rng(3), plain=p)[:, :, :8].mean(axis=(1, 2, 3))
        for p in (0.0, 0.5, 1.0)
    ]
    gaps = [float(u[codes[:, 0] == 1].mean() - u[codes[:, 0] == 0].mean()) for u in up]
    assert abs(gaps[0]) < 0.03 < gaps[1] < gaps[2]


def test_it_guesses_labels(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, codes = images
    assert (SpectralNoise.fit(X[:300], codes[:300]).guess(X[300:]) == codes[300:]).mean() > 0.8


def test_the_guarantee(images: tuple[np.ndarray, np.ndarray]) -> None:
    noise = SpectralNoise.fit(*images)
    assert noise.local_epsilon(0, 1e-6) == noise.local_epsilon(0.01, 1e-6) == math.inf
    assert noise.local_epsilon(math.inf, 1e-6) == 0
    assert noise.local_epsilon(1e4, 1e-6) < noise.local_epsilon(10, 1e-6)
    # An image far from all others is cut to the bound, in units of the noise: the guarantee covers it.
    far = noise._white(np.ones((1, 2, SIDE, SIDE), np.float32) * 50)
    assert np.linalg.norm(far) > noise.bound


def test_it_comes_back(images: tuple[np.ndarray, np.ndarray]) -> None:
    X, codes = images
    noise = SpectralNoise.fit(X, codes)
    again = SpectralNoise.restore(noise.tensors())
    a, b = (n.apply(X[:9], codes[:9], 2, np.random.default_rng(0)) for n in (noise, again))
    np.testing.assert_array_equal(a, b)


def test_labels_of_few_have_no_mean() -> None:
    with pytest.raises(DataError, match="five or more images"):
        SpectralNoise.fit(np.zeros((8, 1, 16, 16), np.float32), np.arange(8)[:, None])
