"""The report of a trade-off: the same facts in three forms, nothing that runs, and no name that becomes markup."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from locum.obfuscate import Judgment, Point, TradeOff
from locum.report import judges_see, obfuscation_html, obfuscation_markdown, obfuscation_report, to_json
from locum.types import Estimate, PrivacyClaim

HOSTILE = '<script>alert("x")</script>|`'


def around(value: float) -> Estimate:
    return Estimate(value, value - 0.02, value + 0.02, 400)


def found(original: float = 0.85) -> TradeOff:
    def judged(attacker: float, utility: float) -> Judgment:
        return Judgment(
            weak={"trees": around(attacker - 0.03)},
            strong={"trees": around(attacker)},
            informed={"trees": around(attacker - 0.02)},
            averaged={"trees": around(attacker - 0.01)},
            utility_original={"trees": around(utility)},
            utility_released={"trees": around(utility - 0.05)},
            original_private={"trees": around(original)},
            original_informed={"trees": around(original)},
            original_utility={"trees": around(0.87)},
            label_only=around(0.68),
            majority=around(0.67),
            utility_majority=around(0.75),
        )

    return TradeOff(
        tuple(
            Point(f"noise {n:g}, lambda {v:g}", {"noise": n, "lambda_": v}, judged(a, u))
            for v in (-50.0, 0.0)
            for n, a, u in ((0.0, 0.8, 0.86), (2.0, 0.72, 0.83), (float("inf"), 0.68, 0.8))
        )
    )


def report(**change: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "obfuscator": {"kind": "table", "preset": "calibrated", "utility": HOSTILE, "fingerprint": "ab" * 32},
        "claim": PrivacyClaim(kind="none", not_covered=("what an attacker finds out: measured, not proven",)),
        "measured": {"private": HOSTILE, "tested on": "Records of --test."},
    }
    return obfuscation_report(found(), **(options | change))


def test_it_is_internal_and_says_so_in_every_form() -> None:
    made = report()
    assert made["audience"] == "internal"
    for text in (obfuscation_html(made), obfuscation_markdown(made, found().to_markdown())):
        assert "INTERNAL" in text
        assert "do not send it" in text
        assert "not proven" in text
    facts = json.loads(to_json({k: v for k, v in made.items() if k != "grid"}))
    assert facts["points"][2]["knobs"] == {"noise": "infinity", "lambda": -50.0}
    assert facts["points"][0]["attacker"]["value"] == 0.8
    assert facts["points"][0]["attacker_name"] == "strong trees"


def test_every_point_and_every_baseline_is_on_the_page() -> None:
    page = obfuscation_html(report(target=0.75, picked="noise 2, lambda -50"))
    for text in ("0.800", "0.720", "0.680", "0.850", "0.870", "noise 2, lambda -50 (picked)", "utility label alone"):
        assert text in page
    assert page.count('class="ring" cx') == 2, "the picked point, and its mark in the legend"
    chart = page[page.index('<svg class="chart"') : page.index("</svg>", page.index('<svg class="chart"'))]
    assert len(re.findall(r'class="mark k\d+"', chart)) == 6
    assert len(re.findall(r'class="trace', chart)) == 2
    assert "nan" not in chart.lower()


def test_marks_lie_where_the_figures_say() -> None:
    page = obfuscation_html(report())
    traces = re.findall(r'class="trace t\d+" d="M([^"]+)"', page)
    xs, ys = zip(*[tuple(map(float, pair.split())) for pair in traces[0].split("L")], strict=True)
    # More noise: less for attackers (to the left) and for receivers (downwards on the page).
    assert xs[0] > xs[1] > xs[2]
    assert ys[0] < ys[1] < ys[2]
    # Steps on the page are in proportion to steps of the figures.
    assert (xs[0] - xs[1]) / (xs[1] - xs[2]) == pytest.approx(0.08 / 0.04, abs=0.02)


def test_names_from_data_are_shown_and_never_run() -> None:
    made = report(target=0.5, problem=f"No point {HOSTILE}")
    page, text = obfuscation_html(made), obfuscation_markdown(made, "")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in text
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)


def test_attackers_that_are_blind_on_originals_are_told_of() -> None:
    assert judges_see(found())
    assert not judges_see(found(original=0.69))
    made = obfuscation_report(
        found(original=0.69),
        obfuscator={"kind": "table", "preset": "paper", "utility": "income", "fingerprint": "ab"},
        claim=PrivacyClaim(kind="none", not_covered=("all",)),
        measured={"private": "sex", "tested on": "-"},
    )
    assert "learned too little" in obfuscation_html(made)


def test_images_come_as_data_alone() -> None:
    grid = {
        "noises": ["0", "1"],
        "lambdas": ["-50"],
        "originals": b"\x89PNG-a",
        "cells": [[b"\x89PNG-b", b"\x89PNG-c"]],
    }
    page = obfuscation_html(report(grid=grid))
    assert len(re.findall(r'<img alt="[^"]+" src="data:image/png;base64,', page)) == 3
    assert "What comes out" not in obfuscation_html(report())


def test_the_verdict_stands_on_top_and_gives_its_reason() -> None:
    states = {
        "clear": report(target=0.8, picked="noise 2, lambda -50"),
        "leak": report(target=0.5, problem="The utility label alone reveals more."),
        "": report(),
    }
    for state, made in states.items():
        assert made["verdict"]["state"] == state
        page = obfuscation_html(made)
        assert page.index('class="word"') < page.index('id="summary"')
    assert "72 times out of 100" in states["clear"]["verdict"]["words"]
    assert states["leak"]["verdict"]["words"].startswith("The utility label alone reveals more.")
    blind = obfuscation_report(
        found(0.68),
        obfuscator=states[""]["obfuscator"],
        claim=PrivacyClaim(kind="none", not_covered=("x",)),
        measured=states[""]["measured"],
        target=0.8,
    )
    assert (blind["verdict"]["state"], blind["verdict"]["title"]) == ("doubt", "Inconclusive")
    assert "nothing to hide" in blind["verdict"]["words"]
