"""What `passport.json` may say: the papers of a release, as a schema that anybody can check.

No argument of what builds a passport could bring a real vector or an exact count into it.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from locum._version import __version__
from locum.errors import IntegrityError
from locum.release.manifest import DPEntry, EmbeddingEntry, FileEntry, Manifest, ShortText, Strict, parse_model
from locum.release.passport.threats import ThreatModel, threat_model
from locum.types import PrivacyClaim, Verdict

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


class EpsilonAuditEntry(Strict):
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
    epsilon_audit: EpsilonAuditEntry | None = None

    @model_validator(mode="after")
    def _the_worst(self) -> Self:
        if self.verdict != worst_verdict(self.verdict, *(result.verdict for result in self.results)):
            raise ValueError("the verdict of an audit must not be better than the worst of its results")
        broken = self.epsilon_audit is not None and self.epsilon_audit.verdict == "broken promise"
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

    tip: Name
    seeds: Annotated[int, Field(ge=1)]
    rows: Annotated[tuple[UtilityRow, ...], Field(min_length=1, max_length=100)]


def worst_verdict(*verdicts: Verdict) -> Verdict:
    """A leak anywhere is a leak, and a doubt anywhere a doubt."""
    order: tuple[Verdict, ...] = ("leak", "inconclusive", "no excess risk found")
    return min(verdicts, key=order.index)


PASSPORT, PAGE, SHEET = "passport.json", "passport.html", "passport.md"
CROISSANT, REGISTRY = "croissant.json", "dp-registry.json"
# What a passport lists, with hashes.
LISTED = (PAGE, SHEET, CROISSANT, REGISTRY)
SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"

MEASURED = (
    "the measured figures in the passport: they were computed from real records, no promise covers them, and the "
    "width of an interval hints at how many records were tested"
)
TOLD_VERDICTS = (
    "the verdicts of the audit in the passport, and its answers to a policy: they were computed from real records, "
    "and no promise covers them"
)

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PassportFileName = Literal["passport.html", "passport.md", "croissant.json", "dp-registry.json"]


class ReleaseEntry(Strict):
    """Which release this is the passport of; `fingerprint` is the SHA-256 of its manifest."""

    fingerprint: Hash
    generator: ShortText
    kind: Literal["decoder", "data"]
    holds: Literal["network", "gaussian", "mixture", "rows"]
    classes: Annotated[int, Field(ge=1)]
    embedding: EmbeddingEntry
    space: ShortText
    written_by: ShortText
    schema_version: int
    files: dict[str, Hash]


class PassportClaim(Strict):
    """The promise as the manifest makes it; `not_covered` also names what the passport itself adds."""

    kind: Literal["none", "k-anonymity", "dp"]
    k: Annotated[int, Field(ge=2)] | None = None
    unit: Literal["record", "subject"] = "record"
    not_covered: Annotated[tuple[Annotated[str, Field(max_length=2000)], ...], Field(min_length=1, max_length=110)]


class Passport(Strict):
    """The papers of a release: claim, ledger extract, audit, usefulness, threat model, limits and versions.

    `ledger` is what the holder's ledger was charged for this release and its tip right after; it is there for a
    claim of kind `dp` alone. `files` are the other papers, with their hashes.
    """

    format: Literal["locum-passport"] = "locum-passport"
    schema_version: Literal[1] = 1
    written_by: ShortText
    written_on: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    release: ReleaseEntry
    claim: PassportClaim
    ledger: DPEntry | None = None
    audit: AuditEntry | None = None
    utility: UtilityEntry | None = None
    threat_model: ThreatModel
    versions: dict[ShortText, ShortText]
    files: dict[PassportFileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if (self.claim.kind == "dp") != (self.ledger is not None):
            raise ValueError("a claim of kind 'dp' has a ledger extract, and no other has")
        if self.has_figures and MEASURED not in self.claim.not_covered:
            raise ValueError("measured figures must be named in `not_covered`")
        if self.audit is not None and TOLD_VERDICTS not in self.claim.not_covered:
            raise ValueError("the verdicts of an audit must be named in `not_covered`")
        return self

    @property
    def has_figures(self) -> bool:
        """Whether anything in it was measured on records."""
        attacked = self.audit is not None and any(result.figures for result in self.audit.results)
        return attacked or self.utility is not None

    def privacy_claim(self) -> PrivacyClaim:
        """As the core type, which knows the promise in words."""
        dp = None if self.ledger is None else self.ledger.model_dump()
        return PrivacyClaim.from_dict({**self.claim.model_dump(), "dp": dp})

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False) + "\n"


def build_passport(
    manifest: Manifest,
    fingerprint: str,
    *,
    written_on: str,
    audit: AuditEntry | None = None,
    utility: UtilityEntry | None = None,
) -> Passport:
    """A passport from a manifest and, where the holder gives them, figures that are rounded already.

    It lists no other papers yet: they are made from it, and listed by a copy.
    """
    told = list(manifest.claim.not_covered)
    if audit is not None:
        told.append(TOLD_VERDICTS)
    if utility is not None or (audit is not None and any(result.figures for result in audit.results)):
        told.append(MEASURED)
    versions = {"locum": __version__, "python": platform.python_version(), "numpy": version("numpy")}
    if manifest.claim.dp is not None:
        versions["dp-accounting"] = version("dp-accounting")
    return Passport(
        written_by=f"locum {__version__}",
        written_on=written_on,
        release=_release(manifest, fingerprint),
        claim=PassportClaim(
            kind=manifest.claim.kind, k=manifest.claim.k, unit=manifest.claim.unit, not_covered=tuple(told)
        ),
        ledger=manifest.claim.dp,
        audit=audit,
        utility=utility,
        threat_model=threat_model(manifest),
        versions=versions,
    )


def _release(manifest: Manifest, fingerprint: str) -> ReleaseEntry:
    return ReleaseEntry(
        fingerprint=fingerprint,
        generator=manifest.generator,
        kind=manifest.kind,
        holds=manifest.decoder.kind,
        classes=len(manifest.classes),
        embedding=manifest.embedding,
        space=manifest.space,
        written_by=manifest.written_by,
        schema_version=manifest.schema_version,
        # Not their sizes: that of a fixed table tells its number of rows.
        files={name: entry.sha256 for name, entry in manifest.files.items()},
    )


def parse_passport(raw: bytes) -> Passport:
    """A checked passport, or one sentence that says why not."""
    return parse_model(raw, Passport, PASSPORT, "passport")


def check_passport(passport: Passport, manifest: Manifest, fingerprint: str) -> None:
    """Complain about a passport of another release, or one that promises something else than its release does."""
    if passport.release != _release(manifest, fingerprint):
        raise IntegrityError(f"{PASSPORT} is that of another release, or one of the two was altered: do not use it.")
    own, said = manifest.claim, passport.claim
    same = (said.kind, said.k, said.unit, passport.ledger) == (own.kind, own.k, own.unit, own.dp)
    # The passport may name more that is not covered, never less.
    if not same or said.not_covered[: len(own.not_covered)] != own.not_covered:
        raise IntegrityError(f"{PASSPORT} makes another claim than the manifest of its release: do not use it.")
    expected = set(LISTED) - (set() if own.kind == "dp" else {REGISTRY})
    if set(passport.files) != expected:
        raise IntegrityError(f"{PASSPORT} must list {', '.join(sorted(expected))}, and nothing else.")


def passport_schema() -> str:
    """The schema as JSON Schema: what docs/reference/passport.schema.json holds."""
    schema = {"$schema": SCHEMA_URL, **Passport.model_json_schema()}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
