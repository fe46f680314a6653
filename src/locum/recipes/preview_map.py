"""What previews draw: made-up records from public statistics, and one fixed plane on which every setting is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from locum.data import Reference
from locum.errors import ConfigError
from locum.metrics import auc_macro

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]

MOST_POINTS = 5_000
# Real vectors vary this many times as much between and within classes, along the directions in which classes differ,
# as in others. With it, releases of made-up records keep about what the measured releases of `forecast` kept.
_STRETCH = 3.0
# Nothing is gained by classes farther apart.
_MOST_AUC = 0.9995
_SIMULATED = 4_000
# Rows from which axes are found.
_ROWS = 1_000
_EDGE = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class MadeUp:
    """A public model of records: normal around class means that have equal distances, in whitened space."""

    reference: Reference
    corners: Array
    basis: Array

    @classmethod
    def of(cls, reference: Reference, classes: int, real_auc: float, seed: int) -> MadeUp:
        """Classes that the best classifier tells apart with an AUC of about `real_auc`."""
        if classes - 1 > reference.dim:
            raise ConfigError(
                f"Made-up records need about as many features as classes; got {reference.dim} for {classes} classes."
            )
        rng = np.random.default_rng([seed, 1])
        basis, _ = np.linalg.qr(rng.normal(size=(reference.dim, classes - 1)))
        return cls(reference, _distance(real_auc, classes) * _corners(classes), basis)

    @property
    def means(self) -> Array:
        """The class means, as raw vectors."""
        return self.reference.color(_STRETCH * self.corners @ self.basis.T)

    def draw(self, n: int, seed: Sequence[int]) -> tuple[Rows, Codes]:
        """So many records, equally many of each class."""
        rng = np.random.default_rng(seed)
        codes = np.arange(n, dtype=np.int64) % len(self.corners)
        white = rng.standard_normal((n, self.reference.dim), dtype=np.float32)
        along = white @ self.basis.astype(np.float32)
        white += ((_STRETCH - 1) * along + _STRETCH * self.corners[codes]) @ self.basis.T
        return self.reference.color(white).astype(np.float32), codes


def _corners(classes: int) -> Array:
    """Points with pairwise distance 1 around 0, in as few dimensions as they need (classes, classes - 1)."""
    centered = (np.eye(classes) - 1 / classes) / math.sqrt(2)
    directions = np.linalg.svd(centered)[2][: classes - 1]
    return np.asarray(centered @ directions.T)


@lru_cache(maxsize=64)
def _distance(auc: float, classes: int) -> float:
    """How far apart class means must be, in standard deviations, for the best classifier to have this macro AUC."""
    auc = min(auc, _MOST_AUC)
    if classes == 2:
        return math.sqrt(2) * NormalDist().inv_cdf(auc)
    corners, codes = _corners(classes), np.arange(_SIMULATED) % classes
    normal = np.random.default_rng(0).normal(size=(_SIMULATED, classes - 1))

    def reached(distance: float) -> float:
        scores = (normal + distance * corners[codes]) @ (distance * corners).T
        power = np.exp(scores - scores.max(axis=1, keepdims=True))
        return auc_macro(codes, power / power.sum(axis=1, keepdims=True), np.arange(classes))

    low, high = 0.0, 12.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) >= auc else (middle, high)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """One linear projection of raw vectors to two dimensions, scaled so that most records lie within -1..1.

    What lies far outside, as means that are all noise do, is moved to the edge at 2.
    """

    reference: Reference
    center: Array
    axes: Array
    size: float
    titles: tuple[str, str]

    def places(self, X: npt.ArrayLike) -> Array:
        """Where vectors lie."""
        return rounded(np.clip((self.reference.whiten(X) - self.center) @ self.axes / self.size, -_EDGE, _EDGE))


def rounded(places: Array) -> Array:
    """Four digits, and no "-0.0" in JSON."""
    out: Array = np.round(places, 4) + 0.0
    return out


def plane_of(X: Rows, codes: Codes, means: Array, reference: Reference) -> Plane:
    """The plane in which class means differ most, after whitening: the space that a private release is made in.

    Two classes differ along one axis; the second is then the one along which their records vary most.
    """
    rows = np.random.default_rng(0).permutation(len(X))[:_ROWS]
    white, middles = reference.whiten(X[rows]), reference.whiten(means)
    center = middles.mean(axis=0)
    _, strength, directions = np.linalg.svd(middles - center, full_matrices=False)
    first = directions[0]
    titles = ("along the difference between the classes", "along the most varied remaining direction")
    if len(strength) > 2 and strength[1] > 1e-6 * strength[0]:
        second = directions[1]
        titles = ("first axis of the class means", "second axis of the class means")
        if strength[-2] > 0.99 * strength[0]:
            # Means at equal distances have no main axes: this plane shows them as a regular polygon.
            turn = 2 * math.pi * np.arange(len(middles)) / len(middles)
            first, second = (row / np.linalg.norm(row) for row in np.stack([np.cos(turn), np.sin(turn)]) @ middles)
    else:
        rest = white - middles[codes[rows]]
        rest -= np.outer(rest @ first, first)
        # By the products of rows: there are fewer rows than features, mostly.
        value, vector = np.linalg.eigh(rest @ rest.T)
        second = rest.T @ vector[:, -1] / math.sqrt(max(float(value[-1]), 1e-300))
        second = second - first * float(first @ second)
    axes = np.stack([first, second], axis=1)
    size = 1.1 * float(np.quantile(np.abs((white - center) @ axes).max(axis=1), 0.99)) or 1.0
    return Plane(reference, center, axes, size, titles)


def class_means(X: Rows | Array, codes: Codes, classes: int) -> Array:
    """The mean of each class; of a class without records that of all of them."""
    out = np.empty((classes, X.shape[1]))
    for c in range(classes):
        mine = codes == c
        out[c] = X[mine if mine.any() else slice(None)].mean(axis=0, dtype=np.float64)
    return out


def shown_points(points: int, counts: npt.NDArray[np.int64]) -> dict[int, int]:
    """How many points each class gets: by its share, at least one, and none without records."""
    wanted = np.where(counts > 0, np.maximum(1, points * counts // max(int(counts.sum()), 1)), 0)
    return {c: int(n) for c, n in enumerate(wanted)}


def listed(places: Array, codes: npt.ArrayLike) -> list[list[float]]:
    """Points as JSON: x, y and class."""
    classes = np.asarray(codes).tolist()
    return [[float(x), float(y), int(c)] for (x, y), c in zip(places.tolist(), classes, strict=True)]
