"""The function f: noise on everything that the receiver does not need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from understudy.accounting import Gaussian, epsilon_of
from understudy.errors import ConfigError

__all__ = ["SeedNoise", "ShapedNoise", "by_labels", "epsilon_of_noise", "row_of"]

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
# Where one record's own numbers are near 0 it would get no noise at all (fault F3).
_FLOOR = 0.5
# Records that make a combination of labels worth a mean of its own.
_FEW = 5
# Below it the accountant gives up: epsilon is in the thousands.
_LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class SeedNoise:
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
