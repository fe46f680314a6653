"""The noise: the adjustable paper's, one shaped like a table's records, and one with the images' spectrum."""

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
# A record whose numbers are near 0 would get no noise at all (fault F3).
_FLOOR = 0.5
# The fewest records for which a combination of labels gets its own mean.
_FEW = 5
# Below it the accountant gives up: epsilon is in the thousands.
_LEAST_NOISE = 0.01
# The variance that rounding to integer pixels adds: the least of any pattern.
_ROUNDING = 1 / (12 * 255**2)


@dataclass(frozen=True, slots=True)
class PaperNoise:
    """The adjustable paper's: normal noise; its standard deviation is `noise` times the record's mean.

    `floor`, set in `fit`, is the smallest mean used. The authors have none, and with `per_batch` use one mean for all
    records of a call.
    """

    floor: float
    per_batch: bool = False

    @classmethod
    def fit(cls, rest: Array, *, authors_compat: bool, per_batch: bool) -> Self:
        """`rest` is R's output for the training records."""
        if authors_compat:
            return cls(0.0, per_batch)
        return cls(_FLOOR * float(np.median(np.abs(rest.mean(axis=1)))))

    def apply(self, rest: Array, codes: Codes, noise: float, rng: np.random.Generator) -> Array:
        """`rest` with noise, which grows without limit: an infinite `noise` is refused."""
        if math.isinf(noise):
            raise ConfigError("The paper's noise has no limit: `noise` must be finite; got inf. 1000 is very large.")
        mean = np.abs(rest.mean() if self.per_batch else rest.mean(axis=1, keepdims=True))
        out: Array = rest + noise * np.maximum(mean, self.floor) * rng.standard_normal(rest.shape, dtype=np.float32)
        return out

    def local_epsilon(self, noise: float, delta: float) -> float:
        """Infinite: nothing bounds what a record contributes."""
        return math.inf

    def tensors(self) -> dict[str, Array]:
        """The arrays to save."""
        return {"noise.paper": np.array([self.floor, float(self.per_batch)])}

    @classmethod
    def restore(cls, tensors: Mapping[str, Array]) -> Self:
        """Undo `tensors`."""
        floor, per_batch = tensors["noise.paper"].tolist()
        return cls(floor, bool(per_batch))


@dataclass(frozen=True, slots=True, eq=False)
class ShapedNoise:
    """Noise shaped like the records' own variation around the mean of those with the same utility labels.

    `noise` is its standard deviation in units of that variation; the sum is scaled back, so at any noise the decoder
    gets numbers like those it was trained on. Infinite noise gives a fresh draw that keeps nothing of the record but
    its labels. A record's contribution is clipped to length `bound` in those units, which proves `local_epsilon`.
    `means` and `factors` have a row for each combination in `combinations`; the last row is for all others.
    """

    combinations: Codes
    means: Array
    factors: Array
    bound: float

    @classmethod
    def fit(cls, rest: Array, codes: Codes, *, blur: float, bound: float | None = None) -> Self:
        """`blur` is the variance of the noise on every number that the decoder was trained with."""
        rest, width = rest.astype(np.float64), rest.shape[1]
        found, which = _by_labels(codes)
        means = np.stack([*(rest[which == k].mean(axis=0) for k in range(len(found))), rest.mean(axis=0)])
        centered = rest - means[which]
        pooled = centered.T @ centered / len(rest)
        spreads = []
        for k in range(len(found)):
            own = centered[which == k]
            # A small class is shrunk toward the pooled covariance.
            spreads.append((own.T @ own + width * pooled) / (len(own) + width))
        spreads.append(np.cov(rest.T).reshape(width, width))
        factors = np.stack([np.linalg.cholesky(s + blur * np.eye(width)) for s in spreads])
        limit = 1.5 * math.sqrt(width) if bound is None else bound
        return cls(found, means.astype(np.float32), factors.astype(np.float32), limit)

    def apply(self, rest: Array, codes: Codes, noise: float, rng: np.random.Generator) -> Array:
        """`rest` with noise; the record keeps the weight 1 / sqrt(1 + noise ** 2)."""
        out, kept = np.empty_like(rest), 1 / math.sqrt(1 + noise**2) if noise < math.inf else 0.0
        which = _row_of(codes, self.combinations)
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
        """Epsilon, at `delta`, of one release of a record against any other record with the same labels.

        A Gaussian mechanism: two records differ by at most twice `bound` before noise with standard deviation `noise`
        is added. It holds for a record that the obfuscator was not fitted on, if nobody knows the seed. Each further
        release of the record adds to it. It does not cover the utility labels.
        """
        return _epsilon(noise, self.bound, delta)

    def tensors(self) -> dict[str, Array]:
        """The arrays to save."""
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


@dataclass(frozen=True, slots=True, eq=False)
class SpectralNoise:
    """Normal noise with the spectrum of the images' deviations from the mean image of their utility labels.

    `noise` is its standard deviation in units of theirs, at every frequency; the sum is scaled back, so at any noise
    images keep the spectrum of real ones, and a model trained on them works on real ones. All labels share one
    spectrum: otherwise receivers would learn to tell spectra apart instead of images. Infinite noise gives a fresh
    draw. An image's contribution is clipped to length `bound`, which proves `local_epsilon`.
    `means` has a row for each combination in `combinations`, and a last one for all images. `factors` are lower
    triangular matrices over the channels, one per frequency.
    """

    combinations: Codes
    means: Array
    factors: Array
    bound: float

    @classmethod
    def fit(cls, images: Array, codes: Codes) -> Self:
        """From images (n, channels, side, side) and the codes of their utility labels."""
        found, which = _by_labels(codes)
        if not len(found):
            raise DataError("No utility label has five or more images: merge rare labels.")
        means = np.stack([*(images[which == k].mean(axis=0) for k in range(len(found))), images.mean(axis=0)])
        waves = np.fft.rfft2(images - means[which], norm="ortho")
        spectrum = np.einsum("nafg,nbfg->fgab", waves, waves.conj()) / len(images)
        factors = np.linalg.cholesky(spectrum + _ROUNDING * np.eye(images.shape[1]))
        return cls(found, means.astype(np.float32), factors.astype(np.complex64), 1.5 * math.sqrt(images[0].size))

    def apply(self, images: Array, codes: Codes, noise: float, rng: np.random.Generator, plain: float = 1.0) -> Array:
        """`images` with noise around the mean of their label; an image keeps the weight 1 / sqrt(1 + noise ** 2).

        `plain`, from 0 to 1, moves that mean from that of all images to that of the label.
        """
        kept = 1 / math.sqrt(1 + noise**2) if noise < math.inf else 0.0
        center = self.means[-1] + np.float32(plain) * (self.means[_row_of(codes, self.combinations)] - self.means[-1])
        own = self._white(images - center)
        lengths = np.sqrt(np.square(own).sum(axis=(1, 2, 3), keepdims=True))
        own *= np.minimum(1, self.bound / np.maximum(lengths, 1e-12))
        fresh = rng.standard_normal(own.shape, dtype=np.float32)
        out: Array = center + _filtered(self.factors, kept * own + math.sqrt(1 - kept**2) * fresh)
        return out.clip(0, 1).astype(np.float32)

    def guess(self, images: Array) -> Codes:
        """The combination of labels with the nearest mean, in units of this spectrum: a linear discriminant."""
        means = self._white(self.means[:-1]).reshape(len(self.combinations), -1)
        likeness = self._white(images).reshape(len(images), -1) @ means.T - 0.5 * np.square(means).sum(axis=1)
        guessed: Codes = self.combinations[likeness.argmax(axis=1)]
        return guessed

    def local_epsilon(self, noise: float, delta: float) -> float:
        """As `ShapedNoise.local_epsilon`.

        An image has thousands of numbers, so epsilon is large at any noise that leaves images useful: rely on
        measured attacks.
        """
        return _epsilon(noise, self.bound, delta)

    @property
    def size(self) -> int:
        """How many numbers were learned from images."""
        return int(self.means.size + 2 * self.factors.size)

    def tensors(self) -> dict[str, Array]:
        """The arrays to save."""
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


def _epsilon(noise: float, bound: float, delta: float) -> float:
    """Epsilon of normal noise with standard deviation `noise` on vectors of length up to `bound`."""
    if math.isinf(noise):
        return 0.0
    multiplier = noise / (2 * bound)
    return epsilon_of([Gaussian(multiplier)], delta) if multiplier >= _LEAST_NOISE else math.inf


def _by_labels(codes: Codes) -> tuple[Codes, Codes]:
    """The frequent combinations of labels, and the row of each record's combination; the last row is for all others.

    A mean of few records would give them away, so rare combinations use the mean of all.
    """
    found, which, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    frequent = counts >= _FEW
    return found[frequent], np.where(frequent, np.cumsum(frequent) - 1, frequent.sum())[which.ravel()]


def _row_of(codes: Codes, combinations: Codes) -> Codes:
    """The row of each record's labels; unknown ones get the row after the last."""
    same = (codes[:, None, :] == combinations[None]).all(axis=2)
    return np.where(same.any(axis=1), same.argmax(axis=1), len(combinations)).astype(np.int64)


def _solve(factor: Array, rows: Array) -> Array:
    from scipy.linalg import solve_triangular

    out: Array = solve_triangular(factor, rows.T, lower=True, check_finite=False).T
    return out


def _filtered(matrices: Array, images: Array) -> Array:
    """Each frequency of the images, multiplied by its matrix over the channels."""
    waves = np.fft.rfft2(images, norm="ortho")
    out: Array = np.fft.irfft2(np.einsum("fgab,nbfg->nafg", matrices, waves), s=images.shape[2:], norm="ortho")
    return out.astype(np.float32)
