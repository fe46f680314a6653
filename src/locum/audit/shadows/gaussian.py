"""Shadows of a ClassGaussian from sums over the pool: every second one by subtraction, without separate fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg

from locum.audit.decoder import gaussian_log_density
from locum.errors import ConfigError
from locum.generate import safe_rank
from locum.release import Release, cell_of

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[np.float32]
Masks = npt.NDArray[np.bool_]

# Up to this many features the eigenvectors of the covariance are exact.
_EXACT = 256
# Beyond: spare directions, the factor for the number of directions that all shadows start from, and the number of
# powers of the covariance that span the search.
_SPARE = 8
_SHARED = 4
_POWERS = 2


@dataclass(frozen=True, slots=True, eq=False)
class GaussianFit:
    """What `ClassGaussian` would release: class means (NaN for a class without records), factor and scale."""

    means: Floats
    factor: Floats
    scale: Floats


class GaussianFits:
    """ClassGaussians of many parts of one table, as `ClassGaussian` would fit them.

    Sums and squares of all shadows are one product with the pool. Products of features are computed for one half of
    each pair; those of the other half are the pool's minus these. Up to 256 features a shadow equals the fit of
    `ClassGaussian` to the same records, except for rounding. Beyond, its directions come from a search in the span of
    a few powers of its covariance, started from the pool's directions: the error of log densities is then about 1 %
    of their standard deviation over records.
    """

    def __init__(
        self, X: Array, labels: npt.NDArray[np.int64], classes: int, rank: int = 64, shrinkage: float = 0.1
    ) -> None:
        self._X, self._labels, self._classes = X, labels, classes
        self._rank, self._shrinkage = rank, shrinkage
        # Sums around the pool's class means are small, so that their differences stay precise.
        self._center = np.zeros((self._classes, X.shape[1]))
        for c in np.unique(self._labels):
            self._center[c] = X[self._labels == c].mean(axis=0, dtype=np.float64)
        self._Y: Array = (X - self._center[self._labels]).astype(np.float32)
        self._pool: tuple[Array, Array] | None = None
        self._whole: Array | None = None

    def fits(self, inside: Masks) -> Iterator[GaussianFit]:
        """One fit for each row of `inside`, in order."""
        d, part = self._X.shape[1], inside.astype(np.float32)
        sums, counts = np.empty((len(inside), self._classes, d)), np.empty((len(inside), self._classes))
        for c in range(self._classes):
            mine = part[:, self._labels == c]
            rows, counts[:, c] = self._Y[self._labels == c], mine.sum(axis=1)
            # One product per pair: its last bits do not depend on how many shadows are fitted together.
            for pair in range(0, len(inside), 2):
                sums[pair : pair + 2, c] = mine[pair : pair + 2] @ rows
        with np.errstate(invalid="ignore"):
            shift = sums / counts[:, :, None]
        # A class without records has no mean and is left out below.
        moved = np.sqrt(counts)[:, :, None] * np.nan_to_num(shift)
        squares = np.square(self._Y)
        scatter = np.concatenate([part[pair : pair + 2] @ squares for pair in range(0, len(inside), 2)])
        scatter = scatter - np.square(moved).sum(axis=1)
        n, present = counts.sum(axis=1), (counts > 0).sum(axis=1)
        variance = np.maximum(scatter, 0) / np.maximum(n - present, 1)[:, None]
        for s, (rows, products) in enumerate(self._products(inside)):
            rank = min(safe_rank(self._rank, int(n[s]), d, int(present[s])), int(n[s]), d)
            factor, scale = np.zeros((0, d)), np.sqrt(variance[s])
            if rank:
                shrunk = _Shrunk(
                    rows,
                    products,
                    moved[s].astype(np.float32),
                    np.float32((1 - self._shrinkage) / max(n[s] - present[s], 1)),
                    (self._shrinkage * variance[s]).astype(np.float32),
                )
                values, vectors = self._strongest(shrunk, inside[s], rank)
                # From here on as in `low_rank_plus_diagonal`.
                floor = (variance[s].sum() - values.sum()) / max(d - rank, 1)
                factor = (vectors * np.sqrt(np.maximum(values - max(floor, 0), 0))).T
                scale = np.sqrt(np.maximum(variance[s] - np.square(factor).sum(axis=0), 0))
            yield GaussianFit(self._center + shift[s], factor, scale)

    def _products(self, inside: Masks) -> Iterator[tuple[Array, Array | None]]:
        """For each shadow its records around the pool's means or, if that is cheaper, products of features."""
        n, d = self._X.shape
        # With few records, two thin products are cheaper than one with a square matrix.
        thin = n <= d and not self._exactly(safe_rank(self._rank, n // 2, d, self._classes))
        if self._whole is None and not thin and self._rank:
            self._whole = self._Y.T @ self._Y
        whole = None if thin else self._whole
        last = None
        for s, mask in enumerate(inside):
            if whole is None:
                yield self._Y[mask], None
            elif last is not None and s % 2 and not (mask == inside[s - 1]).any():
                last = whole - last
                yield self._Y[:0], last
            else:
                rows = self._Y[mask]
                last = rows.T @ rows
                yield rows, last

    def _strongest(self, shrunk: _Shrunk, mask: Masks, rank: int) -> tuple[Floats, Array]:
        if self._exactly(rank):
            return _top(shrunk.matrix(), rank)
        axes, along = self._shared(rank)
        few = along[mask]
        _, inner = _top(shrunk.within(axes, few.T @ few), rank + _SPARE)
        powers = [axes @ inner]
        for _ in range(_POWERS):
            grown = shrunk.times(powers[-1])
            powers.append(grown / np.linalg.norm(grown, axis=0))
        basis = np.linalg.qr(np.concatenate(powers, axis=1))[0]
        values, inner = _top(basis.T @ shrunk.times(basis), rank)
        return values, basis @ inner

    def _exactly(self, rank: int) -> bool:
        """Whether to compute all directions: few features, or so many directions that a search would cost more."""
        d = int(self._X.shape[1])
        return d <= _EXACT or 4 * (rank + _SPARE) * (_POWERS + 1) > d

    def _shared(self, rank: int) -> tuple[Array, Array]:
        """The pool's strongest directions, from which each shadow starts, and all records along them."""
        wanted = min(self._X.shape[1], _SHARED * (rank + _SPARE))
        if self._pool is None or self._pool[0].shape[1] < wanted:
            covariance = self._Y.T @ self._Y
            spread = np.diag(covariance).copy()
            covariance *= np.float32(1 - self._shrinkage)
            np.fill_diagonal(covariance, spread)
            axes = _top(covariance, wanted)[1]
            self._pool = axes, self._Y @ axes
        return self._pool


class GaussianShadows(GaussianFits):
    """Shadows of a ClassGaussian. The statistic of a record is its log density in closed form."""

    # Few enough that the work can be divided among many processes.
    block = 8

    def __init__(self, release: Release, X: Array, codes: npt.NDArray[np.int64]) -> None:
        settings = release.manifest.settings
        try:
            rank, shrinkage = int(settings["rank"]), float(settings["shrinkage"])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                "The settings of the release lack `rank` or `shrinkage`: no shadow can be trained like it."
            ) from None
        manifest = release.manifest
        super().__init__(X, cell_of(codes, manifest.widths), manifest.cells, rank, shrinkage)
        self._release = release

    def own(self) -> Floats:
        """Log densities under the release's own Gaussian."""
        t = self._release.tensors
        return gaussian_log_density(self._X, self._labels, t["means"].astype(np.float64), t["factor"], t["scale"])

    def train(self, inside: Masks, seeds: Sequence[int]) -> Floats:
        """Log densities of all records under each shadow. The fit is deterministic: `seeds` are not used."""
        return np.stack(
            [gaussian_log_density(self._X, self._labels, f.means, f.factor, f.scale) for f in self.fits(inside)]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Shrunk:
    """The shrunk covariance of a shadow: `keep` times the scatter around its means, plus the diagonal `own`."""

    rows: Array
    products: Array | None
    moved: Array
    keep: np.float32
    own: Array

    def times(self, v: Array) -> Array:
        """Its product with vectors, without the matrix itself."""
        out = self.rows.T @ (self.rows @ v) if self.products is None else self.products @ v
        out -= self.moved.T @ (self.moved @ v)
        out *= self.keep
        out += self.own[:, None] * v
        return out

    def matrix(self) -> Array:
        """The matrix itself."""
        out = self.rows.T @ self.rows if self.products is None else self.products.copy()
        out -= self.moved.T @ self.moved
        out *= self.keep
        out[np.diag_indices(len(out))] += self.own
        return out

    def within(self, axes: Array, products: Array) -> Array:
        """The matrix restricted to a few orthonormal directions, given the products of the records along them."""
        moved = self.moved @ axes
        return self.keep * (products - moved.T @ moved) + axes.T @ (self.own[:, None] * axes)


def _top(matrix: Array, rank: int) -> tuple[Floats, Array]:
    """Largest eigenvalues of a symmetric matrix and their eigenvectors, in ascending order."""
    size = len(matrix)
    values, vectors = scipy.linalg.eigh(
        (matrix + matrix.T) / 2, subset_by_index=(size - rank, size - 1), check_finite=False, overwrite_a=True
    )
    return values.astype(np.float64), vectors
