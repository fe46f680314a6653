"""How widely vectors spread: pairwise distances, coverage of a reference, and the smallest ball around each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.metrics._checks import at_least, labels, same_width, table
from locum.metrics.distances import nearest, pair_distances, squared_distances
from locum.metrics.intervals import mean_interval
from locum.types import Estimate


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Pairwise distances: their mean, their sum (the maximum dispersion) and the number of pairs."""

    mean: float
    total: float
    pairs: int


def dispersion(X: npt.ArrayLike, *, chunk: int = 1024) -> Dispersion:
    """Mean and sum of all pairwise distances, each pair counted once.

    Exact to about 1e-8 of the data's spread. Time grows with n^2: at d = 768, 10,000 records take seconds, and
    100,000 take minutes; for more see `dispersion_estimate`. Work space is 32 MB at d = 768.

    Parameters
    ----------
    X
        Vectors (n, d), two or more.
    chunk
        How many records are compared at a time; it changes memory, not the result.

    Returns
    -------
    Dispersion
        `mean`, `total` (the sum) and the number of `pairs`.

    Examples
    --------
    >>> from locum.metrics import dispersion
    >>> dispersion([[0.0], [1.0], [3.0]])
    Dispersion(mean=2.0, total=6.0, pairs=3)
    """
    x = table("X", X, rows=2)
    at_least("chunk", chunk, 1)
    shift = x.mean(axis=0, dtype=np.float64)
    total = 0.0
    for i in range(0, len(x), chunk):
        a = np.subtract(x[i : i + chunk], shift, dtype=np.float64)
        for j in range(i, len(x), chunk):
            b = np.subtract(x[j : j + chunk], shift, dtype=np.float64)
            distance = np.sqrt(squared_distances(a, b))
            # Each pair once; a record's distance to itself is rounding, not data.
            total += float((np.triu(distance, 1) if i == j else distance).sum())
    pairs = len(x) * (len(x) - 1) // 2
    return Dispersion(total / pairs, total, pairs)


def dispersion_estimate(X: npt.ArrayLike, rng: np.random.Generator, *, pairs: int = 1_000_000) -> Estimate:
    """Mean pairwise distance from random pairs, for sets too large for `dispersion`.

    Parameters
    ----------
    X
        Vectors (n, d), two or more.
    rng
        Draws the pairs.
    pairs
        How many pairs to draw, 2 or more.

    Returns
    -------
    Estimate
        The mean. Its interval covers the choice of pairs, not of records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import dispersion_estimate
    >>> dispersion_estimate([[0.0], [2.0]], np.random.default_rng(0), pairs=10).value
    2.0
    """
    x = table("X", X, rows=2)
    at_least("pairs", pairs, 2)
    i = rng.integers(len(x), size=pairs)
    j = rng.integers(len(x) - 1, size=pairs)
    # Skipping i leaves all other records equally likely.
    return mean_interval(pair_distances(x, x, i, j + (j >= i)))


def coverage(generated: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """Share of reference records that are the nearest one to at least one generated vector.

    Compare only sets of equal size: more vectors cover more. Distances are ignored, so outliers far from every record
    still count; even a fresh sample as large as the reference stays far below 1.

    Parameters
    ----------
    generated
        Generated vectors (n, d).
    reference
        Reference records (m, d).

    Returns
    -------
    float
        Between 1 / m and 1.

    Examples
    --------
    >>> from locum.metrics import coverage
    >>> coverage([[0.1], [0.2], [9.0]], [[0.0], [5.0], [10.0], [20.0]])
    0.5
    """
    r = table("reference", reference)
    _, hit = nearest(generated, r)
    return len(np.unique(hit)) / len(r)


def coverage_by_class(
    generated: npt.ArrayLike, y_generated: npt.ArrayLike, reference: npt.ArrayLike, y_reference: npt.ArrayLike
) -> dict[Any, float]:
    """`coverage` within each class of the reference; a class with nothing generated has 0.

    Parameters
    ----------
    generated, y_generated
        Generated vectors (n, d) and their labels.
    reference, y_reference
        Reference records (m, d) and their labels.

    Returns
    -------
    dict
        The coverage of each class of the reference, by label. Classes that are only generated are left out.

    Examples
    --------
    >>> from locum.metrics import coverage_by_class
    >>> coverage_by_class([[0.1]], ["a"], [[0.0], [5.0], [7.0]], ["a", "a", "b"])
    {'a': 0.5, 'b': 0.0}
    """
    g, r = table("generated", generated), table("reference", reference)
    same_width("generated", g, "reference", r)
    y_g, y_r = labels("y_generated", y_generated, len(g)), labels("y_reference", y_reference, len(r))
    out: dict[Any, float] = {}
    for c in np.unique(y_r):
        mine = y_g == c
        out[c.item()] = coverage(g[mine], r[y_r == c]) if mine.any() else 0.0
    return out


def bounding_sphere(
    X: npt.ArrayLike, *, tolerance: float = 1e-6, max_iterations: int = 10_000
) -> tuple[npt.NDArray[np.float64], float]:
    """Center and radius of the smallest ball that holds all records.

    The radius is the distance from the center to the farthest record, so the ball holds all of them. It is never
    larger than that of the ball around the mean. A single outlier determines it.

    Solves the dual by Frank-Wolfe steps toward the farthest record and away from the nearest support record. L-BFGS-B
    on the farthest distance itself, from the mean, stops early because that function is not smooth.

    Parameters
    ----------
    X
        Vectors (n, d).
    tolerance
        How far the radius may exceed the smallest possible one, as a share of it, between 0 and 1.
    max_iterations
        The most steps; if they run out, the best ball so far is returned.

    Returns
    -------
    center : ndarray of shape (d,)
        The center.
    radius : float
        The radius.

    Examples
    --------
    >>> from locum.metrics import bounding_sphere
    >>> bounding_sphere([[0.0, 0.0], [2.0, 0.0], [1.0, 0.5]])
    (array([1., 0.]), 1.0)
    """
    x = table("X", X)
    if not 0 < tolerance < 1:
        raise ConfigError(f"`tolerance` must lie between 0 and 1; got {tolerance!r}.")
    at_least("max_iterations", max_iterations, 1)
    mean = x.mean(axis=0, dtype=np.float64)
    centered = np.subtract(x, mean, dtype=np.float64)
    norms = np.einsum("ij,ij->i", centered, centered)
    first = int(norms.argmax())
    second = int((norms - 2.0 * (centered @ centered[first])).argmax())
    weight = np.zeros(len(x))
    weight[first] += 0.5
    weight[second] += 0.5
    center = weight @ centered
    best, best_radius = np.zeros_like(center), float(np.sqrt(norms[first]))
    rounding = 1e-14 * float(norms[first])
    for _ in range(max_iterations):
        square = norms - 2.0 * (centered @ center) + center @ center
        # The weighted mean of the squares is a lower bound on the best squared radius.
        bound = float(weight @ square)
        far = int(square.argmax())
        radius = float(np.sqrt(max(square[far], 0.0)))
        if radius < best_radius:
            best, best_radius = center, radius
        if square[far] <= bound * (1 + tolerance) ** 2 + rounding:
            break
        support = np.flatnonzero(weight)
        near = int(support[square[support].argmin()])
        excess, lack = square[far] / bound - 1.0, 1.0 - square[near] / bound
        if excess >= lack:
            step = excess / (2 * (1 + excess))
            weight *= 1 - step
            weight[far] += step
        else:
            room = weight[near] / (1 - weight[near])
            step = min(lack / (2 * (1 - lack)), room) if lack < 1 else room
            weight *= 1 + step
            weight[near] = 0.0 if step == room else weight[near] - step
        center = weight @ centered
    # Measured on the original data: products of centered vectors round a little.
    gap = np.subtract(x, mean + best, dtype=np.float64)
    return mean + best, float(np.sqrt(np.einsum("ij,ij->i", gap, gap).max()))


def sphere_by_class(X: npt.ArrayLike, y: npt.ArrayLike, *, authors_compat: bool = False) -> dict[Any, float]:
    """Radius of the smallest ball that holds all records of a class, class by class.

    A single outlier determines it, and more records can only widen it: compare sets with equal class sizes.

    Parameters
    ----------
    X
        Vectors (n, d).
    y
        One label per vector.
    authors_compat
        Minimize the farthest distance itself by L-BFGS-B, starting from the mean, as the thesis did: that ball holds
        all records too, but it stops early, at a somewhat larger radius.

    Returns
    -------
    dict
        The radius by label; 0 for a class of one record.

    Examples
    --------
    >>> from locum.metrics import sphere_by_class
    >>> sphere_by_class([[0.0], [4.0], [9.0]], ["a", "a", "b"])
    {'a': 2.0, 'b': 0.0}
    """
    x = table("X", X)
    code = labels("y", y, len(x))
    radius = _radius_from_the_mean if authors_compat else _smallest_radius
    return {c.item(): radius(x[code == c]) for c in np.unique(code)}


def _smallest_radius(x: npt.NDArray[Any]) -> float:
    return bounding_sphere(x)[1]


def _radius_from_the_mean(x: npt.NDArray[Any]) -> float:
    """The distance to the farthest record, minimized by L-BFGS-B with its gradient where it has one."""
    from scipy.optimize import minimize

    points = x.astype(np.float64)

    def farthest(center: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        gaps = center - points
        squares = np.einsum("ij,ij->i", gaps, gaps)
        far = int(squares.argmax())
        distance = float(np.sqrt(squares[far]))
        return distance, gaps[far] / max(distance, 1e-300)

    result = minimize(farthest, points.mean(axis=0), jac=True, method="L-BFGS-B")
    return farthest(result.x)[0]
