"""Charts are well-formed, say what they show, and put things where the numbers say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.report import charts as svg

HOSTILE = '"><script>alert(1)</script>&'


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(markup))


def starts(path: str) -> list[tuple[float, float]]:
    """Where each mark of a path begins."""
    return [(float(a), float(b)) for a, b in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path)]


def test_scatter_has_a_mark_for_each_point_in_its_place() -> None:
    points = [[0.0, 0.0, 0], [1.0, 1.0, 0], [0.5, 0.25, 1], [0.1, 0.1, -1]]
    chart = parsed(svg.scatter(points, ["ant", HOSTILE], key="m", title=HOSTILE, axes=["x", "y"]))
    assert chart.get("role") == "img"
    assert chart.findtext("title") == HOSTILE
    marks = {p.findtext("title"): starts(p.get("d", "")) for p in chart.iter("path") if "mark" in p.get("class", "")}
    assert set(marks) == {"ant", HOSTILE, "other classes"}
    (x0, y0), (x1, y1) = marks["ant"]
    assert x1 - x0 == y0 - y1 > 300, "up is up, and both axes have one scale"
    assert marks[HOSTILE] == [(x0 + (x1 - x0) / 2, y0 + (y1 - y0) / 4)]


def test_no_two_of_88_classes_look_alike() -> None:
    marks = {str(svg.legend_mark(c)) for c in range(88)}
    assert len(marks) == 88
    assert str(svg.legend_mark(-1)) not in marks


def test_histogram_bars_are_as_high_as_their_shares() -> None:
    shares = [0.5, 0.0, 0.25, 0.25]
    series = [{"title": "a <b>", "style": "released", "shares": shares, "quantiles": {"median": 1.0}}]
    chart = parsed(svg.histograms(series, [0.0, 1.0, 2.0, 3.0, 4.0], key="h", title="t"))
    (bars,) = (p.get("d", "") for p in chart.iter("path") if p.get("class") == "released")
    heights = [float(h) for h in re.findall(r"v-([\d.]+)h", bars)]
    np.testing.assert_allclose(np.array(heights) / heights[0], [1, 0.5, 0.5])
    texts = [t.text for t in chart.iter("text")]
    assert "a <b>" in texts
    assert "median 1.0 ×" in texts
    assert {"0", "1", "2", "3", "4"} <= set(texts)


def test_intervals_lie_on_a_common_axis() -> None:
    rows = [
        {"name": "attack", "style": "released", "value": 0.7, "low": 0.6, "high": 0.8},
        {"name": "baseline", "style": "real", "value": 0.5, "low": None, "high": None},
    ]
    chart = parsed(svg.intervals(rows, key="i", title="t", reference=0.5, note="coin"))
    (whisker,) = (p.get("d", "") for p in chart.iter("path") if p.get("class") == "whisker")
    a, b = (float(v) for v in re.match(r"M([\d.]+) \S+?H([\d.]+)", whisker).groups())  # type: ignore[union-attr]
    at = {
        p.get("class"): starts(p.get("d", ""))[0][0]
        for p in chart.iter("path")
        if p.get("class") in ("released", "real")
    }
    assert at["released"] == pytest.approx((a + b) / 2, abs=0.2)
    assert at["real"] < a


def test_cells_stay_inside_their_box() -> None:
    for estimate in ({"value": 2.0, "low": -1.0, "high": 3.0}, {"value": 0.5, "low": None, "high": None}):
        cell = svg.interval(estimate, 0.0, 1.0)
        parsed(cell)
        assert all(0 <= x <= 80 for x, _ in starts(str(cell)))
    assert 'width="50.00"' in svg.bar(0.2, 0.4, "real")
    assert 'width="0.00"' in svg.bar(0.0, 0.0, "real")


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e5))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    ticks = svg._ticks(low, low + span)
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-6 * span <= t <= low + span * (1 + 1e-6) for t in ticks)
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def boxes(labels: list[str]) -> list[tuple[float, float, float, float]]:
    found = [re.search(r'x="(-?[\d.]+)" y="(-?[\d.]+)"[^>]*>([^<]*)<', label) for label in labels if label]
    out = []
    for one in found:
        assert one is not None
        x, y, text = float(one[1]), float(one[2]), one[3]
        out.append((x, y - 10, x + 6.5 * len(text), y))
    return out


@given(st.lists(st.tuples(st.floats(50, 400), st.floats(20, 290)), min_size=1, max_size=40))
def test_labels_of_a_curve_cover_neither_each_other_nor_a_mark(marks: list[tuple[float, float]]) -> None:
    spots = svg.FreeSpots(marks, 0, 0, 450, 300)
    placed = boxes([spots.label(x, y, "0.25") for x, y in marks])
    for i, (a, b, c, d) in enumerate(placed):
        assert a >= 0
        assert c <= 450
        for e, f, g, h in placed[:i]:
            assert c <= e or g <= a or d <= f or h <= b
        assert not any(a < x < c and b < y < d for x, y in marks)


def test_marks_that_stand_apart_all_have_their_label() -> None:
    marks = [(40.0 * i + 20, 100.0) for i in range(10)]
    spots = svg.FreeSpots(marks, 0, 0, 450, 300)
    assert all(spots.label(x, y, "0.5") for x, y in marks)


def test_no_line_of_a_curve_runs_through_a_label() -> None:
    marks = [(100.0, 100.0), (140.0, 60.0)]
    spots = svg.FreeSpots(marks, 0, 0, 450, 300, [(marks[0], marks[1])])
    (a, b, c, d) = boxes([spots.label(*marks[0], "0.25")])[0]
    # The first choice lies right above, where the line goes.
    assert not any(a < 100 + t < c and b < 100 - t < d for t in range(41))
    walled = svg.FreeSpots(marks, 0, 0, 450, 300, [((0.0, y), (450.0, y)) for y in range(0, 300, 5)])
    assert walled.label(*marks[0], "0.25") == ""
