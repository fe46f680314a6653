"""What an audit found, and whether a policy lets the release leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locum.audit.checks import Problem
from locum.audit.epsilon.epsilon_audit import EpsilonAudit
from locum.audit.policy import Finding
from locum.audit.risk import RiskMap
from locum.audit.screening import Screening
from locum.types import AttackResult, Verdict, worst_verdict


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Every attack with its verdict, the faults of the data, and the findings of a policy.

    It depends on records of members and non-members, so it stays with their holder until someone decides what may
    leave.

    Parameters
    ----------
    results
        One result per attack that was run, corrected for their number.
    problems
        Faults of the data.
    skipped
        The reason for each attack that does not apply, by name.
    policy
        Name of the policy.
    findings
        Each rule of the policy (`rule`, `met`, `found`, `reason`).
    screening
        Distances as other tools report them, without a verdict; None if they were not measured.
    epsilon_audit
        The test of a claimed epsilon; None if there was none.
    risk
        How exposed each member is; None if no attack scores records. It names records, so `to_dict` leaves it out:
        write it with `risk.save(path)`.

    Examples
    --------
    >>> from locum.audit import AuditReport
    >>> AuditReport(results=(), problems=(), skipped={"hole": "not a table"}, policy="internal", findings=()).verdict
    'inconclusive'
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
        """The worst verdict; a refuted epsilon is a leak, and faulty data or no results are inconclusive."""
        found: list[Verdict] = [result.verdict for result in self.results]
        if self.epsilon_audit is not None and not self.epsilon_audit.ok:
            found.append("leak")
        if not self.results or any(problem.voids != "nothing" for problem in self.problems):
            found.append("inconclusive")
        return worst_verdict(*found)

    @property
    def may_leave(self) -> bool:
        """Whether every rule of the policy is met. Someone still has to decide."""
        return self.verdict != "leak" and all(finding.met for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, without the risk map."""
        return {
            "verdict": self.verdict,
            "may_leave": self.may_leave,
            "policy": {"name": self.policy, "findings": [finding.to_dict() for finding in self.findings]},
            "results": [result.to_dict() for result in self.results],
            "skipped": dict(self.skipped),
            "problems": [problem.to_dict() for problem in self.problems],
            "screening": None if self.screening is None else self.screening.to_dict(),
            "epsilon_audit": None if self.epsilon_audit is None else self.epsilon_audit.to_dict(),
        }
