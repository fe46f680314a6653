"""What a release promises, and what it does not."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from locum.errors import PrivacyError
from locum.types.rounding import at_least

ClaimKind = Literal["none", "k-anonymity", "dp"]
Unit = Literal["record", "subject"]

_HASH = re.compile(r"[0-9a-f]{64}")
_NEIGHBOURS = {
    "add-or-remove": "whether or not one {unit} was among them",
    "replace-one": "whatever one {unit} among them was",
}


@dataclass(frozen=True, slots=True)
class DPClaim:
    """The numbers of differential privacy: what was paid, for which events, and the ledger's tip right after.

    `epsilon` is what the ledger computed from `events`, not what somebody wished for.
    """

    epsilon: float
    delta: float
    relation: str
    events: tuple[dict[str, Any], ...]
    ledger: str

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf") or not 0 < self.delta < 1:
            raise PrivacyError(f"No such guarantee exists: epsilon {self.epsilon!r}, delta {self.delta!r}.")
        if self.relation not in _NEIGHBOURS:
            raise PrivacyError(f"Neighbours differ by 'add-or-remove' or 'replace-one'; got {self.relation!r}.")
        if not self.events or not _HASH.fullmatch(self.ledger):
            raise PrivacyError("A claim of kind 'dp' needs a ledger and the events that it was charged with.")


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """The promise of a release: its kind, its numbers, its unit, and what lies outside it.

    `not_covered` is never empty: no promise covers everything, and one that says so is a lie.
    A claim of kind `dp` carries its numbers in `dp`, which come from a ledger.
    """

    kind: ClaimKind
    not_covered: tuple[str, ...]
    k: int | None = None
    unit: Unit = "record"
    dp: DPClaim | None = None

    def __post_init__(self) -> None:
        if (self.kind == "dp") != (self.dp is not None):
            raise PrivacyError("A claim of kind 'dp' needs a ledger's numbers, and no other kind has them.")
        if (self.kind == "k-anonymity") != (self.k is not None):
            raise PrivacyError(f"`k` belongs to a claim of kind 'k-anonymity'; got kind {self.kind!r}, k={self.k!r}.")
        if self.k is not None and self.k < 2:
            raise PrivacyError(f"`k` must be 2 or more: with k = {self.k!r} each record stands alone.")
        if not self.not_covered:
            raise PrivacyError("A claim must say what it does not cover; got an empty list.")

    @property
    def title(self) -> str:
        """Kind and numbers in a few words."""
        if self.k is not None:
            return f"k-anonymity (k = {self.k}, unit: {self.unit})"
        if self.dp is not None:
            return f"dp (epsilon = {at_least(self.dp.epsilon)}, delta = {at_least(self.dp.delta)}, unit: {self.unit})"
        return self.kind

    def sentence(self) -> str:
        """The promise in words that a privacy officer can quote."""
        if self.kind == "k-anonymity":
            return (
                f"Each released vector is the mean of a group of at least {self.k} {self.unit}s. "
                "Whoever knows the other members of a group can still work out the last one."
            )
        if self.dp is not None:
            same = _NEIGHBOURS[self.dp.relation].format(unit=self.unit)
            return (
                f"Differential privacy: the release would have come out nearly the same {same}. The odds of any "
                f"conclusion differ by a factor of at most exp({at_least(self.dp.epsilon)}), but for a chance of "
                f"{at_least(self.dp.delta)}. Other releases of the same data add to this."
            )
        return (
            "No formal guarantee. The release holds no record, but nothing proves how much can be learnt "
            "about one: rely on measured attacks."
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; `dp` is there only where it has something to say."""
        out = {"kind": self.kind, "k": self.k, "unit": self.unit, "not_covered": list(self.not_covered)}
        return out if self.dp is None else {**out, "dp": {**asdict(self.dp), "events": list(self.dp.events)}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyClaim:
        """Undo `to_dict`."""
        dp = data.get("dp")
        return cls(
            kind=data["kind"],
            k=data["k"],
            unit=data["unit"],
            not_covered=tuple(data["not_covered"]),
            dp=None if dp is None else DPClaim(**{**dp, "events": tuple(dp["events"])}),
        )
