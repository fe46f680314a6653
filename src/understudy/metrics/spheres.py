"""Radius of the smallest ball around each class: how widely its records spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.metrics._checks import labels, table
from understudy.metrics.diversity import bounding_sphere

__all__ = ["sphere_by_class"]


def sphere_by_class(X: npt.ArrayLike, y: npt.ArrayLike, *, authors_compat: bool = False) -> dict[Any, float]:
    """Radius of the smallest ball that holds all records of a class, class by class.

    One outlier sets it, and more records can only widen it: compare sets of equal class sizes. A class of one record
    has radius 0. `authors_compat` minimises the furthest distance itself by L-BFGS-B, from the mean on, as
    the thesis did: it holds all records too, but stops early, at a somewhat larger ball.

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
    """What L-BFGS-B makes of the distance to the furthest record, and of its gradient where there is one."""
    from scipy.optimize import minimize

    points = x.astype(np.float64)

    def furthest(centre: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        gaps = centre - points
        squares = np.einsum("ij,ij->i", gaps, gaps)
        far = int(squares.argmax())
        distance = float(np.sqrt(squares[far]))
        return distance, gaps[far] / max(distance, 1e-300)

    result = minimize(furthest, points.mean(axis=0), jac=True, method="L-BFGS-B")
    return furthest(result.x)[0]
