"""What an audit found, and whether a release may leave by the rules of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locum.audit.checks import Problem
from locum.audit.epsilon.epsilon_audit import EpsilonAudit
from locum.audit.policy import Finding
from locum.audit.risk import RiskMap
from locum.audit.screening import Screening
from locum.types import AttackResult, Verdict

_WORDS = {
    "leak": "This release gives records away that it was made from. Do not let it leave.",
    "no excess risk found": (
        "None of these attacks told more about the records it was made from than about strangers. That is no proof: "
        "an attack that was not tried may find more."
    ),
    "inconclusive": "These records cannot show whether the release is safe. That is no all-clear.",
}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Every attack with its verdict, what is wrong with the data, and the answers to a policy.

    It depends on records, members and others: it stays with their holder until somebody decides what may leave.
    `skipped` says of each attack that does not apply, why. `epsilon_audit` is there where an epsilon was
    put to the test. `risk` names records and is therefore in no dict: it has a file of its own, `risk.save(path)`.
    """

    results: tuple[AttackResult, ...]
    problems: tuple[Problem, ...]
    skipped: Mapping[str, str]
    policy: str
    findings: tuple[Finding, ...]
    screening: Screening | None = None
    epsilon_audit: EpsilonAudit | None = None
    risk: RiskMap | None = field(default=None, repr=False, compare=False)

    @property
    def verdict(self) -> Verdict:
        """The worst that was found: a leak, a doubt, or nothing."""
        verdicts = {result.verdict for result in self.results}
        if "leak" in verdicts or (self.epsilon_audit is not None and not self.epsilon_audit.ok):
            return "leak"
        doubts = any(problem.voids != "nothing" for problem in self.problems)
        return "inconclusive" if doubts or "inconclusive" in verdicts or not verdicts else "no excess risk found"

    @property
    def may_leave(self) -> bool:
        """Whether every rule of the policy is met. The decision is still somebody's."""
        return self.verdict != "leak" and all(finding.met for finding in self.findings)

    def sentence(self) -> str:
        """The verdict in words for somebody who decides."""
        return _WORDS[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, without the risk map."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence(),
            "may_leave": self.may_leave,
            "policy": {"name": self.policy, "findings": [finding.to_dict() for finding in self.findings]},
            "results": [_told(result) for result in self.results],
            "skipped": dict(self.skipped),
            "problems": [problem.to_dict() for problem in self.problems],
            "screening": None if self.screening is None else self.screening.to_dict(),
            "epsilon_audit": None if self.epsilon_audit is None else self.epsilon_audit.to_dict(),
        }


def _told(result: AttackResult) -> dict[str, Any]:
    """One attack, its three estimates under `estimates`, so that `attack` can be its name."""
    facts = result.to_dict()
    estimates = {name: facts.pop(name) for name in ("attack", "control", "baseline")}
    return {"attack": facts.pop("attack_name"), **facts, "estimates": estimates}
