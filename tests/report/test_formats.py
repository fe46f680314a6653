"""HTML, Markdown and JSON from the same dict: whole, safe and small."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from locum.errors import ConfigError
from locum.release import Release
from locum.report import internal_report, render, shareable_report, to_html, to_markdown
from locum.report.page import _text

Make = Callable[..., Release]
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b`c`[d](javascript:alert(1))**e**",
    "</style><svg onload=alert(1)>{{ 7*7 }}{% raw %}",
)
SECTIONS = ["claim", "utility", "map", "distances", "classes", "membership", "settings", "glossary"]


class Seen(HTMLParser):
    """Elements, attributes, and whether every element is closed."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def full(make: Make, measured: dict[str, Any]) -> dict[str, Any]:
    release = make(HOSTILE)
    rng = np.random.default_rng(0)
    records = rng.normal(size=(60, 6)).astype(np.float32), np.arange(60) % len(HOSTILE)
    return internal_report(release, records=records, held_out=records, measured=measured, map="pca")


def test_the_page_is_whole_and_in_order(full: dict[str, Any]) -> None:
    page = to_html(full)
    seen = Seen(page)
    assert seen.open == []
    ids = [v for k, v in seen.attributes if k == "id" and v in SECTIONS]
    assert ids == SECTIONS
    assert len([v for k, v in seen.attributes if k == "id"]) == len({v for k, v in seen.attributes if k == "id"})
    assert page.index("INTERNAL") < page.index('id="claim"')
    assert page.count("In plain words") == len(SECTIONS) - 1
    for text in ("0.877", "0.864 to 0.889", "tested on 313 real records", "0 of 2,000 released vectors equal"):
        assert text in page


def test_untrusted_names_are_shown_and_not_run(full: dict[str, Any]) -> None:
    page = to_html(full)
    seen = Seen(page)
    assert not {"script", "img", "iframe", "link", "object", "embed", "form"} & set(seen.tags)
    assert not [k for k, _ in seen.attributes if k.startswith("on")]
    assert "{{ 7*7 }}" in page, "a name is text, not a template"
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("audience", ["internal", "shareable"])
def test_nothing_is_fetched(make: Make, audience: str) -> None:
    build = internal_report if audience == "internal" else shareable_report
    page = to_html(build(make(), map="pca"))
    seen = Seen(page)
    assert not [(k, v) for k, v in seen.attributes if k in ("src", "srcset", "action", "data", "poster")]
    assert all(v and v.startswith("#") for k, v in seen.attributes if k == "href")
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    assert "@import" not in page
    policy = next(v for _, v in seen.attributes if v and "default-src" in v)
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_charts_are_named_for_those_who_cannot_see(full: dict[str, Any]) -> None:
    page = to_html(full)
    for chart in re.findall(r"<svg[^>]*>", page):
        assert 'aria-hidden="true"' in chart or ('role="img"' in chart and "aria-labelledby" in chart)
    for key in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert f'<title id="{key}">' in page


def test_empty_sections_say_what_to_type(make: Make) -> None:
    page = to_html(internal_report(make(), map="pca"))
    assert page.count("<code>locum report RELEASE --train DATA --test DATA</code>") == 4
    assert Seen(page).open == []
    shared = to_html(shareable_report(make(rows=True)))
    assert "--include-measured" in shared
    assert "SHAREABLE" in shared
    assert "INTERNAL" not in shared
    assert Seen(shared).open == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the values of `n_public` and `classes`", "the values of `n_public` and `classes`"),
        ("`a|b`", "&#96;a&#124;b&#96;"),
        ("a lone ` and `<b>`", "a lone &#96; and &#96;&#60;b&#62;&#96;"),
        ("``x``", "&#96;`x`&#96;"),
    ],
)
def test_plain_names_stay_code_in_markdown(text: str, shown: str) -> None:
    assert _text(text) == shown


def test_markdown_cannot_be_broken_out_of(full: dict[str, Any]) -> None:
    text = to_markdown(full)
    assert "<" not in text
    assert "javascript" in text
    assert "](" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.M)
    assert len(tables) >= 5
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert text.startswith("# Locum report")
    assert "**INTERNAL.**" in text


def test_the_suffix_chooses(full: dict[str, Any]) -> None:
    assert render(full, ".html").startswith("<!doctype html>")
    assert render(full, ".md").startswith("# ")
    assert json.loads(render(full, ".json")) == full
    with pytest.raises(ConfigError, match=r"\.html, \.md or \.json"):
        render(full, ".pdf")


def test_a_full_page_stays_small(make: Make) -> None:
    release = make(tuple(f"{'n' * 190}{i}" for i in range(90)))
    rng = np.random.default_rng(0)
    records = rng.normal(size=(2000, 6)).astype(np.float32), np.arange(2000) % 90
    page = to_html(internal_report(release, records=records, map="pca"))
    assert len(page.encode()) < 1_000_000


def test_one_feature_and_one_class(make: Make) -> None:
    for names in (("only",), ("a", "b")):
        page = to_html(shareable_report(make(names, features=1)))
        assert "PCA" in page
        assert Seen(page).open == []
