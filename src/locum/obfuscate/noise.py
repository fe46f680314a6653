"""Noise for images: as images themselves vary from place to place, whatever their label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from locum.accounting import Gaussian, epsilon_of
from locum.errors import ConfigError, DataError

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
# Where one record's own numbers are near 0 it would get no noise at all (fault F3).
_FLOOR = 0.5
# Records that make a combination of labels worth a mean of its own.
_FEW = 5
# Below it the accountant gives up: epsilon is in the thousands.
_LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class PaperNoise:
    """The seed's: each number gets normal noise whose standard deviation is `noise` times the record's own mean.

    `floor`, fixed at fit, is the least mean that counts. In the authors' way there is none, and with `per_batch` one
    mean serves all records of a call.
    """

    floor: float
    per_batch: bool = False

    @classmethod
    def fit(cls, rest: Array, *, authors_compat: bool, per_batch: bool) -> Self:
        """`rest` is what R gives for the records that were learnt from."""
        if authors_compat:
            return cls(0.0, per_batch)
        return cls(_FLOOR * float(np.median(np.abs(rest.mean(axis=1)))))

    def apply(self, rest: Array, codes: Codes, noise: float, rng: np.random.Generator) -> Array:
        """`rest` with noise; without limit, so an infinite knob is refused."""
        if math.isinf(noise):
            raise ConfigError("The seed's noise has no limit: give a number for `noise`; 1000 is very much.")
        mean = np.abs(rest.mean() if self.per_batch else rest.mean(axis=1, keepdims=True))
        out: Array = rest + noise * np.maximum(mean, self.floor) * rng.standard_normal(rest.shape, dtype=np.float32)
        return out

    def local_epsilon(self, noise: float, delta: float) -> float:
        """None: nothing bounds what a record can add."""
        return math.inf

    def tensors(self) -> dict[str, Array]:
        """What has to be kept."""
        return {"noise.seed": np.array([self.floor, float(self.per_batch)])}

    @classmethod
    def restore(cls, tensors: Mapping[str, Array]) -> Self:
        """Undo `tensors`."""
        floor, per_batch = tensors["noise.seed"].tolist()
        return cls(floor, bool(per_batch))


@dataclass(frozen=True, slots=True, eq=False)
class ShapedNoise:
    """Ours: noise as the records themselves vary, around the mean of those with the same utility labels.

    `noise` is its standard deviation in units of that spread; the sum is scaled back, so that whatever the knob,
    the decoder sees numbers like those it was trained on. An infinite knob gives a fresh draw that keeps
    nothing of the record but its labels. What a record adds is cut at length `bound` in those units, so that
    `local_epsilon` is proven.
    `means` and `factors` have a row for each combination in `combinations`; the last row serves unknown ones.
    """

    combinations: Codes
    means: Array
    factors: Array
    bound: float

    @classmethod
    def fit(cls, rest: Array, codes: Codes, *, blur: float, bound: float | None = None) -> Self:
        """`blur` is the variance of the noise that the decoder was trained with, on every number."""
        rest, width = rest.astype(np.float64), rest.shape[1]
        found, which = by_labels(codes)
        whole = rest.mean(axis=0)
        means = np.stack([*(rest[which == k].mean(axis=0) for k in range(len(found))), whole])
        centred = rest - means[which]
        pooled = centred.T @ centred / len(rest)
        spreads = []
        for k in range(len(found)):
            own = centred[which == k]
            # A small class borrows the spread of all.
            spreads.append((own.T @ own + width * pooled) / (len(own) + width))
        spreads.append(np.cov(rest.T).reshape(width, width))
        factors = np.stack([np.linalg.cholesky(s + blur * np.eye(width)) for s in spreads])
        limit = 1.5 * math.sqrt(width) if bound is None else bound
        return cls(found, means.astype(np.float32), factors.astype(np.float32), limit)

    def apply(self, rest: Array, codes: Codes, noise: float, rng: np.random.Generator) -> Array:
        """`rest` with noise: with the weight 1 / sqrt(1 + noise ** 2) of its own."""
        out, kept = np.empty_like(rest), 1 / math.sqrt(1 + noise**2) if noise < math.inf else 0.0
        which = row_of(codes, self.combinations)
        for k in np.unique(which):
            rows = which == k
            own = _solve(self.factors[k], rest[rows] - self.means[k])
            lengths = np.linalg.norm(own, axis=1, keepdims=True)
            own = own * np.minimum(1, self.bound / np.maximum(lengths, 1e-12))
            fresh = rng.standard_normal(own.shape, dtype=np.float32)
            mixed = kept * own + math.sqrt(1 - kept**2) * fresh
            out[rows] = self.means[k] + mixed @ self.factors[k].T
        return out

    def local_epsilon(self, noise: float, delta: float) -> float:
        """What one release of one record tells apart from any other record with the same labels, at `delta`.

        Two records differ by at most twice `bound` before noise of standard deviation `noise` is added: a normal
        mechanism. It holds for a record that the obfuscator was not fitted on, with coins that nobody knows; each
        further release of the record adds to it; its utility labels are outside.
        """
        return epsilon_of_noise(noise, self.bound, delta)

    def tensors(self) -> dict[str, Array]:
        """What has to be kept."""
        return {
            "noise.combinations": self.combinations,
            "noise.means": self.means,
            "noise.factors": self.factors,
            "noise.bound": np.array([self.bound]),
        }

    @classmethod
    def restore(cls, tensors: Mapping[str, Array]) -> Self:
        """Undo `tensors`."""
        return cls(
            tensors["noise.combinations"],
            tensors["noise.means"],
            tensors["noise.factors"],
            float(tensors["noise.bound"][0]),
        )


def epsilon_of_noise(noise: float, bound: float, delta: float) -> float:
    """Of normal noise with standard deviation `noise` on what is at most `bound` long; infinite where it is tiny."""
    if math.isinf(noise):
        return 0.0
    multiplier = noise / (2 * bound)
    return epsilon_of([Gaussian(multiplier)], delta) if multiplier >= _LEAST_NOISE else math.inf


def by_labels(codes: Codes) -> tuple[Codes, Codes]:
    """The frequent combinations of labels, and the row of each record's; a last row is for those of the others.

    A mean of few records would be theirs: such combinations are drawn from all.
    """
    found, which, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    frequent = counts >= _FEW
    return found[frequent], np.where(frequent, np.cumsum(frequent) - 1, frequent.sum())[which.ravel()]


def row_of(codes: Codes, combinations: Codes) -> Codes:
    """The row of each record's labels; the one after the last for unknown ones."""
    same = (codes[:, None, :] == combinations[None]).all(axis=2)
    return np.where(same.any(axis=1), same.argmax(axis=1), len(combinations)).astype(np.int64)


def _solve(factor: Array, rows: Array) -> Array:
    from scipy.linalg import solve_triangular

    out: Array = solve_triangular(factor, rows.T, lower=True, check_finite=False).T
    return out


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
