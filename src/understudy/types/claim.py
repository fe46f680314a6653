"""What a release promises, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from understudy.errors import PrivacyError

__all__ = ["ClaimKind", "PrivacyClaim", "Unit"]

ClaimKind = Literal["none", "k-anonymity", "dp"]
Unit = Literal["record", "subject"]


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """The promise of a release: its kind, its numbers, its unit, and what lies outside it.

    `not_covered` is never empty: no promise covers everything, and one that says so is a lie.
    A claim of kind `dp` can only be made from a ledger, which this version does not have.
    """

    kind: ClaimKind
    not_covered: tuple[str, ...]
    k: int | None = None
    unit: Unit = "record"

    def __post_init__(self) -> None:
        if self.kind == "dp":
            raise PrivacyError("A claim of kind 'dp' needs a ledger; none was given.")
        if (self.kind == "k-anonymity") != (self.k is not None):
            raise PrivacyError(f"`k` belongs to a claim of kind 'k-anonymity'; got kind {self.kind!r}, k={self.k!r}.")
        if self.k is not None and self.k < 2:
            raise PrivacyError(f"`k` must be 2 or more: with k = {self.k!r} each record stands alone.")
        if not self.not_covered:
            raise PrivacyError("A claim must say what it does not cover; got an empty list.")

    def sentence(self) -> str:
        """The promise in words that a privacy officer can quote."""
        if self.kind == "k-anonymity":
            return (
                f"Each released vector is the mean of a group of at least {self.k} {self.unit}s. "
                "Whoever knows the other members of a group can still work out the last one."
            )
        return (
            "No formal guarantee. The release holds no record, but nothing proves how much can be learnt "
            "about one: rely on measured attacks."
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"kind": self.kind, "k": self.k, "unit": self.unit, "not_covered": list(self.not_covered)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyClaim:
        """Undo `to_dict`."""
        return cls(kind=data["kind"], k=data["k"], unit=data["unit"], not_covered=tuple(data["not_covered"]))
