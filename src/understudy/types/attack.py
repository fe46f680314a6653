"""What an attacker achieved, beside what a stranger's data and a coin would have given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from understudy.types.estimate import Estimate

__all__ = ["AttackResult", "Verdict"]

Verdict = Literal["leak", "no excess risk found", "inconclusive"]


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Attack, control and baseline of one attack, and the verdict that follows from them.

    `leak`: the attack beats both the baseline and the control, beyond their intervals.
    `no excess risk found`: its whole interval lies within `material` of the baseline.
    `inconclusive`: neither; most often, too few records.
    An attack that finds nothing proves nothing about a better attack.
    """

    name: str
    attack: Estimate
    control: Estimate
    baseline: Estimate
    material: float = 0.05

    @property
    def verdict(self) -> Verdict:
        """The word that a reader may act on."""
        if self.attack.low > self.baseline.high and self.attack.low > self.control.value:
            return "leak"
        if self.attack.high <= self.baseline.value + self.material:
            return "no excess risk found"
        return "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "attack_name": self.name,
            "verdict": self.verdict,
            "attack": self.attack.to_dict(),
            "control": self.control.to_dict(),
            "baseline": self.baseline.to_dict(),
        }
