"""What a release claims about privacy, and what it does not: the only schema of a claim.

Manifests, passports, head files, obfuscators and federated results embed `PrivacyClaim` itself. Its JSON has the same
keys everywhere: kind, k, unit, dp, test, assumptions, not_covered.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from locum.errors import FormatError, PrivacyError
from locum.types.html import Tone, html_card
from locum.types.rounding import at_least

ClaimKind = Literal["none", "k-anonymity", "dp"]
Unit = Literal["record", "subject"]
Relation = Literal["add-or-remove", "replace-one"]

# A claim may come from a file that an attacker wrote: every text and every list has a limit.
MAX_LINES = 110
MAX_LINE = 2000
_MAX_EVENTS = 1000
_MAX_WORD = 200
_HASH = re.compile(r"[0-9a-f]{64}")
_NEIGHBORS: dict[str, str] = {
    "add-or-remove": "whether or not one {unit} was in the data",
    "replace-one": "whatever the values of one {unit} in the data were",
}
# Read by pydantic where a document embeds a claim; nothing here imports it.
_STRICT = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class DPClaim:
    """The numbers of differential privacy: what was spent, for which events, and the ledger's tip right after.

    Parameters
    ----------
    epsilon
        What the ledger computed from `events`, above 0; not the budget that was asked for.
    delta
        Probability with which epsilon may not hold, between 0 and 1.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).
    events
        What was done to the data, as `locum.accounting.events_to_json` writes it; at least one entry.
    ledger
        Hash of the ledger's last entry after the charge: 64 hexadecimal digits.

    Examples
    --------
    >>> from locum.types import DPClaim
    >>> events = ({"kind": "gaussian", "noise_multiplier": 4.0},)
    >>> DPClaim(epsilon=1.0, delta=1e-5, relation="add-or-remove", events=events, ledger="0" * 64).epsilon
    1.0
    """

    __pydantic_config__: ClassVar[Any] = _STRICT

    epsilon: float
    delta: float
    relation: Relation
    events: tuple[dict[str, int | float | str], ...]
    ledger: str

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf") or not 0 < self.delta < 1:
            raise PrivacyError(
                f"A guarantee has an epsilon above 0 and a delta between 0 and 1; got epsilon {self.epsilon!r}, "
                f"delta {self.delta!r}."
            )
        if self.relation not in _NEIGHBORS:
            raise PrivacyError(f"`relation` must be 'add-or-remove' or 'replace-one'; got {self.relation!r}.")
        if not self.events or not _HASH.fullmatch(self.ledger):
            raise PrivacyError("A claim of kind 'dp' needs a ledger and the events that were charged to it.")
        if len(self.events) > _MAX_EVENTS or any(
            len(str(word)) > _MAX_WORD for event in self.events for item in event.items() for word in item
        ):
            raise PrivacyError(
                f"A claim of kind 'dp' holds up to {_MAX_EVENTS} `events`, with entries of up to {_MAX_WORD} "
                "characters; got more."
            )


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """What a release guarantees: its kind, its numbers, its unit, and what lies outside it.

    Parameters
    ----------
    kind
        "none", "k-anonymity" or "dp".
    not_covered
        What the claim does not cover, one line each. Never empty: no guarantee covers everything.
    k
        Smallest group of a claim of kind "k-anonymity", 2 or more; None for other kinds.
    unit
        What is protected: a "record", or a "subject" with all of its records.
    dp
        Numbers of a claim of kind "dp", which come from a ledger; None for other kinds.
    test
        Made with an insecure seed. Such a claim is never of kind "dp".
    assumptions
        What must be true for the guarantee to hold, one line each.

    Examples
    --------
    >>> from locum.types import PrivacyClaim
    >>> claim = PrivacyClaim("k-anonymity", not_covered=("Group members who collude.",), k=5, unit="subject")
    >>> claim.title
    'k-anonymity (k = 5, unit: subject)'
    >>> PrivacyClaim.from_dict(claim.to_dict()) == claim
    True
    """

    __pydantic_config__: ClassVar[Any] = _STRICT

    kind: ClaimKind
    not_covered: tuple[str, ...]
    k: int | None = None
    unit: Unit = "record"
    dp: DPClaim | None = None
    test: bool = False
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(ClaimKind) or self.unit not in get_args(Unit):
            raise PrivacyError(
                "A claim is of kind 'none', 'k-anonymity' or 'dp', and its unit is 'record' or 'subject'; got "
                f"{self.kind!r} and {self.unit!r}."
            )
        if self.test and self.kind == "dp":
            raise PrivacyError("A test was made with an insecure seed, so its claim cannot be of kind 'dp'.")
        if (self.kind == "dp") != (self.dp is not None):
            raise PrivacyError("A claim of kind 'dp' needs a ledger's numbers in `dp`, and no other kind has them.")
        if (self.kind == "k-anonymity") != (self.k is not None):
            raise PrivacyError(f"`k` belongs to a claim of kind 'k-anonymity'; got kind {self.kind!r}, k={self.k!r}.")
        if self.k is not None and self.k < 2:
            raise PrivacyError(f"`k` must be 2 or more; got {self.k!r}, which groups a record with no other.")
        if not self.not_covered:
            raise PrivacyError("A claim must say in `not_covered` what it does not cover; got an empty list.")
        for name, lines in (("not_covered", self.not_covered), ("assumptions", self.assumptions)):
            if len(lines) > MAX_LINES or any(len(line) > MAX_LINE for line in lines):
                raise PrivacyError(
                    f"`{name}` holds up to {MAX_LINES} lines of up to {MAX_LINE} characters; got more."
                )

    @property
    def title(self) -> str:
        """Kind and numbers in a few words; a test says so."""
        if self.dp is not None:
            return f"dp (epsilon = {at_least(self.dp.epsilon)}, delta = {at_least(self.dp.delta)}, unit: {self.unit})"
        title = self.kind if self.k is None else f"{self.kind} (k = {self.k}, unit: {self.unit})"
        return f"{title}; a test with an insecure seed" if self.test else title

    @property
    def warning(self) -> str:
        """What to say first about a release without differential privacy; empty if it has that guarantee."""
        if self.dp is not None:
            return ""
        return "No guarantee: this release was made without differential privacy."

    def sentence(self) -> str:
        """The guarantee in words that a privacy officer can quote."""
        if self.dp is not None:
            same = _NEIGHBORS[self.dp.relation].format(unit=self.unit)
            return (
                f"Differential privacy: this release would have been nearly as likely {same}. The odds of any "
                f"conclusion differ by a factor of at most exp({at_least(self.dp.epsilon)}), except with probability "
                f"{at_least(self.dp.delta)}. Other releases of the same data add to this."
            )
        test = "This is a test: its seed is insecure, so anyone can repeat its random numbers. " if self.test else ""
        if self.kind == "k-anonymity":
            return (
                f"{test}Each released vector is the mean of a group of at least {self.k} {self.unit}s. "
                "Whoever knows the other members of a group can still work out the last one. This is not "
                "differential privacy."
            )
        return (
            f"{test}No formal guarantee: there is no proven limit on what can be learned about a record. Rely on "
            "measured attacks."
        )

    def assumed(self) -> list[str]:
        """What the claim assumes, in words; a line is stored as "name: details", and accepted by its name."""
        parts = (item.partition(": ") for item in self.assumptions)
        return [
            f"holds {name}{f' ({details})' if details else ''}"
            if name.startswith("given that ")
            else f"assumed: {name}{colon}{details}"
            for name, colon, details in parts
        ]

    def lines(self, *, limits: bool = True) -> list[tuple[str, str]]:
        """The claim as terminal and notebook show it: a heading and a text each, an empty heading goes on.

        First the title, then what is assumed, then the guarantee in words; with `limits` also what is not covered.
        """
        out = [("claim", self.title), *(("", line) for line in self.assumed()), ("", self.sentence())]
        return [*out, *(("", f"not covered: {item}") for item in self.not_covered)] if limits else out

    def _repr_html_(self) -> str:
        """For notebooks; the words are those of the program."""
        return html_card(self.lines(), tone=self.tone)

    @property
    def tone(self) -> Tone:
        """The color of a card: only differential privacy is more than a description."""
        return "good" if self.dp is not None else "bad" if self.test else "doubt"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, always with every key."""
        lists = {"not_covered": list(self.not_covered), "assumptions": list(self.assumptions)}
        dp = None if self.dp is None else {**asdict(self.dp), "events": [dict(event) for event in self.dp.events]}
        return {"kind": self.kind, "k": self.k, "unit": self.unit, "dp": dp, "test": self.test, **lists}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyClaim:
        """Undo `to_dict`; anything else is a FormatError."""
        try:
            if set(data) != {field.name for field in fields(cls)}:
                raise KeyError
            if not isinstance(data["test"], bool) or not isinstance(data["k"], int | None):
                raise TypeError
            dp = data["dp"]
            if dp is not None:
                dp = DPClaim(**{**dp, "events": tuple(dict(event) for event in dp["events"])})
            lists = {name: _texts(data[name]) for name in ("not_covered", "assumptions")}
            return cls(data["kind"], k=data["k"], unit=data["unit"], dp=dp, test=data["test"], **lists)
        except PrivacyError as error:
            raise FormatError(f"This is an impossible claim: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FormatError("This is not a claim as `to_dict` gives it: a key or a type is wrong.") from None


def _texts(lines: Any) -> tuple[str, ...]:
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise TypeError
    return tuple(lines)
