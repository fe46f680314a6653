"""What a passport may tell of an audit and of an evaluation: verdicts, and figures that are rounded already."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from understudy.release.manifest import ShortText, Strict
from understudy.types import Verdict

__all__ = [
    "AttackEntry",
    "AuditEntry",
    "Figure",
    "PolicyEntry",
    "RuleEntry",
    "SandwichEntry",
    "UtilityEntry",
    "UtilityRow",
    "worst_verdict",
]

Name = Annotated[str, Field(pattern=r"^[ -~]{1,120}$")]
FigureName = Literal["attack", "control", "baseline", "most exposed", "TPR at 1 % FPR", "TPR at 0.1 % FPR"]


class Figure(Strict):
    """A measured number, rounded to two digits, and its 95 % interval, rounded outwards; an open end is null.

    How many observations are behind it is not told.
    """

    value: float
    low: float | None
    high: float | None


class AttackEntry(Strict):
    """One attack on the release. `figures` are there only if the holder asked for them."""

    attack: Name
    verdict: Verdict
    figures: dict[FigureName, Figure] = Field(default_factory=dict)


class RuleEntry(Strict):
    """One rule of a policy, and whether it is met."""

    rule: ShortText
    met: bool


class PolicyEntry(Strict):
    """The policy by which the holder judged. It is met if all its rules are, and no attack found a leak."""

    name: ShortText
    met: bool
    rules: Annotated[tuple[RuleEntry, ...], Field(max_length=100)] = ()


class SandwichEntry(Strict):
    """Epsilon from both sides: `upper` is the claim, `lower` what canaries refute in a run that read no record."""

    verdict: Literal["broken promise", "no contradiction found"]
    lower: Annotated[float, Field(ge=0)]
    upper: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    canaries: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _says_what_it_found(self) -> Self:
        if (self.verdict == "broken promise") != (self.lower > self.upper):
            raise ValueError("a promise is broken where the lower bound is above the claim, and only there")
        return self


class AuditEntry(Strict):
    """What attackers achieved, on records that stay with the holder.

    `verdict` is never better than the worst of the results; a leak or a broken promise meets no policy.
    """

    verdict: Verdict
    results: Annotated[tuple[AttackEntry, ...], Field(min_length=1, max_length=200)]
    policy: PolicyEntry | None = None
    sandwich: SandwichEntry | None = None

    @model_validator(mode="after")
    def _the_worst(self) -> Self:
        if self.verdict != worst_verdict(self.verdict, *(result.verdict for result in self.results)):
            raise ValueError("the verdict of an audit must not be better than the worst of its results")
        broken = self.sandwich is not None and self.sandwich.verdict == "broken promise"
        if broken and self.verdict != "leak":
            raise ValueError("a broken promise is a leak")
        rules = () if self.policy is None else self.policy.rules
        if self.policy is not None and self.policy.met and (self.verdict == "leak" or not all(r.met for r in rules)):
            raise ValueError("no policy is met where there is a leak, or where one of its rules is not met")
        return self


class UtilityRow(Strict):
    """A classifier that learnt from one source, tested on real records."""

    method: Name
    scores: dict[Name, Figure]
    distance: Figure | None = None


class UtilityEntry(Strict):
    """How useful the release is. There only if the holder asked for it."""

    head: Name
    seeds: Annotated[int, Field(ge=1)]
    rows: Annotated[tuple[UtilityRow, ...], Field(min_length=1, max_length=100)]


def worst_verdict(*verdicts: Verdict) -> Verdict:
    """A leak anywhere is a leak, and a doubt anywhere a doubt."""
    order: tuple[Verdict, ...] = ("leak", "inconclusive", "no excess risk found")
    return min(verdicts, key=order.index)
