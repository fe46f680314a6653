"""One number for a trade-off between what attackers and receivers find out: the seed's hull AUC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from understudy.errors import DataError

__all__ = ["hull_auc"]

Pair = tuple[float, float]


def hull_auc(points: Iterable[Sequence[float]], origin: Pair = (0.0, 0.0), corner: Pair | None = None) -> float:
    """Area of the convex hull of a trade-off curve and of what closes it; more is better.

    A point is (accuracy of the attacker, accuracy of the receiver). In this order:

    1. `corner` joins the points, if one is given: what both reach where nothing is hidden.
    2. `origin` is subtracted from every point; a coordinate that is then negative becomes 0.
    3. x_max and y_max are the largest coordinates, each taken alone, so perhaps of different points.
    4. The area is that of the convex hull of (0, 0), all points, (x_max, y_max) and (x_max, 0).

    Points below the hull do not matter, nor does their order; one point alone gives a triangle. The area is not
    divided by anything: for accuracies it is at most 1, and 0.25 with the origin (0.5, 0.5). A method whose points
    all hide much has a small x_max, and so a small area: compare methods with one `corner` for all of them.

    Examples
    --------
    >>> hull_auc([(1.0, 1.0)])
    0.5
    >>> hull_auc([(0.5, 1.0), (1.0, 1.0)])
    0.75
    >>> hull_auc([(0.5, 1.0), (1.0, 1.0)], origin=(0.5, 0.5))
    0.25
    """
    rows = [tuple(p) for p in points]
    if not rows:
        raise DataError("A hull needs at least one point (attacker, receiver); got none.")
    if corner is not None:
        rows.append(tuple(corner))
    if any(len(row) != 2 for row in rows):
        raise DataError("Each point of a hull is a pair (attacker, receiver); got one of another length.")
    curve = np.maximum(np.asarray(rows, dtype=np.float64) - np.asarray(origin, dtype=np.float64), 0.0)
    if not np.isfinite(curve).all():
        raise DataError("Points of a hull must be finite numbers; one is not.")
    x_max, y_max = curve.max(axis=0).tolist()
    # All y are 0 or more and the floor is in the set: the hull is what lies under its upper edge.
    upper: list[Pair] = []
    for x, y in sorted({(0.0, 0.0), (x_max, y_max), *map(tuple, curve.tolist())}):
        while len(upper) > 1 and not _turns_right(upper[-2], upper[-1], (x, y)):
            upper.pop()
        upper.append((x, y))
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(upper))


def _turns_right(a: Pair, b: Pair, c: Pair) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) < 0
