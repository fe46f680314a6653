"""A holder's decision about a release: who decided what, and why. It stays with the holder; only its hash leaves."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, StrictBool, ValidationError, model_validator

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.io import regular_bytes
from locum.release.manifest import ShortText, Strict, first_fault, parse_document
from locum.release.passport.schema import AuditEntry, DecisionEntry, Hash, Outcome, Passport
from locum.types import safes_in_words

Safe = Literal["projects", "people", "settings", "data", "outputs"]
FIVE_SAFES: tuple[Safe, ...] = get_args(Safe)
DECISION = "decision.json"
# The longest name, reason and notes, with up to twelve bytes per character, take half of it.
MAX_DECISION_BYTES = 65536
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("only printable characters on one line are allowed")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be blank")
    return text


def _moment(text: str) -> str:
    # The pattern allows days that no calendar has.
    datetime.strptime(text, _MOMENT)
    return text


Line = AfterValidator(_one_line)
Filled = AfterValidator(_not_blank)


class Check(Strict):
    """One of the Five Safes: whether it holds, and a note."""

    ok: StrictBool
    note: Annotated[str, Field(max_length=300), Line] = ""


class Checklist(Strict):
    """The Five Safes: purpose, users, place, data and results."""

    projects: Check
    people: Check
    settings: Check
    data: Check
    outputs: Check

    def open_checks(self) -> list[Safe]:
        """Those that nobody confirmed."""
        return [name for name in FIVE_SAFES if not getattr(self, name).ok]


class DecidedPolicy(Strict):
    """Name of the policy of the audit, and whether it was met."""

    name: ShortText
    met: bool


class Decision(Strict):
    """Who approved or refused a release, when and why. It names a person: private, never inside a release.

    Parameters
    ----------
    format
        Always "locum-decision".
    schema_version
        Always 1.
    release
        Fingerprint of the release.
    outcome
        "approved" or "refused". An approval needs all five checks.
    name
        Who decided: up to 100 printable characters.
    reason
        Why: up to 1000 printable characters on one line.
    decided_on
        The time in UTC, as 2026-01-31T09:30:00Z.
    policy
        Name of the audit's policy and whether it was met; None if no policy was checked.
    checklist
        The Five Safes: projects, people, settings, data and outputs, each with `ok` and `note`.
    salt
        Random digits: without them, whoever guesses name and reason could confirm the guess by the hash.

    Examples
    --------
    >>> from locum.release.passport import FIVE_SAFES, make_decision
    >>> checks = {name: {"ok": True} for name in FIVE_SAFES}
    >>> decision = make_decision("0" * 64, "approved", "R. Okafor", "Agreed in the board.", checks)
    >>> decision.outcome, decision.entry().sha256 == decision.sha256
    ('approved', True)
    """

    format: Literal["locum-decision"] = "locum-decision"
    schema_version: Literal[1] = 1
    release: Hash
    outcome: Outcome
    name: Annotated[str, Field(min_length=1, max_length=100), Line, Filled]
    reason: Annotated[str, Field(min_length=1, max_length=1000), Line, Filled]
    decided_on: Annotated[
        str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"), AfterValidator(_moment)
    ]
    policy: DecidedPolicy | None = None
    checklist: Checklist
    salt: Hash

    @model_validator(mode="after")
    def _check_approval(self) -> Self:
        if self.outcome == "approved" and self.checklist.open_checks():
            raise ValueError("an approval needs all five checks")
        return self

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @property
    def sha256(self) -> str:
        """Hash of the file."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()

    def entry(self) -> DecisionEntry:
        """What the passport says about it."""
        return DecisionEntry(outcome=self.outcome, decided_on=self.decided_on[:10], sha256=self.sha256)


def make_decision(
    release: str,
    outcome: str,
    name: str,
    reason: str,
    checklist: Mapping[str, Mapping[str, Any]],
    audit: AuditEntry | None = None,
) -> Decision:
    """Record a decision that is made now, with a fresh salt.

    Parameters
    ----------
    release
        Fingerprint of the release.
    outcome
        "approved" or "refused".
    name
        Who decides: up to 100 printable characters.
    reason
        Why: up to 1000 printable characters on one line.
    checklist
        The Five Safes by name, each with `ok` and, if there is one, `note`. Those that are left out are open.
    audit
        The audit that the decision is based on: its policy is recorded.

    Returns
    -------
    Decision
        The decision; nothing is written.

    Raises
    ------
    ConfigError
        If one of these is wrong, or a check is open and `outcome` is "approved".

    Examples
    --------
    >>> from locum.release.passport import make_decision
    >>> make_decision("0" * 64, "approved", "R. Okafor", "Agreed.", {"projects": {"ok": True}})
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: To approve a release, confirm all five checks; open: people, settings, data, outputs...
    """
    if outcome not in get_args(Outcome):
        raise ConfigError(f"`outcome` must be 'approved' or 'refused'; got {outcome!r}.")
    if unknown := sorted(set(checklist) - set(FIVE_SAFES)):
        raise ConfigError(f"The checks are {', '.join(FIVE_SAFES)}; got {unknown[0]!r}.")
    try:
        checks = Checklist.model_validate({safe: {"ok": False} for safe in FIVE_SAFES} | dict(checklist))
        if outcome == "approved" and (missing := checks.open_checks()):
            raise ConfigError(
                f"To approve a release, confirm all five checks; open: {', '.join(missing)}. "
                f"{safes_in_words(*missing)}"
            )
        return Decision(
            release=release,
            outcome="approved" if outcome == "approved" else "refused",
            name=name,
            reason=reason,
            decided_on=datetime.now(UTC).strftime(_MOMENT),
            policy=_decided(audit),
            checklist=checks,
            salt=secrets.token_hex(32),
        )
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(
            f"`{place}` of the decision cannot be used: {fault.removeprefix('Value error, ')}."
        ) from None


def _decided(audit: AuditEntry | None) -> DecidedPolicy | None:
    """What a decision keeps of the audit that it is based on."""
    policy = None if audit is None else audit.policy
    return None if policy is None else DecidedPolicy(name=policy.name, met=policy.met)


def parse_decision(raw: bytes) -> Decision:
    """Read and check a decision.

    Parameters
    ----------
    raw
        The bytes of the file.

    Returns
    -------
    Decision
        The decision; `check_decision` compares it with a passport.

    Raises
    ------
    FormatError
        If it breaks the rules; the text says where, in one sentence.
    SchemaVersionError
        If it was written for a newer Locum.

    Examples
    --------
    >>> from locum.release.passport import make_decision, parse_decision
    >>> decision = make_decision("0" * 64, "refused", "R. Okafor", "The receiver has the same patients.", {})
    >>> parse_decision(decision.dumps().encode()) == decision
    True
    """
    found = parse_document(raw, Decision, DECISION, "decision")
    # There is one valid encoding, so the hash of what was read is that of the file.
    if found.dumps().encode() != raw:
        raise FormatError("The decision is not in the only valid encoding: damaged or altered; use the original.")
    return found


def read_decision(path: Path) -> Decision:
    """Read the decision in a file, which may be a link but never a pipe or a device.

    Parameters
    ----------
    path
        The file, as `locum decide` writes it.

    Returns
    -------
    Decision
        The decision.

    Raises
    ------
    ConfigError
        If the file cannot be read.
    ReleaseError
        If it is not a decision.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.io import write_bytes
    >>> from locum.release.passport import make_decision, read_decision
    >>> decision = make_decision("0" * 64, "refused", "R. Okafor", "Too few records.", {})
    >>> write_bytes("refusal.json", decision.dumps().encode())
    >>> read_decision(Path("refusal.json")).outcome
    'refused'
    """
    try:
        raw = regular_bytes(path, limit=MAX_DECISION_BYTES)
    except OSError as error:
        raise ConfigError(f"The decision {str(path)!r} cannot be read: {error.strerror}.") from None
    return parse_decision(raw)


def check_decision(decision: Decision, passport: Passport | None) -> None:
    """Raise unless this is the decision that the passport of a release names.

    Parameters
    ----------
    decision
        What the holder kept.
    passport
        The passport of the release; None if it has none.

    Raises
    ------
    ConfigError
        If the passport names no decision.
    IntegrityError
        If it names another one, or the two disagree.

    Examples
    --------
    >>> from locum.release.passport import check_decision, make_decision
    >>> check_decision(make_decision("0" * 64, "refused", "R. Okafor", "Too few records.", {}), None)
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: The release has no decision in its passport, so there is none to compare this one with.
    """
    if passport is None or passport.decision is None:
        raise ConfigError("The release has no decision in its passport, so there is none to compare this one with.")
    if decision.release != passport.release.fingerprint:
        raise IntegrityError("The decision is about another release: its fingerprint differs.")
    if decision.sha256 != passport.decision.sha256:
        raise IntegrityError(
            "The decision is not the one that the passport names: its hash differs. It was altered, or another one "
            "took its place."
        )
    if decision.entry() != passport.decision or decision.policy != _decided(passport.audit):
        raise IntegrityError("The passport contradicts the decision that it names: do not trust the passport.")
