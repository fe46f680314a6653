"""What an audit found, and whether a policy lets the release leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locum.audit.checks import Problem
from locum.audit.doubts import doubts_in_words
from locum.audit.epsilon.epsilon_audit import EpsilonAudit
from locum.audit.limit import ProvenLimit
from locum.audit.policy import Finding
from locum.audit.risk import RiskMap
from locum.audit.screening import Screening
from locum.types import (
    ATTACKS_INCONCLUSIVE,
    CHANCE_ABOVE,
    AttackResult,
    Tone,
    Verdict,
    html_card,
    met_though_inconclusive,
    verdict_text,
    worst_verdict,
)

# Headings of `AuditReport.rows`.
COLUMNS = ("attack", "verdict", "members", "non-members", "chance", "p, corrected")
# What is said last, wherever a report is shown.
STAYS = "These figures depend on records. Keep them here until someone decides that they may leave."
VERDICT_TONES: dict[Verdict, Tone] = {
    "leak": "bad",
    "inconclusive": "doubt",
    "within the proven limit": "good",
    "no excess risk found": "good",
}


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
    limit
        The proven limit that results were held against; None if there was none.
    missing
        Names of attacks that the policy needs and that were not run: the verdict is then inconclusive at best.
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
    limit: ProvenLimit | None = None
    missing: tuple[str, ...] = ()
    risk: RiskMap | None = field(default=None, repr=False, compare=False)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; a refuted epsilon is a leak, and faulty data or no results are inconclusive."""
        found: list[Verdict] = [result.verdict for result in self.results]
        if self.epsilon_audit is not None and not self.epsilon_audit.ok:
            found.append("leak")
        if not self.results or self.missing or any(problem.voids in self._doubts for problem in self.problems):
            found.append("inconclusive")
        elif self._proven:
            found.append("within the proven limit")
        return worst_verdict(*found)

    @property
    def _proven(self) -> bool:
        return self.limit is not None and not self.limit.open_assumptions

    @property
    def _doubts(self) -> tuple[str, ...]:
        """Which faults of the data count: where a limit is proven, too few records do not."""
        return ("all",) if self._proven else ("all", "reassurance")

    @property
    def outcome(self) -> str:
        """The verdict in words: `within the proven limit (x)` where attacks find what a proof allows and no more."""
        within = self.limit is not None and self.verdict == "within the proven limit"
        return self.limit.words if within and self.limit is not None else self.verdict

    @property
    def because(self) -> str:
        """Why the verdict is inconclusive, in words; empty if it is not."""
        if self.verdict != "inconclusive":
            return ""
        reasons = [f"{name} was not run" for name in self.missing]
        reasons += [problem.words for problem in self.problems if problem.voids in self._doubts]
        if not self.results:
            reasons.append("no attack was run")
        if not reasons:
            reasons = [doubts_in_words(self.results)]
        return "; ".join(reasons)

    @property
    def may_leave(self) -> bool:
        """Whether every rule of the policy is met. Someone still has to decide.

        Where nothing was attacked, or no rule was checked, nothing is met.
        """
        tested = bool(self.results) and bool(self.findings)
        return tested and self.verdict != "leak" and all(finding.met for finding in self.findings)

    def lines(self) -> list[tuple[str, Tone]]:
        """What was found, whether the policy is met, and what canaries say: one text each, and how it is meant.

        Terminal and notebook begin with these lines.
        """
        out: list[tuple[str, Tone]] = []
        both = self.epsilon_audit
        # A refuted guarantee says more than any attack, so it comes first.
        if both is not None and not both.ok:
            out.append((both.words, "bad"))
        if both is None or both.ok or any(result.verdict == "leak" for result in self.results):
            words = verdict_text(self.verdict)
            why = f" Reason: {self.because}." if self.because else ""
            if self.limit is not None and self.outcome == self.limit.words:
                out.append((f"{self.outcome.capitalize()}. {self.limit.sentence} {CHANCE_ABOVE}", "good"))
            elif self.verdict == "inconclusive" and self.may_leave:
                doubts = [result.name for result in self.results if result.verdict == "inconclusive"]
                proven = any(finding.proven for finding in self.findings)
                said = met_though_inconclusive(doubts, len(self.results), proven=proven)
                out.append((f"{ATTACKS_INCONCLUSIVE}. {said}{why}", VERDICT_TONES[self.verdict]))
            else:
                out.append((f"{words.title}. {words.audit}{why}", VERDICT_TONES[self.verdict]))
        met = self.may_leave
        out.append((f"Policy {self.policy}: {'met' if met else 'NOT met'}.", "good" if met else "bad"))
        if both is not None and both.ok:
            out.append((both.words, "plain"))
        return out

    def rows(self) -> list[list[str]]:
        """One row per attack under `COLUMNS`, as terminal and notebook show them."""
        return [
            [
                result.name,
                result.verdict,
                *(
                    "-" if value is None else value.short()
                    for value in (result.attack, result.control, result.baseline)
                ),
                "-" if result.adjusted is None else f"{result.adjusted:.2g}",
            ]
            for result in self.results
        ]

    def _repr_html_(self) -> str:
        """For notebooks; the words are those of the program."""
        told = self.lines()
        notes = [f"{problem.words}." for problem in self.problems]
        notes += [f"{name} was not run: {reason}." for name, reason in self.skipped.items()]
        notes += [f"{'yes' if f.met else 'NO'}: {f.rule} ({f.found})" for f in self.findings]
        lines = [("audit" if i == 0 else "", text) for i, (text, _) in enumerate(told)]
        return html_card(lines, table=self.rows(), columns=COLUMNS, notes=[*notes, STAYS], tone=told[0][1])

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, without the risk map."""
        return {
            "verdict": self.verdict,
            "outcome": self.outcome,
            "because": self.because,
            "may_leave": self.may_leave,
            "policy": {"name": self.policy, "findings": [finding.to_dict() for finding in self.findings]},
            "results": [result.to_dict() for result in self.results],
            "skipped": dict(self.skipped),
            "problems": [problem.to_dict() for problem in self.problems],
            "limit": None if self.limit is None else self.limit.to_dict(),
            "screening": None if self.screening is None else self.screening.to_dict(),
            "epsilon_audit": None if self.epsilon_audit is None else self.epsilon_audit.to_dict(),
        }
