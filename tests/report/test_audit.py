"""The audit on a page: the verdict first, every part of it, nothing that runs, nothing better than what was found."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from locum.errors import DataError
from locum.release.passport import AttackEntry, AuditEntry, EpsilonAuditEntry, PolicyEntry, RuleEntry
from locum.release.passport.schema import Figure
from locum.report import audit_facts, audit_html
from locum.report.audit import entry_facts
from locum.report.text import limit_words
from locum.types import CHANCE_ABOVE, met_though_inconclusive, verdict_text

HOSTILE = "</title><script>alert(1)</script>"


def estimate(value: float, half: float = 0.04) -> dict[str, Any]:
    return {"value": value, "low": max(0.0, value - half), "high": min(1.0, value + half), "n": 211}


def an_audit(verdict: str = "no excess risk found", name: str = "nearest distance") -> dict[str, Any]:
    """As `AuditReport.to_dict` gives it, with an AUC and a share of hits."""
    chance = {"value": 0.5, "low": 0.5, "high": 0.5, "n": 1}
    words = "211 independent non-members cannot show what happens"
    usual = {"material": 0.05, "level": 0.01}
    ranked = {
        "name": name,
        "measure": "auc",
        "verdict": "inconclusive",
        **usual,
        "p_value": 0.2,
        "adjusted": 0.4,
        "tpr": {"0.01": estimate(0.013)},
        "by_class": {"ant": estimate(0.51), "bee": estimate(0.61)},
        "most_exposed": estimate(0.53),
        "roc": [[0.01, 0.0], [0.1, 0.12], [1.0, 1.0]],
        "notes": ["a note on one attack"],
        "inconclusive_because": f"twins; {words}",
        "attack": estimate(0.52),
        "control": estimate(0.49),
        "baseline": chance,
    }
    share = {
        "name": "singling out",
        "measure": "share",
        "verdict": "no excess risk found",
        **usual,
        "p_value": 0.2,
        "attack": estimate(0.02, 0.01),
        "control": estimate(0.01, 0.01),
        "baseline": estimate(0.0),
    }
    screens = ("closest", "closest_non_members", "ratio", "ratio_non_members", "closer", "copies")
    lower = {"epsilon": 1.2345, "delta": 1e-5, "confidence": 0.95, "canaries": 1000}
    return {
        "fingerprint": "ab" * 32,
        "verdict": verdict,
        "may_leave": True,
        "policy": {
            "name": "internal",
            "findings": [{"rule": "no attack found a leak", "met": True, "found": "none", "reason": "It is one."}],
        },
        "results": [ranked, share],
        "skipped": {"hole": "not applicable: no table"},
        "problems": [{"kind": "too few", "words": words, "count": 211, "voids": "reassurance"}],
        "screening": {"title": "screening only"} | {n: estimate(0.4) for n in screens},
        "epsilon_audit": {"verdict": "no contradiction found", "lower": lower, "upper": 8.0},
    }


class Page(HTMLParser):
    """Text, tags, ids, and whether every SVG that is no mere ornament has a title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.charts: list[str] = []
        self.text = re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.S))
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append(tag)
        if told.get("id"):
            self.ids.append(str(told["id"]))
        if tag == "svg" and told.get("aria-hidden") != "true":
            self.charts.append(str(told.get("aria-labelledby")))


def test_every_part_of_an_audit_is_on_its_page() -> None:
    page = Page(audit_html(audit_facts(an_audit())))
    for words in (
        "Attacks inconclusive",
        met_though_inconclusive(["nearest distance"], 2, proven=False),
        "Policy internal: met",
        "a note on one attack",
        "inconclusive because twins",
        "cannot show what happens",
        "no result can be reassuring",
        "not applicable: no table",
        "screening only",
        "1,000 canaries refute every epsilon below 1.23 ",
        "Risk by class",
        "TPR at 1% FPR",
    ):
        assert words in page.text, words
    # The fault of the data is shown once, not with every attack.
    assert page.text.count("cannot show what happens") == 1
    assert page.text.index("By themselves, 1 of 2 attacks") < page.text.index("nearest distance")
    # "Not a pass" beside "met" reads as a contradiction.
    assert verdict_text("inconclusive").audit not in page.text
    assert page.charts == ["forest-auc-title", "forest-share-title", "audit-roc-title", "epsilon_audit-title"]
    assert set(page.charts) <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)


def test_the_policy_and_the_reason_stand_on_top() -> None:
    page = Page(audit_html(audit_facts(an_audit() | {"because": "the records are twins"})))
    places = [
        page.text.index(words) for words in ("Policy internal: met", "Reason: the records are twins.", "Findings")
    ]
    assert places == sorted(places)
    facts = audit_facts(an_audit("leak") | {"because": "an old reason"})
    assert facts["because"] == ""
    assert "times out of 100" in facts["strongest"]


def test_rules_that_are_not_met_stand_on_top() -> None:
    rule = {"rule": "no attacker's AUC can be above 0.6", "met": False, "found": "LiRA: 0.7", "reason": "It is much."}
    audit = an_audit() | {"may_leave": False, "policy": {"name": "internal", "findings": [rule]}}
    facts = audit_facts(audit)
    assert facts["consequence"] == "1 of 1 rules is not met. This release must not leave."
    top = Page(audit_html(facts)).text.split("Findings")[0]
    assert "No attacker&#39;s AUC can be above 0.6." in top
    assert "Found: LiRA: 0.7. It is much." in top


def test_a_figure_above_its_limit_is_explained() -> None:
    """0.52 [0.48, 0.56] is measured and 0.5126 proven: a reader must learn that this is no contradiction."""
    audit = an_audit()
    del audit["results"][0]["inconclusive_because"]
    audit["results"][0] |= {"limit": 0.5126, "verdict": "within the proven limit"}
    audit["limit"] = {"auc": 0.5126, "sentence": "No test has an AUC above 0.513.", "open_assumptions": []}
    facts = audit_facts(audit)
    assert facts["strongest"].endswith(limit_words(0.5126))
    assert "0.513" in limit_words(0.5126)
    assert CHANCE_ABOVE in limit_words(0.5126)
    page = audit_html(facts)
    assert CHANCE_ABOVE in page
    # The chart shows it too, with the same rounding, unless it rests on what nobody accepted.
    assert "proven limit, 0.513" in page
    assert "0.512" not in page
    audit["limit"]["open_assumptions"] = ["it is so"]
    assert "proven limit, 0.513" not in audit_html(audit_facts(audit))


def test_a_policy_met_by_proof_says_so() -> None:
    audit = an_audit()
    audit["policy"]["findings"][0]["proven"] = True
    facts = audit_facts(audit)
    assert (facts["title"], facts["policy"]["met"]) == ("Attacks inconclusive", True)
    assert facts["sentence"] == met_though_inconclusive(["nearest distance"], 2, proven=True)
    refused = audit_facts(audit | {"may_leave": False})
    assert (facts["tone"], refused["tone"]) == ("doubt", "leak")
    assert refused["sentence"] == verdict_text("inconclusive").audit


def test_figures_are_said_in_words() -> None:
    said = [result["said"] for result in audit_facts(an_audit())["results"]]
    assert said == [
        "Guesses right 52 times out of 100; a coin flip would be right 50 times.",
        "Succeeds on 2 out of 100 records; by chance, 0.",
    ]


def test_a_note_about_several_attacks_is_shown_once() -> None:
    audit = an_audit()
    audit["results"][1]["notes"] = ["a note on one attack", "another"]
    facts = audit_facts(audit)
    assert facts["notes"][0] == ["nearest distance, singling out", "a note on one attack"]
    assert ["singling out", "another"] in facts["notes"]
    assert Page(audit_html(facts)).text.count("a note on one attack") == 1


def test_distances_are_told_in_units_of_those_to_non_members() -> None:
    closest = audit_facts(an_audit())["screening"][0]
    assert closest["non_members"]["value"] == 1


def test_the_most_exposed_class_comes_first() -> None:
    assert [row["name"] for row in audit_facts(an_audit())["classes"]["rows"]] == ["bee", "ant"]


def test_nothing_runs_and_nothing_is_fetched() -> None:
    audit = an_audit(name=HOSTILE)
    audit["results"][0]["by_class"][HOSTILE] = estimate(0.5)
    audit["skipped"][HOSTILE] = HOSTILE
    audit["policy"]["name"] = audit["problems"][0]["words"] = HOSTILE
    text = audit_html(audit_facts(audit))
    assert "script" not in Page(text).tags
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", text)


def test_a_page_is_never_better_than_what_was_found() -> None:
    audit = an_audit()
    # The audit still says "no excess risk found".
    audit["results"][1] |= {"verdict": "leak", "p_value": 1e-9}
    facts = audit_facts(audit)
    assert facts["verdict"] == "leak"
    assert facts["policy"]["met"] is False
    assert "must not leave" in facts["answer"]
    broken = an_audit()
    broken["epsilon_audit"]["upper"] = 1.0
    facts = audit_facts(broken)
    assert facts["verdict"] == "leak"
    assert "Broken guarantee" in Page(audit_html(facts)).text
    unmet = an_audit()
    unmet["policy"]["findings"][0]["met"] = False
    assert "1 of 1 rules" in audit_facts(unmet)["answer"]
    # A decision does not make a policy that is not met look met.
    decided = audit_facts(unmet, decision="approved by the holder on 2026-01-31")["answer"]
    assert "must not leave. It was approved by the holder on 2026-01-31." in decided


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("results",), None),
        (("results", 0, "verdict"), "fine"),
        (("results", 0, "verdict"), "no excess risk found"),
        (("results", 0, "measure"), None),
        (("results", 0, "attack", "value"), float("nan")),
        (("results", 0, "attack", "low"), "0.1"),
        (("results", 0, "roc"), [[0.1, 7.0]]),
        (("epsilon_audit", "upper"), float("inf")),
        (("problems", 0, "voids"), "everything"),
        (("policy",), "internal"),
        (("screening", "closer"), None),
    ],
)
def test_a_file_of_another_shape_is_one_sentence(path: tuple[Any, ...], value: Any) -> None:
    audit = an_audit()
    *way, last = path
    at: Any = audit
    for step in way:
        at = at[step]
    at[last] = value
    with pytest.raises(DataError, match="not as `locum audit RELEASE --json` writes it"):
        audit_facts(audit)


def test_what_is_lacking_leaves_no_empty_chart() -> None:
    audit = copy.deepcopy(an_audit("inconclusive"))
    audit |= {"epsilon_audit": None, "screening": None, "policy": None, "problems": [], "skipped": {}}
    audit["results"] = audit["results"][1:]
    facts = audit_facts(audit)
    page = Page(audit_html(facts))
    assert page.charts == ["forest-share-title"]
    assert "Inconclusive" in page.text
    assert facts["answer"] == ""
    assert json.loads(json.dumps(facts)) == facts


def test_a_passports_audit_has_the_same_shape_and_less_in_it() -> None:
    figure = Figure(value=0.52, low=0.48, high=None)
    entry = AuditEntry(
        verdict="inconclusive",
        results=(
            AttackEntry(name="nearest distance", measure="auc", verdict="inconclusive", attack=figure),
            AttackEntry(name="singling out", measure="share", verdict="no excess risk found"),
        ),
        policy=PolicyEntry(name="internal", met=True, rules=(RuleEntry(rule="a rule", met=True),)),
        epsilon_audit=EpsilonAuditEntry(
            verdict="no contradiction found", lower=1.0, upper=8.0, delta=1e-5, confidence=0.95, canaries=10
        ),
    )
    facts, whole = entry_facts(entry.model_dump()), audit_facts(an_audit())
    assert set(facts) == set(whole)
    assert set(facts["results"][0]) == set(whole["results"][0])
    assert not any((facts["classes"], facts["problems"], facts["skipped"], facts["screening"]))
    assert all(not r["roc"] and not r["by_class"] and not r["notes"] for r in facts["results"])
    assert facts["sentence"] == met_though_inconclusive(["nearest distance"], 2, proven=None)
