"""Areas that a reader can redo by hand, and two twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy.spatial import ConvexHull, QhullError

from locum.errors import DataError
from locum.obfuscate import hull_auc

shares = st.integers(0, 20).map(lambda i: i / 20) | st.floats(0, 1)
curves = st.lists(st.tuples(shares, shares), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("points", "area"),
    [
        ([(0.8, 0.5)], 0.8 * 0.5 / 2),  # one point: a triangle
        ([(0.0, 0.9), (0.6, 0.9)], 0.6 * 0.9),  # a rectangle
        ([(0.2, 0.2), (0.4, 0.4), (0.8, 0.8)], 0.32),  # on one line
        ([(0.5, 0.8), (0.5, 0.8), (1.0, 0.8), (1.0, 0.8)], 0.2 + 0.4),  # twice the same
        ([(0.5, 0.8), (1.0, 1.0), (0.9, 0.1), (0.6, 0.3)], 0.2 + 0.45),  # two below the hull
        ([(1.0, 0.6), (0.5, 0.8)], 0.2 + 0.4),  # (x_max, y_max) is none of the points
        ([(0.7, 0.0)], 0.0),  # flat
        ([(0.0, 0.7)], 0.0),
    ],
)
def test_areas_by_hand(points: list[tuple[float, float]], area: float) -> None:
    assert hull_auc(points) == pytest.approx(area)
    assert hull_auc(points[::-1]) == pytest.approx(area)


def test_another_origin_moves_the_points_and_clips_them() -> None:
    # (0.4, 0.9) lies left of the origin: it becomes (0, 0.4); (1, 1) becomes (0.5, 0.5).
    assert hull_auc([(0.4, 0.9), (1.0, 1.0)], origin=(0.5, 0.5)) == pytest.approx(0.5 * (0.4 + 0.5) / 2)
    assert hull_auc([(0.4, 0.3)], origin=(0.5, 0.5)) == 0


def test_a_corner_closes_a_curve_that_stops_early() -> None:
    hidden = [(0.68, 0.82)]
    assert hull_auc(hidden) == pytest.approx(0.68 * 0.82 / 2)
    closed = 0.68 * 0.82 / 2 + (0.85 - 0.68) * (0.82 + 0.85) / 2
    assert hull_auc(hidden, corner=(0.85, 0.85)) == pytest.approx(closed)
    assert hull_auc([*hidden, (0.85, 0.85)]) == pytest.approx(closed)


def by_qhull(points: np.ndarray) -> float:
    x, y = points.max(axis=0)
    try:
        return float(ConvexHull(np.vstack([points, [0, 0], [x, y], [x, 0]])).volume)
    except QhullError:
        return 0.0


def by_envelope(points: np.ndarray) -> float:
    """Under the smallest concave function above all points: at each place the best of all chords."""
    every = np.vstack([points, [0, 0], points.max(axis=0)])
    places = np.unique(every[:, 0])

    def height(x: float) -> float:
        best = every[every[:, 0] == x, 1].max(initial=0)
        for a in every[every[:, 0] < x]:
            for b in every[every[:, 0] > x]:
                best = max(best, a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]))
        return best

    heights = [height(x) for x in places]
    return float(np.trapezoid(heights, places))


@given(curves, st.sampled_from([(0.0, 0.0), (0.5, 0.5)]))
def test_it_agrees_with_its_twins(points: list[tuple[float, float]], origin: tuple[float, float]) -> None:
    moved = np.maximum(np.array(points) - origin, 0)
    found = hull_auc(points, origin)
    assert found == pytest.approx(by_envelope(moved), abs=1e-9)
    assert found == pytest.approx(by_qhull(moved), abs=1e-6)


@given(curves, st.tuples(shares, shares))
@example([(0.0, 0.5), (0.05, 0.0)], (5e-324, 0.0))
def test_one_more_point_never_takes_area_away(points: list[tuple[float, float]], more: tuple[float, float]) -> None:
    assert hull_auc([*points, more]) >= hull_auc(points) - 1e-12
    assert hull_auc([*points, more]) == pytest.approx(hull_auc(points, corner=more))


@pytest.mark.parametrize("points", [[], [(0.1, math.nan)], [(0.1, 0.2, 0.3)]])
def test_what_is_no_curve_is_refused(points: list[tuple[float, ...]]) -> None:
    with pytest.raises(DataError):
        hull_auc(points)
