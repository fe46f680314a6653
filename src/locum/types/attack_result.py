"""What an attacker achieved, beside what a stranger's data and a coin would have given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from locum.errors import ConfigError
from locum.types.estimate import Estimate

Verdict = Literal["leak", "no excess risk found", "inconclusive"]


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Attack, control and baseline of one attack, and the verdict that follows from them.

    `leak`: members are told apart from strangers more often than chance explains: `adjusted`, or `p_value` where
    nothing was adjusted, is at most `level`. A result without a `p_value`, as a first look gives it, is a leak where
    the attack beats both the baseline and the control, beyond their intervals.
    `no excess risk found`: the whole interval of the attack lies within `material` of what strangers give.
    `inconclusive`: neither; most often, too few records.
    An attack that finds nothing proves nothing about a better attack.

    `level` is the share of harmless releases that may be called a leak. `adjusted` is the p-value after correction
    for all attacks on one release. `tpr` is the share of members found, by the share of strangers accused. `by_class`
    and `most_exposed` are the attack on parts of the records; they have no say in the verdict. `roc` holds pairs of
    false and true positive rates. `inconclusive_because` names what is wrong with the data: such a result never
    reassures, and with `voided` it does not accuse either, since the fault alone could look like a leak.
    """

    name: str
    attack: Estimate
    control: Estimate
    baseline: Estimate
    material: float = 0.05
    p_value: float | None = None
    adjusted: float | None = None
    tpr: Mapping[float, Estimate] = field(default_factory=dict)
    by_class: Mapping[str, Estimate] = field(default_factory=dict)
    most_exposed: Estimate | None = None
    roc: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()
    inconclusive_because: str = ""
    voided: bool = False
    level: float = 0.01

    def __post_init__(self) -> None:
        for name in ("p_value", "adjusted"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"`{name}` must lie in 0..1; got {value!r}.")
        if self.voided and not self.inconclusive_because:
            raise ConfigError("A voided result needs its reason in `inconclusive_because`.")

    @property
    def verdict(self) -> Verdict:
        """The word that a reader may act on."""
        p = self.p_value if self.adjusted is None else self.adjusted
        if p is None:
            leak = self.attack.low > self.baseline.high and self.attack.low > self.control.value
            floor = self.baseline.value
        else:
            leak = p <= self.level
            # Where strangers succeed too, as with links between features that hang together, that is no excess.
            floor = max(self.baseline.value, self.control.low)
        if leak:
            return "inconclusive" if self.voided else "leak"
        if self.attack.high <= floor + self.material and not self.inconclusive_because:
            return "no excess risk found"
        return "inconclusive"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; what was not measured is left out."""
        out: dict[str, Any] = {
            "attack_name": self.name,
            "verdict": self.verdict,
            "attack": self.attack.to_dict(),
            "control": self.control.to_dict(),
            "baseline": self.baseline.to_dict(),
        }
        more = {
            "p_value": self.p_value,
            "adjusted": self.adjusted,
            "tpr": {f"{fpr:g}": e.to_dict() for fpr, e in self.tpr.items()},
            "by_class": {name: e.to_dict() for name, e in self.by_class.items()},
            "most_exposed": None if self.most_exposed is None else self.most_exposed.to_dict(),
            "roc": [list(point) for point in self.roc],
            "notes": list(self.notes),
            "inconclusive_because": self.inconclusive_because,
        }
        return out | {k: v for k, v in more.items() if v not in (None, {}, [], "")}
