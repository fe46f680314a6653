"""Noise for images: as images themselves vary from place to place, whatever their label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError
from understudy.obfuscate.noise import by_labels, epsilon_of_noise, row_of

__all__ = ["SpectralNoise"]

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
# What rounding to whole pixels does: the least variance of any pattern.
_ROUNDING = 1 / (12 * 255**2)


@dataclass(frozen=True, slots=True, eq=False)
class SpectralNoise:
    """Normal noise with the spectrum of the images' deviations from the mean image of their utility labels.

    `noise` is its standard deviation in units of theirs, for fine patterns and coarse ones alike; the sum is scaled
    back, so that whatever the knob, images keep the spectrum of real ones, and a model that learns from them works on
    real ones. One spectrum serves all labels: with one for each, receivers would learn to tell spectra instead of
    images. An infinite knob gives a fresh draw. What an image adds is cut at length `bound`, so that
    `local_epsilon` is proven.
    `means` has a row for each combination in `combinations`, and a last one of all images. `factors` are lower
    triangles, one for each frequency, over the channels.
    """

    combinations: Codes
    means: Array
    factors: Array
    bound: float

    @classmethod
    def fit(cls, images: Array, codes: Codes) -> Self:
        """From images (n, channels, side, side) and the codes of their utility labels."""
        found, which = by_labels(codes)
        if not len(found):
            raise DataError("No utility label has five images or more: join rare labels.")
        means = np.stack([*(images[which == k].mean(axis=0) for k in range(len(found))), images.mean(axis=0)])
        waves = np.fft.rfft2(images - means[which], norm="ortho")
        spectrum = np.einsum("nafg,nbfg->fgab", waves, waves.conj()) / len(images)
        factors = np.linalg.cholesky(spectrum + _ROUNDING * np.eye(images.shape[1]))
        return cls(found, means.astype(np.float32), factors.astype(np.complex64), 1.5 * math.sqrt(images[0].size))

    def apply(self, images: Array, codes: Codes, noise: float, rng: np.random.Generator, plain: float = 1.0) -> Array:
        """`images` with noise: with the weight 1 / sqrt(1 + noise ** 2) of their own, around the mean of their label.

        `plain`, from 0 to 1, moves that mean from the one of all images to the label's own.
        """
        kept = 1 / math.sqrt(1 + noise**2) if noise < math.inf else 0.0
        centre = self.means[-1] + np.float32(plain) * (self.means[row_of(codes, self.combinations)] - self.means[-1])
        own = self._white(images - centre)
        lengths = np.sqrt(np.square(own).sum(axis=(1, 2, 3), keepdims=True))
        own *= np.minimum(1, self.bound / np.maximum(lengths, 1e-12))
        fresh = rng.standard_normal(own.shape, dtype=np.float32)
        out: Array = centre + _filtered(self.factors, kept * own + math.sqrt(1 - kept**2) * fresh)
        return out.clip(0, 1).astype(np.float32)

    def guess(self, images: Array) -> Codes:
        """The combination of labels whose mean is nearest by this spectrum: a linear discriminant."""
        means = self._white(self.means[:-1]).reshape(len(self.combinations), -1)
        likeness = self._white(images).reshape(len(images), -1) @ means.T - 0.5 * np.square(means).sum(axis=1)
        guessed: Codes = self.combinations[likeness.argmax(axis=1)]
        return guessed

    def local_epsilon(self, noise: float, delta: float) -> float:
        """What one release of one image tells apart from any other image with the same labels, at `delta`.

        As for `ShapedNoise`. An image has thousands of numbers, so it is large at any noise that leaves images
        useful: attackers are what to go by.
        """
        return epsilon_of_noise(noise, self.bound, delta)

    @property
    def size(self) -> int:
        """Numbers that were learnt from images."""
        return int(self.means.size + 2 * self.factors.size)

    def tensors(self) -> dict[str, Array]:
        """What has to be kept."""
        return {
            "noise.combinations": self.combinations,
            "noise.means": self.means,
            "noise.factors": np.stack([self.factors.real, self.factors.imag]),
            "noise.bound": np.array([self.bound]),
        }

    @classmethod
    def restore(cls, tensors: Mapping[str, Array]) -> Self:
        """Undo `tensors`."""
        real, imaginary = tensors["noise.factors"]
        return cls(
            tensors["noise.combinations"],
            tensors["noise.means"],
            (real + 1j * imaginary).astype(np.complex64),
            float(tensors["noise.bound"][0]),
        )

    def _white(self, images: Array) -> Array:
        return _filtered(np.linalg.inv(self.factors), images)


def _filtered(matrices: Array, images: Array) -> Array:
    """Each frequency of the images times a matrix over their channels."""
    waves = np.fft.rfft2(images, norm="ortho")
    out: Array = np.fft.irfft2(np.einsum("fgab,nbfg->nafg", matrices, waves), s=images.shape[2:], norm="ortho")
    return out.astype(np.float32)
