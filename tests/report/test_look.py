"""Pages and the studio share one look: the same colors mean the same."""

from __future__ import annotations

import re
from importlib import resources

import pytest

# What the pages call a color, and what the studio calls it.
SAME = {
    "paper": "page", "card": "surface", "wash": "raised", "line": "line", "ink": "ink", "soft": "muted",
    "accent": "accent", "good": "good", "good-wash": "good-soft", "warn": "bad", "warn-wash": "bad-soft",
    "open": "open", "open-wash": "open-soft",
}  # fmt: skip


def colors(package: str, file: str) -> list[dict[str, str]]:
    """Color variables of the light and the dark scheme."""
    text = resources.files(package).joinpath(file).read_text()
    return [dict(re.findall(r"--([\w-]+): (#\w+);", body)) for body in re.findall(r":root \{(.*?)\}", text, re.S)[:2]]


@pytest.mark.parametrize(("scheme", "name"), [(0, "LIGHT"), (1, "DARK")])
def test_classes_have_the_same_colors_on_every_map(scheme: int, name: str) -> None:
    page = colors("locum.report", "templates/report.css")[scheme]
    text = resources.files("locum.studio").joinpath("static/js/map.js").read_text()
    listed = re.search(rf"const {name} = \[(.*?)\];", text)
    assert listed is not None
    assert re.findall(r"#\w+", listed[1]) == [page[f"k{i}"] for i in range(11)]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_studio_has_the_colors_of_the_pages(scheme: int) -> None:
    page = colors("locum.report", "templates/report.css")[scheme]
    studio = colors("locum.studio", "static/studio.css")[scheme]
    plain = {"#fff": "#ffffff"}
    assert {theirs: plain.get(studio[theirs], studio[theirs]) for theirs in SAME.values()} == {
        theirs: plain.get(page[mine], page[mine]) for mine, theirs in SAME.items()
    }
