"""Charts of an audit: marks lie where their numbers are, and within the picture."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from locum.report.charts import epsilon_bar, forest, log_roc


def estimate(value: float, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


def row(attack: float, control: float, verdict: str = "leak") -> dict[str, object]:
    return {
        "name": "<b>",
        "measure": "auc",
        "verdict": verdict,
        "attack": estimate(attack, attack, 1.0),
        "control": estimate(control, 0.0, control),
        "baseline": estimate(0.5, 0.5, 0.5),
    }


def box(chart: str) -> tuple[float, float]:
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart)
    assert found is not None
    return float(found[1]), float(found[2])


def test_an_attack_lies_right_of_its_control_and_a_leak_is_said_in_words_too() -> None:
    chart = str(forest([row(0.9, 0.5)], key="k", title="t", chance=0.5))
    attack = re.search(r'class="hot" d="M([\d.]+)', chart)
    control = re.search(r'class="real" d="M([\d.]+)', chart)
    assert attack is not None
    assert control is not None
    assert float(attack[1]) > float(control[1])
    assert ">leak<" in chart
    assert "<b>" not in chart
    calm = str(forest([row(0.5, 0.5, "inconclusive")], key="k", title="t", chance=0.5))
    assert 'class="hot"' not in calm


@pytest.mark.parametrize("chance", [0.5, None])
@given(st.floats(0, 1), st.floats(0, 1))
def test_marks_stay_in_the_picture(chance: float | None, a: float, b: float) -> None:
    chart = str(forest([row(a, b), row(b, a)], key="k", title="t", chance=chance))
    width, height = box(chart)
    for x, y in re.findall(r' d="M([-\d.]+) ([-\d.]+)', chart):
        assert 0 <= float(x) <= width
        assert 0 <= float(y) <= height


@pytest.mark.parametrize("chance", [0.5, None])
def test_lines_of_chance_and_of_the_limit_cross_no_words(chance: float | None) -> None:
    chart = str(forest([row(0.52, 0.5), row(0.5, 0.5)], key="k", title="t", chance=chance, limit=0.567))
    words = [float(y) for y in re.findall(r'<text class="[^"]*tag[^"]*"[^>]* y="([\d.]+)"', chart)]
    spans = [
        (float(start), float(end))
        for path in re.findall(r'<path class="(?:median|limit)" d="([^"]+)"', chart)
        for start, end in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", path)
    ]
    assert len(words) == 4
    assert spans
    # A line of text reaches about 12 units above its base line, and 4 below.
    assert not [(y, span) for y in words for span in spans if span[0] < y + 4 and span[1] > y - 12]


def test_equal_decades_have_equal_lengths_and_nothing_found_lies_on_the_floor() -> None:
    points = [[0.001, 0.0], [0.01, 0.01], [0.1, 0.1], [1.0, 1.0]]
    chart = str(log_roc([("x", points)]))
    path = re.search(r'class="trace t0" d="M([^"]*)"', chart)
    assert path is not None
    places = [tuple(map(float, p.split())) for p in path[1].split("L")]
    steps = [b[0] - a[0] for a, b in pairwise(places)]
    assert math.isclose(steps[0], steps[1], abs_tol=0.2)
    assert math.isclose(steps[1], steps[2], abs_tol=0.2)
    frame = re.search(r'<rect class="frame" x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', chart)
    assert frame is not None
    assert places[0][1] == float(frame[1]) + float(frame[2])
    # On the line of chance both axes agree: y falls as x grows, by the same share of the frame.
    assert places[3][1] == float(frame[1])


def test_a_curve_of_one_point_can_be_drawn() -> None:
    assert "trace" in log_roc([("x", [[1.0, 1.0]])])


@given(st.floats(0, 100), st.floats(0.01, 100))
def test_the_epsilon_bar_says_in_color_and_words_whether_the_guarantee_holds(lower: float, upper: float) -> None:
    chart = str(epsilon_bar(lower, upper))
    assert ("The guarantee is broken" in chart) == (lower > upper) == ('class="hot"' in chart)
    width, _ = box(chart)
    for x, w in re.findall(r'<rect class="[a-z]+" x="([\d.]+)" y="[\d.]+" width="([-\d.]+)"', chart):
        assert float(w) >= 0
        assert float(x) + float(w) <= width
