"""The page of a decision: what it says without findings, and with good and bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from locum.audit import AuditReport
from locum.release import Release
from locum.release.passport import FIVE_SAFES
from locum.report import SAFES, audit_facts, decision_facts
from locum.types import AttackResult, Estimate

Make = Callable[..., Release]


def audited(*aucs: float, met: bool = True) -> dict[str, Any]:
    chance = Estimate.exact(0.5)
    results = tuple(
        AttackResult(name, "auc", Estimate(auc, auc - 0.02, auc + 0.02, 400), chance, chance, p_value=0.5)
        for name, auc in zip(("nearest distance", "LiRA"), aucs, strict=True)
    )
    found = AuditReport(results=results, problems=(), skipped={}, policy="internal", findings=()).to_dict()
    found["policy"]["findings"] = [{"rule": "no leak", "met": met, "found": "none", "reason": "because"}]
    return audit_facts({**found, "may_leave": met})


def test_without_findings_the_verdict_is_open(make: Make) -> None:
    facts = decision_facts(make())
    assert facts["verdict"]["state"] == "open"
    assert facts["strongest"] is None
    assert facts["usefulness"] is None
    assert facts["claim"]["warning"]
    assert json.loads(json.dumps(facts)) == facts


def test_the_checklist_is_the_one_that_a_decision_needs() -> None:
    assert tuple(SAFES) == tuple(FIVE_SAFES)


@pytest.mark.parametrize("met", [True, False])
def test_the_verdict_is_that_of_the_policy(make: Make, met: bool) -> None:
    facts = decision_facts(make(), audit=audited(0.51, 0.52, met=met))
    assert facts["verdict"]["state"] == ("met" if met else "not met")
    assert ("NOT" in facts["verdict"]["title"]) == (not met)
    assert facts["verdict"]["rules"][0]["met"] is met


def test_attacks_without_a_clear_answer_are_counted(make: Make) -> None:
    # The interval of the second ends at 0.56: an excess of 0.05 is not ruled out.
    audit = audited(0.51, 0.54)
    sentence = decision_facts(make(), audit=audit)["verdict"]["sentence"]
    assert "By themselves, 1 of 2 attacks gave no clear answer (LiRA)." in sentence
    assert "not a pass" not in sentence


def test_attacks_without_a_policy_are_not_denied(make: Make) -> None:
    verdict = decision_facts(make(), audit={**audited(0.51, 0.52), "policy": None})["verdict"]
    assert verdict["state"] == "open"
    assert "No attack was run" not in verdict["sentence"]


def test_nearly_always_is_not_always(make: Make) -> None:
    assert "more than 99 times out of 100" in decision_facts(make(), audit=audited(0.51, 0.996))["strongest"]["words"]


def test_the_strongest_attack_is_the_one_with_the_highest_auc(make: Make) -> None:
    facts = decision_facts(make(), audit=audited(0.51, 0.64))
    assert facts["strongest"]["name"] == "LiRA"
    assert "64 times out of 100" in facts["strongest"]["words"]
    assert facts["strongest"]["how"]
    assert facts["strongest"]["tried"] == 2


def test_the_loss_is_the_difference_from_real_data(make: Make, measured: dict[str, Any]) -> None:
    facts = decision_facts(make(), evaluation=measured)
    assert facts["usefulness"]["lost"] == pytest.approx(0.89123 - 0.87654)
    assert "1.5 points are lost" in facts["usefulness"]["words"]
    alone = decision_facts(make(), evaluation={**measured, "rows": measured["rows"][:1]})
    assert alone["usefulness"]["real"] is None
    assert "lost" not in alone["usefulness"]["words"]


def test_names_from_a_hostile_release_stay_on_one_line(make: Make) -> None:
    facts = decision_facts(make(), audit=audited(0.5, 0.5) | {"consequence": "two\nlines\x1b[31m"})
    assert "\n" not in facts["verdict"]["sentence"]
    assert "\x1b" not in facts["verdict"]["sentence"]


def test_a_claim_has_a_title_that_a_reader_understands(make: Make) -> None:
    assert decision_facts(make())["claim"]["title"] == "No guarantee"
    assert "k" in decision_facts(make(rows=True))["claim"]["title"]
