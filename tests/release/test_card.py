from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from locum import EmbeddingInfo
from locum.generate import ClassGaussian
from locum.io import markdown_sentence, markdown_text
from locum.release import Release
from locum.release.card import render_card

NASTY = ("<script>alert(1)</script>", "a|b`c", "line\nbreak\u202e", "[x](javascript:alert(1))")


@pytest.fixture
def card(rng: np.random.Generator) -> str:
    X, y = rng.normal(size=(80, 3)), np.arange(80) % 4
    return render_card(ClassGaussian().fit(X, y).release(EmbeddingInfo("b", class_names=NASTY), no_dp=True).manifest)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


def test_names_from_outside_are_escaped(card: str) -> None:
    parser = Tags()
    parser.feed(card)
    assert parser.found == []
    assert NASTY[0] in html.unescape(card)
    assert "](javascript" not in card
    assert "\u202e" not in card


def test_a_name_cannot_break_the_table(card: str) -> None:
    row = next(line for line in card.splitlines() if line.startswith("| classes"))
    assert row.count("|") == 3
    assert row.count("`") == 0


def test_names_in_our_own_sentences_can_be_read() -> None:
    """A reader of the file sees backticks and ampersands, and no markup that a name smuggles in."""
    assert markdown_sentence("labels from `classes`, R&D & more") == "labels from `classes`, R&D & more"
    assert markdown_text("a & b") == "a & b"
    for nasty in ("`<b>`", "`", "``x``", "`[x](y)`", "&lt;b&gt;", "&#60;", "`a|b`", "x`y` `"):
        shown = markdown_sentence(f"values of {nasty} are public")
        outside = re.sub(r"`[\w.=/-]+`", "", shown)
        assert not set("<>|`[]*") & set(outside), shown
        assert html.unescape(shown) == f"values of {nasty} are public"


def test_front_matter_is_yaml_and_the_claim_is_told(gaussian: Release) -> None:
    card = render_card(gaussian.manifest)
    assert card.startswith("---\nlibrary_name: locum\n")
    assert card.count("\n---\n") == 1
    assert "No formal guarantee" in card
    assert all(item in html.unescape(card) for item in gaussian.claim.not_covered)


def test_no_exact_count_in_the_card(gaussian: Release) -> None:
    card = render_card(gaussian.manifest)
    assert all(str(n) not in card for n in (210, 120))
