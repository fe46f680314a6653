"""Cards for notebooks: hostile names stay text, and the first lines are the program's own words."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from locum.accounting import PLAN_NOTE, Ledger, plan_query, plan_sgd
from locum.audit import STAYS, AuditReport, audit
from locum.cli import output
from locum.generate import ClassGaussian
from locum.release import Release
from locum.types import DP, EmbeddingInfo, EmbeddingSet, PrivacyClaim, html_card, html_text

NASTY = "<script>alert('x')</script>\u202e\x1b[31m"
HARMLESS = {"div", "table", "thead", "tbody", "tr", "td", "th"}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(card: str) -> Tags:
    tags = Tags()
    tags.feed(card)
    assert tags.tags <= HARMLESS
    assert tags.attributes <= {"style", "role", "scope"}
    assert "url(" not in card
    return tags


@pytest.fixture
def hostile(rng: np.random.Generator) -> Release:
    info = EmbeddingInfo(NASTY, class_names=(NASTY, "b"))
    return ClassGaussian(random_state=0).fit(rng.normal(size=(40, 3)), np.arange(40) % 2).release(info, no_dp=True)


def test_nothing_that_is_given_becomes_markup() -> None:
    card = html_card([(NASTY, NASTY)], table=[[NASTY]], columns=[NASTY], notes=[NASTY, '" onload="alert(1)'])
    words = "".join(parsed(card).text)
    assert words.count("alert('x')") == 5
    assert "\x1b" not in card
    assert "\u202e" not in card
    assert len(html_text("x" * 10**6)) < 3000


def test_a_release_with_hostile_names(hostile: Release) -> None:
    card = hostile._repr_html_()
    assert "alert('x')" in "".join(parsed(card).text)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("kind", ["none", "dp"])
def test_a_claim_in_the_words_of_the_program(
    kind: str, rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    if kind == "dp":
        model = ClassGaussian(privacy=DP(1.0, 1e-5), classes=[0, 1], ledger=tmp_path / "ledger.sqlite")
        claim = model.fit(X, y).release().claim
    else:
        claim = ClassGaussian().fit(X, y).release(no_dp=True).claim
    output.show_claim(claim)
    said = told(capsys)
    shown = parsed(claim._repr_html_()).text
    assert " ".join(" ".join(shown).split()) == said
    assert shown[1] == claim.title


def test_an_audit_begins_with_the_verdict_and_ends_with_a_warning(hostile: Release, rng: np.random.Generator) -> None:
    names = hostile.info.class_names
    data = EmbeddingSet(
        rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 2, info=EmbeddingInfo(class_names=names)
    )
    report = audit(hostile, data.take(range(30)), data.take(range(30, 60)))
    shown = parsed(report._repr_html_()).text
    assert shown[1] == " ".join(report.lines()[0][0].split())
    assert shown[-1] == STAYS
    assert {row[0] for row in report.rows()} <= set(shown)


def test_an_audit_without_results_is_no_pass() -> None:
    empty = AuditReport(results=(), problems=(), skipped={NASTY: "<b>"}, policy="internal", findings=())
    shown = parsed(empty._repr_html_())
    assert shown.text[1].startswith("Inconclusive.")
    assert "Policy internal: NOT met." in shown.text


def test_plans_show_what_the_program_prints() -> None:
    for plan in (plan_query(DP(1.0, 1e-5)), plan_sgd(DP(1.0, 1e-5, n_public=2000), batch=256, epochs=2)):
        shown = parsed(plan._repr_html_()).text
        assert shown[1] == "epsilon 1, delta 1e-05, unit: record"
        assert "noise multiplier" in shown
        assert shown[-1] == PLAN_NOTE


def test_a_ledger_is_private_and_looking_makes_none(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new.sqlite")
    (tmp_path / "new.sqlite").unlink()
    assert "is gone" in ledger._repr_html_()
    assert not (tmp_path / "new.sqlite").exists()
    ledger = Ledger(tmp_path / "other.sqlite")
    ledger.set_budget("<i>scans</i>", epsilon=2.0, delta=1e-5)
    shown = parsed(ledger._repr_html_()).text
    assert "<i>scans</i>" in shown
    assert "2 / 1e-05" in shown
    assert "Private" in shown[-1]


def test_a_test_claim_stands_out() -> None:
    assert PrivacyClaim("none", not_covered=("x",), test=True).tone == "bad"
