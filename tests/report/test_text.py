"""The wording of verdicts: one table, complete, and the same on the terminal and on pages."""

from __future__ import annotations

from dataclasses import astuple
from typing import get_args

import pytest

from locum.cli import output
from locum.report.page import pages
from locum.report.text import closest_words, times
from locum.types import AttackResult, Estimate, Verdict, verdict_text


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_every_verdict_has_a_title_and_two_sentences(verdict: Verdict) -> None:
    words = verdict_text(verdict)
    assert words.title.lower() == verdict
    assert all(text.endswith(".") for text in astuple(words)[1:])


def test_the_terminal_takes_its_words_from_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    chance = Estimate.exact(0.5)
    result = AttackResult("nearest distance", "auc", Estimate(0.9, 0.8, 1.0, 100), chance, chance)
    assert result.verdict == "leak"
    output.show_membership(result)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"leak: {verdict_text('leak').attack}" in shown


def test_every_attack_is_explained() -> None:
    from locum.audit import ATTACKS
    from locum.report.text import ATTACK_WORDS

    assert set(ATTACK_WORDS) == set(ATTACKS)


def test_names_in_backticks_are_code_on_every_page() -> None:
    page = pages().from_string("{{ a }}|{{ b }}|{{ c }}")
    shown = page.render(a="leave `--x` out, or `<b>`", b="one ` alone", c="none")
    assert shown == "leave <code>--x</code> out, or <code>&lt;b&gt;</code>|one ` alone|none"


def test_far_away_is_said_without_digits_that_mean_nothing() -> None:
    def series(far: float) -> dict[str, object]:
        return {"series": [{"name": "released", "quantiles": {"median": far}}]}

    assert times(99.6) == "100 ×"
    assert times(5627.0) == "> 100 ×"
    assert "more than 100 times as far" in closest_words(series(5627.0))
    assert "do not look like records" in closest_words(series(5627.0))
    assert "do not look like records" not in closest_words(series(1.3))
