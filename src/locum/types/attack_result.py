"""What an attacker achieved, next to what the same attack achieves on non-members and by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from locum.errors import ConfigError, DataError
from locum.types.estimate import Estimate, finite_number

Verdict = Literal["leak", "inconclusive", "within the proven limit", "no excess risk found"]
# What canaries say about a claimed epsilon.
EpsilonVerdict = Literal["broken guarantee", "no contradiction found"]
# "auc": how well members rank above non-members; 0.5 is chance. "share": how many members were hit.
Measure = Literal["auc", "share"]

# What may leave in a passport. Nothing else does: no class, curve, note, p-value or count.
SHAREABLE_ESTIMATES = ("attack", "control", "baseline", "most_exposed")
SHAREABLE_RATES = (0.01, 0.001)


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Attack, control and baseline of one attack, and the verdict that follows from them.

    `leak`: members are told from non-members more often than chance explains, that is, `adjusted` (or `p_value` if
    nothing was adjusted) is at most `level`. A result without a `p_value`, such as that of the membership check after
    a fit, is a leak if its whole interval lies above that of the baseline and above the control's value.
    `no excess risk found`: no leak, and the interval of the attack ends at most `material` above the baseline (or,
    with a p-value, above the low end of the control if that is higher).
    `within the proven limit`: a guarantee limits the AUC (`limit`), and the interval does not lie above it; without a
    guarantee it would be a leak or inconclusive.
    `inconclusive`: none of these, usually because there are too few records.
    An attack that finds nothing proves nothing about a better attack. Figures depend on private records: only what
    `shareable` returns may leave.

    Parameters
    ----------
    name
        Name of the attack.
    measure
        What the estimates are: "auc" (0.5 is chance) or "share" (of records that were hit).
    attack
        What the attack achieves: against members, or in telling members from non-members.
    control
        What the same attack achieves on non-members alone.
    baseline
        What an attacker achieves without the release, such as 0.5 for an AUC.
    material
        The smallest excess that matters, in units of the estimates.
    p_value
        Probability of so strong an attack if nothing leaks, in 0..1; None if it was not computed.
    adjusted
        `p_value` corrected for all attacks on one release; None if nothing was corrected.
    tpr
        Share of members found, by the share of non-members wrongly accused.
    by_class
        The attack on each class, by class name. The verdict does not depend on it.
    most_exposed
        The attack on the records where it does best. The verdict does not depend on it.
    roc
        Pairs of false and true positive rates.
    notes
        Remarks for the reader of a report.
    inconclusive_because
        What is wrong with the data; empty if nothing is. Such a result is never `no excess risk found`.
    voided
        The fault alone could look like a leak, so the result is not called a leak either.
    level
        Share of harmless releases that may be called a leak.
    limit
        The AUC that a guarantee, checked against a ledger, proves that no attack exceeds on average; None if there is
        none.

    Examples
    --------
    >>> from locum.types import AttackResult, Estimate
    >>> chance = Estimate.exact(0.5)
    >>> AttackResult("mean distance", "auc", Estimate(0.7, 0.65, 0.75, 400), chance, chance, p_value=1e-6).verdict
    'leak'
    >>> AttackResult("mean distance", "auc", Estimate(0.5, 0.47, 0.53, 400), chance, chance, p_value=0.5).verdict
    'no excess risk found'
    """

    name: str
    measure: Measure
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
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.measure not in get_args(Measure):
            raise ConfigError(f"`measure` must be 'auc' or 'share'; got {self.measure!r}.")
        for name in ("p_value", "adjusted"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"`{name}` must lie in 0..1; got {value!r}.")
        if self.limit is not None and (self.measure != "auc" or not 0.5 <= self.limit <= 1):
            raise ConfigError(f"`limit` is for an AUC and lies in 0.5..1; got {self.limit!r} for {self.measure!r}.")
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
            # Where non-members are hit too, for example because features are correlated, that is no excess.
            floor = max(self.baseline.value, self.control.low)
        within = self.limit is not None and self.attack.low <= self.limit
        if leak:
            if self.voided:
                return "inconclusive"
            return "within the proven limit" if within else "leak"
        if self.inconclusive_because:
            return "inconclusive"
        if self.attack.high <= floor + self.material:
            return "no excess risk found"
        return "within the proven limit" if within else "inconclusive"

    @property
    def doubt(self) -> str:
        """Why the verdict is inconclusive, in words that say what is missing; empty if it is not."""
        if self.verdict != "inconclusive":
            return ""
        if self.inconclusive_because:
            return self.inconclusive_because
        if math.isinf(self.attack.high):
            return "there is no interval: one run cannot show how far another would be"
        return "the interval reaches too high to show no excess risk, and more records would make it narrower"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, the only JSON form of an attack; what was not measured is left out."""
        out: dict[str, Any] = {
            "name": self.name,
            "measure": self.measure,
            "verdict": self.verdict,
            "attack": self.attack.to_dict(),
            "control": self.control.to_dict(),
            "baseline": self.baseline.to_dict(),
            "material": self.material,
            "level": self.level,
        }
        more = {
            "p_value": self.p_value,
            "adjusted": self.adjusted,
            "tpr": {_rate(fpr): e.to_dict() for fpr, e in self.tpr.items()},
            "by_class": {name: e.to_dict() for name, e in self.by_class.items()},
            "most_exposed": None if self.most_exposed is None else self.most_exposed.to_dict(),
            "roc": [list(point) for point in self.roc],
            "notes": list(self.notes),
            "inconclusive_because": self.inconclusive_because,
            "voided": self.voided or None,
            "limit": self.limit,
        }
        return out | {k: v for k, v in more.items() if v not in (None, {}, [], "")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AttackResult:
        """Undo `to_dict`. A verdict that does not follow from the figures is an error."""
        exposed = data.get("most_exposed")
        out = cls(
            name=_text(data["name"]),
            measure=data["measure"],
            attack=Estimate.from_dict(data["attack"]),
            control=Estimate.from_dict(data["control"]),
            baseline=Estimate.from_dict(data["baseline"]),
            material=finite_number(data["material"]),
            p_value=None if data.get("p_value") is None else finite_number(data["p_value"]),
            adjusted=None if data.get("adjusted") is None else finite_number(data["adjusted"]),
            tpr={float(fpr): Estimate.from_dict(e) for fpr, e in data.get("tpr", {}).items()},
            by_class={_text(name): Estimate.from_dict(e) for name, e in data.get("by_class", {}).items()},
            most_exposed=None if exposed is None else Estimate.from_dict(exposed),
            roc=tuple((_share(fpr), _share(tpr)) for fpr, tpr in data.get("roc", [])),
            notes=tuple(_text(note) for note in data.get("notes", [])),
            inconclusive_because=_text(data.get("inconclusive_because", "")),
            voided=data.get("voided") is True,
            level=finite_number(data["level"]),
            limit=None if data.get("limit") is None else finite_number(data["limit"]),
        )
        if data["verdict"] != out.verdict:
            raise DataError(
                f"The verdict {str(data['verdict'])[:40]!r} does not follow from the figures, which say "
                f"{out.verdict!r}. Run the attack again."
            )
        return out

    def shareable(self, *, figures: bool) -> dict[str, Any]:
        """The part of `to_dict` that may leave: name, measure and verdict; with `figures` also rounded estimates."""
        out: dict[str, Any] = {"name": self.name, "measure": self.measure, "verdict": self.verdict}
        if not figures:
            return out
        estimates = {name: getattr(self, name) for name in SHAREABLE_ESTIMATES}
        out |= {name: e.rounded() for name, e in estimates.items() if e is not None}
        rates = {_rate(fpr): e.rounded() for fpr, e in self.tpr.items() if fpr in SHAREABLE_RATES}
        return out | ({"tpr": rates} if rates else {})


def worst_verdict(*verdicts: Verdict) -> Verdict:
    """The worst of several verdicts: a leak anywhere is a leak, and a doubt anywhere is a doubt.

    Parameters
    ----------
    *verdicts
        One or more verdicts of `AttackResult`.

    Returns
    -------
    Verdict
        "leak" before "inconclusive" before "within the proven limit" before "no excess risk found".

    Examples
    --------
    >>> from locum.types import worst_verdict
    >>> worst_verdict("no excess risk found", "inconclusive")
    'inconclusive'
    """
    return min(verdicts, key=get_args(Verdict).index)


def _rate(fpr: float) -> str:
    return f"{fpr:g}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DataError(f"An attack result needs text here; got {type(value).__name__}.")
    return value


def _share(value: Any) -> float:
    if not 0 <= finite_number(value) <= 1:
        raise DataError(f"A rate must lie in 0..1; got {value!r}.")
    return float(value)
