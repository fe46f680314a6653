"""Frechet distance: how far apart two sets of vectors are, seen as two Gaussians."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics._checks import labels, same_width, table
from locum.metrics.moments import Moments

_Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FrechetResult:
    """A squared Frechet distance and the shrinkage behind it.

    Attributes
    ----------
    value
        The squared distance, like FID.
    shrinkage
        How far both covariances were shrunk, from 0 to 1.
    note
        One sentence for the reader of the number.
    """

    value: float
    shrinkage: float
    note: str


@dataclass(frozen=True, slots=True)
class FrechetByClass:
    """The Frechet distance of each class, as `frechet_by_class` returns it.

    Attributes
    ----------
    by_class
        One result per measured class, by label, with `value`, `shrinkage` and `note`.
    average
        The plain average of the values.
    skipped
        The classes with fewer than two records on one side.

    Examples
    --------
    >>> from locum.metrics import frechet_by_class
    >>> result = frechet_by_class([[0.0], [2.0], [5.0]], [7, 7, 8], [[3.0], [5.0]], [7, 7])
    >>> result.by_class[7].value, result.skipped
    (9.0, (8,))
    """

    by_class: Mapping[Any, FrechetResult]
    average: float
    skipped: tuple[Any, ...]


def frechet_distance(
    A: npt.ArrayLike,
    B: npt.ArrayLike,
    *,
    shrinkage: float | Literal["auto"] = "auto",
    authors_compat: bool = False,
) -> FrechetResult:
    """Squared distance of two sets of vectors, seen as two Gaussians.

    It is |mean_A - mean_B|^2 + tr(S_A + S_B - 2 (S_A S_B)^(1/2)): symmetric and never negative; 0 for equal sets, to
    about 1e-7 of their variance. It depends only on means and covariances. With few records it overstates the
    distance: compare sets of equal size.

    Parameters
    ----------
    A, B
        Vectors (n, d) and (m, d), two or more each.
    shrinkage
        How far both covariances are shrunk toward a multiple of the identity, from 0 to 1; results with different
        shrinkage are not comparable. "auto": not at all if both sets have more records than features, otherwise by
        the larger of the two Ledoit-Wolf intensities, so that unequal sizes alone make no distance.
    authors_compat
        First standardize each set by its own mean and deviation, as the thesis did, without shrinkage: the means then
        cancel.

    Returns
    -------
    FrechetResult
        The squared distance (`value`), the `shrinkage` that was used, and a `note` for the reader.

    Examples
    --------
    >>> from locum.metrics import frechet_distance
    >>> frechet_distance([[0.0], [2.0]], [[3.0], [5.0]]).value
    9.0
    """
    a, b = (table(name, x, rows=2).astype(np.float64) for name, x in (("A", A), ("B", B)))
    same_width("A", a, "B", b)
    if shrinkage != "auto" and not 0 <= shrinkage <= 1:
        raise ConfigError(f'`shrinkage` must be "auto" or lie in [0, 1]; got {shrinkage!r}.')
    if authors_compat:
        if shrinkage not in ("auto", 0):
            raise ConfigError(f"`authors_compat` does not shrink; got shrinkage={shrinkage!r}. Leave it out.")
        a, b, shrinkage = _standardized(a), _standardized(b), 0.0
    n, d = min(len(a), len(b)), a.shape[1]
    shift = a.mean(axis=0) - b.mean(axis=0)
    a, b = _common_span(a - a.mean(axis=0), b - b.mean(axis=0))
    if shrinkage != "auto":
        alpha = float(shrinkage)
    else:
        alpha = max(ledoit_wolf(a, d), ledoit_wolf(b, d)) if n <= d else 0.0
    variance, root = _traces(a, b, d, alpha)
    value = max(0.0, float(shift @ shift) + variance - 2.0 * root)
    return FrechetResult(value, alpha, _note(n, d, alpha, authors_compat))


def frechet_from_moments(a: Moments, b: Moments) -> FrechetResult:
    """The distance of `frechet_distance` from means and covariances, for data that do not fit in memory.

    Parameters
    ----------
    a, b
        Moments of one group each, with more records than features.

    Returns
    -------
    FrechetResult
        The squared distance, without shrinkage.

    Raises
    ------
    ConfigError
        If there are too few records: shrinkage needs the records themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import Moments, frechet_from_moments
    >>> a, b = Moments(1, 1), Moments(1, 1)
    >>> a.add(np.array([[0.0], [2.0]]))
    >>> b.add(np.array([[3.0], [5.0]]))
    >>> frechet_from_moments(a, b).value
    9.0
    """
    n, d = min(a.rows, b.rows), a.means.shape[1]
    if a.means.shape != b.means.shape or len(a.means) != 1 or n <= d:
        raise ConfigError(f"A distance from moments needs one group and more records than features; got {n} of {d}.")
    shift, (one, two) = a.means[0] - b.means[0], (a.covariance(), b.covariance())
    factor = _factor(one)
    root = float(np.sqrt(np.maximum(np.linalg.eigvalsh(factor.T @ two @ factor), 0.0)).sum())
    value = max(0.0, float(shift @ shift) + float(np.trace(one) + np.trace(two)) - 2.0 * root)
    return FrechetResult(value, 0.0, _note(n, d, 0.0, False))


def frechet_by_class(
    A: npt.ArrayLike,
    y_a: npt.ArrayLike,
    B: npt.ArrayLike,
    y_b: npt.ArrayLike,
    *,
    shrinkage: float | Literal["auto"] = "auto",
    authors_compat: bool = False,
) -> FrechetByClass:
    """`frechet_distance` within each class, and the plain average over classes.

    A class with fewer than two records on one side cannot be measured and is listed in `skipped`: an average that
    skips a class flatters a generator that never makes it.

    Parameters
    ----------
    A, y_a
        Vectors (n, d) of one side and their labels.
    B, y_b
        Vectors (m, d) of the other side and their labels.
    shrinkage, authors_compat
        As in `frechet_distance`. With "auto" the shrinkage may differ between classes.

    Returns
    -------
    FrechetByClass
        One result per class, the `average`, and the `skipped` classes.

    Raises
    ------
    DataError
        If no class has two records on both sides.

    Examples
    --------
    >>> from locum.metrics import frechet_by_class
    >>> r = frechet_by_class([[0.0], [2.0]], [7, 7], [[3.0], [5.0]], [7, 7])
    >>> r.average, list(r.by_class), r.skipped
    (9.0, [7], ())
    """
    a, b = table("A", A), table("B", B)
    y1, y2 = labels("y_a", y_a, len(a)), labels("y_b", y_b, len(b))
    results: dict[Any, FrechetResult] = {}
    skipped: list[Any] = []
    for c in sorted({*y1.tolist(), *y2.tolist()}):
        left, right = a[y1 == c], b[y2 == c]
        if min(len(left), len(right)) < 2:
            skipped.append(c)
        else:
            results[c] = frechet_distance(left, right, shrinkage=shrinkage, authors_compat=authors_compat)
    if not results:
        raise DataError("No class has two records on both sides; the Frechet distance by class needs at least one.")
    average = float(np.mean([r.value for r in results.values()]))
    return FrechetByClass(results, average, tuple(skipped))


def ledoit_wolf(centered: _Matrix, dim: int | None = None) -> float:
    """The best shrinkage toward a multiple of the identity for Gaussian-like data.

    Parameters
    ----------
    centered
        Vectors (n, d) with mean 0.
    dim
        The true number of features, if `centered` holds coordinates in a subspace; None: its number of columns.

    Returns
    -------
    float
        From 0 (keep the sample covariance) to 1 (only its mean variance).

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import ledoit_wolf
    >>> X = np.random.default_rng(0).standard_normal((1000, 3)) * [1, 2, 3]
    >>> ledoit_wolf(X - X.mean(axis=0)) < 0.05
    True
    """
    n, d = len(centered), dim or centered.shape[1]
    squares = np.einsum("ij,ij->i", centered, centered)
    # The Gram matrix has the same norm as the covariance; the smaller one is cheaper.
    gram = centered @ centered.T if n < centered.shape[1] else centered.T @ centered
    norm = float(np.vdot(gram, gram)) / n**2
    spread = norm - (float(squares.sum()) / n) ** 2 / d
    noise = (float(squares @ squares) / n - norm) / n
    return float(np.clip(noise / spread, 0.0, 1.0)) if spread > 0 and noise > 0 else 0.0


def _standardized(x: _Matrix) -> _Matrix:
    """Features standardized by their own mean and deviation; a constant feature becomes 0."""
    scale = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(scale > 0, scale, 1.0))


def _common_span(a: _Matrix, b: _Matrix) -> tuple[_Matrix, _Matrix]:
    """Isometric coordinates in the space that both sets span, which is small if records are few."""
    if len(a) + len(b) >= a.shape[1]:
        return a, b
    basis, _ = np.linalg.qr(np.concatenate([a, b]).T)
    return a @ basis, b @ basis


def _traces(a: _Matrix, b: _Matrix, d: int, alpha: float) -> tuple[float, float]:
    """tr(S_A) + tr(S_B), and tr((S_A S_B)^(1/2)) of the shrunk covariances."""
    if len(a) > len(b):
        a, b = b, a
    r = a.shape[1]
    cov = b.T @ b / (len(b) - 1)
    trace_a, trace_b = float(np.vdot(a, a)) / (len(a) - 1), float(np.trace(cov))
    if alpha == 0 and len(a) < r:
        factor = a.T / np.sqrt(len(a) - 1)
    else:
        cov_a = (1 - alpha) * (a.T @ a) / (len(a) - 1)
        cov_a.flat[:: r + 1] += alpha * trace_a / d
        factor = _factor(cov_a)
    cov = (1 - alpha) * cov
    cov.flat[:: r + 1] += alpha * trace_b / d
    # With S_A = F F', the product S_A S_B has the eigenvalues of the symmetric F' S_B F.
    values = np.linalg.eigvalsh(factor.T @ cov @ factor)
    root = float(np.sqrt(np.maximum(values, 0.0)).sum())
    # Outside the common span both covariances are the shrinkage target alone.
    return trace_a + trace_b, root + (d - r) * alpha / d * float(np.sqrt(trace_a * trace_b))


def _factor(cov: _Matrix) -> _Matrix:
    """Some F with F F' = cov."""
    try:
        return np.asarray(np.linalg.cholesky(cov))
    except np.linalg.LinAlgError:
        # Constant or dependent features: Cholesky is faster, but needs a positive definite matrix.
        values, vectors = np.linalg.eigh(cov)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _note(n: int, d: int, alpha: float, compat: bool) -> str:
    """One sentence for the reader of the number."""
    if compat:
        return "Authors' variant: each set standardized by its own statistics, so the means cancel."
    if alpha > 0:
        return f"Both covariances shrunk by {alpha:.3f}: {n} records in {d} dimensions."
    if n <= d:
        return f"No shrinkage with {n} records in {d} dimensions: the distance is overstated."
    return f"No shrinkage needed: {n} records in {d} dimensions."
