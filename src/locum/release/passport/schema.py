"""The schema of `passport.json`: what it may say about a release, in a form that anyone can check.

Nothing that builds a passport takes a real vector or an exact count as an argument.
"""

from __future__ import annotations

import json
import platform
import re
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from locum._version import __version__
from locum.errors import IntegrityError
from locum.release.manifest import EmbeddingEntry, FileEntry, Manifest, ShortText, Strict, parse_document
from locum.release.passport.threats import ThreatModel, threat_model
from locum.types import EpsilonVerdict, Measure, PrivacyClaim, Verdict, worst_verdict

Name = Annotated[str, Field(pattern=r"^[ -~]{1,120}$")]
Rate = Literal["0.01", "0.001"]


class Figure(Strict):
    """A measured number, rounded to two digits, and its 95 % interval, rounded outward; an open end is null.

    The number of observations is left out.
    """

    value: float
    low: float | None
    high: float | None


class AttackEntry(Strict):
    """One attack, as `AttackResult.shareable` gives it. Figures are there only if the holder asked for them.

    `tpr` is the share of members found, by the share of non-members wrongly accused.

    Parameters
    ----------
    name
        Name of the attack.
    measure
        What the figures are: "auc" or "share".
    verdict
        What the attack shows.
    attack, control, baseline
        What it reached on members, among non-members, and by chance.
    most_exposed
        The attack on the tenth of the records where it does best.
    tpr
        Keys are "0.01" or "0.001".

    Examples
    --------
    >>> from locum.release.passport import AttackEntry
    >>> AttackEntry(name="nearest distance", measure="auc", verdict="no excess risk found").measured
    False
    """

    name: Name
    measure: Measure
    verdict: Verdict
    attack: Figure | None = None
    control: Figure | None = None
    baseline: Figure | None = None
    most_exposed: Figure | None = None
    tpr: dict[Rate, Figure] = Field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether it holds any figure."""
        return any((self.attack, self.control, self.baseline, self.most_exposed, self.tpr))


class RuleEntry(Strict):
    """One rule of a policy, and whether it is met.

    Parameters
    ----------
    rule
        The rule in words, up to 200 characters.
    met
        Whether it is met.

    Examples
    --------
    >>> from locum.release.passport import RuleEntry
    >>> RuleEntry(rule="no attack found a leak", met=True).met
    True
    """

    rule: ShortText
    met: bool


class PolicyEntry(Strict):
    """The holder's policy. It is met if all its rules are met and no attack found a leak.

    Parameters
    ----------
    name
        Name of the policy.
    met
        Whether it is met; `AuditEntry` checks this against the rules and the verdict.
    rules
        Up to 100 rules.

    Examples
    --------
    >>> from locum.release.passport import PolicyEntry, RuleEntry
    >>> rule = RuleEntry(rule="no attack found a leak", met=True)
    >>> PolicyEntry(name="internal", met=True, rules=(rule,)).name
    'internal'
    """

    name: ShortText
    met: bool
    rules: Annotated[tuple[RuleEntry, ...], Field(max_length=100)] = ()


class EpsilonAuditEntry(Strict):
    """Bounds on epsilon: `upper` is the claim, `lower` what canaries refute in a run that read no record.

    Parameters
    ----------
    verdict
        "broken guarantee" if `lower` is above `upper`, otherwise "no contradiction found".
    lower, upper
        The two bounds.
    delta
        The delta of both.
    confidence
        Probability that the lower bound is right, such as 0.95.
    canaries
        Number of canaries in the run.

    Examples
    --------
    >>> from locum.release.passport import EpsilonAuditEntry
    >>> entry = EpsilonAuditEntry(
    ...     verdict="no contradiction found", lower=0.4, upper=1, delta=1e-6, confidence=0.95, canaries=1000
    ... )
    >>> entry.lower
    0.4
    """

    verdict: EpsilonVerdict
    lower: Annotated[float, Field(ge=0)]
    upper: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    canaries: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _check_verdict(self) -> Self:
        if (self.verdict == "broken guarantee") != (self.lower > self.upper):
            raise ValueError("a guarantee is broken if the lower bound is above the claim, and only then")
        return self


class AuditEntry(Strict):
    """What attackers achieved, measured on records that stay with the holder.

    `verdict` is never better than the worst of the results; a leak or a broken guarantee meets no policy.

    Parameters
    ----------
    verdict
        The verdict of the whole audit.
    results
        1 to 200 attacks.
    policy
        The holder's policy; None if none was checked.
    epsilon_audit
        The test of a claimed epsilon; None if there was none.

    Examples
    --------
    >>> from locum.release.passport import AttackEntry, AuditEntry
    >>> attack = AttackEntry(name="nearest distance", measure="auc", verdict="inconclusive")
    >>> AuditEntry(verdict="inconclusive", results=(attack,)).policy is None
    True
    """

    verdict: Verdict
    results: Annotated[tuple[AttackEntry, ...], Field(min_length=1, max_length=200)]
    policy: PolicyEntry | None = None
    epsilon_audit: EpsilonAuditEntry | None = None

    @model_validator(mode="after")
    def _check_worst(self) -> Self:
        if self.verdict != worst_verdict(self.verdict, *(result.verdict for result in self.results)):
            raise ValueError("the verdict of an audit must not be better than the worst of its results")
        broken = self.epsilon_audit is not None and self.epsilon_audit.verdict == "broken guarantee"
        if broken and self.verdict != "leak":
            raise ValueError("a broken guarantee is a leak")
        rules = () if self.policy is None else self.policy.rules
        if self.policy is not None and self.policy.met and (self.verdict == "leak" or not all(r.met for r in rules)):
            raise ValueError("a policy cannot be met if there is a leak or one of its rules is not met")
        return self


class UtilityRow(Strict):
    """Scores on real records of a classifier that was trained on one source."""

    method: Name
    scores: dict[Name, Figure]
    distance: Figure | None = None


class UtilityEntry(Strict):
    """How useful the release is; there only if the holder asked for it.

    Parameters
    ----------
    head
        The kind of classifier, such as "linear".
    seeds
        How many times it was trained.
    rows
        What it reached on real records, one row per source that it was trained on.

    Examples
    --------
    >>> from locum.release.passport import UtilityEntry
    >>> scores = {"auc": {"value": 0.87, "low": 0.85, "high": 0.9}}
    >>> entry = UtilityEntry(head="linear", seeds=3, rows=[{"method": "release", "scores": scores}])
    >>> entry.rows[0].scores["auc"].value
    0.87
    """

    head: Name
    seeds: Annotated[int, Field(ge=1)]
    rows: Annotated[tuple[UtilityRow, ...], Field(min_length=1, max_length=100)]


PASSPORT, PAGE, SHEET = "passport.json", "passport.html", "passport.md"
CROISSANT, REGISTRY = "croissant.json", "dp-registry.json"
# The files that a passport lists with their hashes.
LISTED = (PAGE, SHEET, CROISSANT, REGISTRY)
SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"
_SECTIONS = re.compile(r"\n\n\w+\n-{3,}\n")

MEASURED = (
    "the measured figures in the passport: they were computed from real records, no guarantee covers them, and the "
    "width of an interval hints at how many records were tested"
)
TOLD_VERDICTS = (
    "the verdicts of the audit in the passport, and whether a policy is met: they were computed from real records, "
    "and no guarantee covers them"
)

TOLD_DECISION = (
    "the holder's decision in the passport: whoever decided may have seen results from real records, and no "
    "guarantee covers it"
)

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
Outcome = Literal["approved", "refused"]
PassportFileName = Literal["passport.html", "passport.md", "croissant.json", "dp-registry.json"]


class ReleaseEntry(Strict):
    """The release that the passport belongs to; `fingerprint` is the SHA-256 of its manifest."""

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


class DecisionEntry(Strict):
    """Whether the holder approved or refused the release. Who decided, and why, stays with the holder.

    Parameters
    ----------
    outcome
        "approved" or "refused".
    decided_on
        The date, as YYYY-MM-DD.
    sha256
        Hash of the decision, which contains a random salt.

    Examples
    --------
    >>> from locum.release.passport import DecisionEntry
    >>> DecisionEntry(outcome="refused", decided_on="2026-01-31", sha256="0" * 64).outcome
    'refused'
    """

    outcome: Outcome
    decided_on: Day
    sha256: Hash

    def sentence(self) -> str:
        """What was decided, and when, without a full stop."""
        return f"{'REFUSED' if self.outcome == 'refused' else 'approved'} by the holder on {self.decided_on}"


class Passport(Strict):
    """The passport of a release: claim, audit, usefulness, decision, threat model and versions.

    `claim` is the claim of the manifest; its `not_covered` also names what the passport adds. `files` are the other
    passport files, with their hashes.

    Parameters
    ----------
    format
        Always "locum-passport".
    schema_version
        Always 1.
    written_by
        Name and version of the program.
    written_on
        The date, as YYYY-MM-DD.
    release
        The release that the passport belongs to.
    claim
        What is guaranteed, and what is not.
    audit
        What attackers achieved; None if it is not reported.
    utility
        How useful the release is; None if it is not reported.
    decision
        What the holder decided; None if no decision is recorded.
    threat_model
        Who attacks, what is proven, and what that assumes.
    versions
        Version of each package that mattered, by name.
    files
        Hash and size of each other passport file.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release.passport import build_passport
    >>> manifest = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).manifest
    >>> passport = build_passport(manifest, "0" * 64, written_on="2025-01-31")
    >>> passport.release.classes, passport.has_figures
    (2, False)
    """

    format: Literal["locum-passport"] = "locum-passport"
    schema_version: Literal[1] = 1
    written_by: ShortText
    written_on: Day
    release: ReleaseEntry
    claim: PrivacyClaim
    audit: AuditEntry | None = None
    utility: UtilityEntry | None = None
    decision: DecisionEntry | None = None
    threat_model: ThreatModel
    versions: dict[ShortText, ShortText]
    files: dict[PassportFileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_not_covered(self) -> Self:
        if self.has_figures and MEASURED not in self.claim.not_covered:
            raise ValueError("measured figures must be named in `not_covered`")
        if self.audit is not None and TOLD_VERDICTS not in self.claim.not_covered:
            raise ValueError("the verdicts of an audit must be named in `not_covered`")
        if self.decision is not None and TOLD_DECISION not in self.claim.not_covered:
            raise ValueError("a decision must be named in `not_covered`")
        return self

    @property
    def has_figures(self) -> bool:
        """Whether it holds figures that were measured on records."""
        attacked = self.audit is not None and any(result.measured for result in self.audit.results)
        return attacked or self.utility is not None

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
    decision: DecisionEntry | None = None,
) -> Passport:
    """Build a passport from a manifest and, if the holder gives them, figures that are already rounded.

    Its `files` are still empty: the other passport files are made from it, and a copy lists them.

    Parameters
    ----------
    manifest
        The manifest of the release.
    fingerprint
        SHA-256 of the manifest, as in `Release.fingerprint`.
    written_on
        The date, as YYYY-MM-DD.
    audit
        What attackers achieved; None: nothing is reported.
    utility
        How useful the release is; None: nothing is reported.
    decision
        What the holder decided; None: no decision is recorded.

    Returns
    -------
    Passport
        Its claim also names in `not_covered` what `audit`, `utility` and `decision` add.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release.passport import build_passport
    >>> manifest = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).manifest
    >>> build_passport(manifest, "0" * 64, written_on="2025-01-31").claim == manifest.claim
    True
    """
    added: tuple[str, ...] = () if audit is None else (TOLD_VERDICTS,)
    if utility is not None or (audit is not None and any(result.measured for result in audit.results)):
        added += (MEASURED,)
    if decision is not None:
        added += (TOLD_DECISION,)
    versions = {"locum": __version__, "python": platform.python_version(), "numpy": version("numpy")}
    if manifest.claim.dp is not None:
        versions["dp-accounting"] = version("dp-accounting")
    return Passport(
        written_by=f"locum {__version__}",
        written_on=written_on,
        release=_release(manifest, fingerprint),
        claim=replace(manifest.claim, not_covered=(*manifest.claim.not_covered, *added)),
        audit=audit,
        utility=utility,
        decision=decision,
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
        # Without sizes: the size of a fixed table reveals its number of rows.
        files={name: entry.sha256 for name, entry in manifest.files.items()},
    )


def parse_passport(raw: bytes) -> Passport:
    """Read and check a passport.

    Parameters
    ----------
    raw
        The bytes of `passport.json`.

    Returns
    -------
    Passport
        The passport; that it belongs to a release is not checked here.

    Raises
    ------
    FormatError
        If it breaks the rules; the text says where, in one sentence.
    SchemaVersionError
        If it was written for a newer Locum.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release.passport import build_passport, parse_passport
    >>> manifest = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).manifest
    >>> passport = build_passport(manifest, "0" * 64, written_on="2025-01-31")
    >>> parse_passport(passport.dumps().encode()) == passport
    True
    """
    return parse_document(raw, Passport, PASSPORT, "passport")


def check_passport(passport: Passport, manifest: Manifest, fingerprint: str) -> None:
    """Refuse the passport of another release, or one whose claim differs from its release's."""
    if passport.release != _release(manifest, fingerprint):
        raise IntegrityError(f"{PASSPORT} belongs to another release, or one of the two was altered: do not use it.")
    own, found = manifest.claim, passport.claim
    # The passport may name more that is not covered, never less.
    same = replace(found, not_covered=own.not_covered) == own
    if not same or found.not_covered[: len(own.not_covered)] != own.not_covered:
        raise IntegrityError(f"{PASSPORT} makes another claim than the manifest of its release: do not use it.")
    expected = set(LISTED) - (set() if own.kind == "dp" else {REGISTRY})
    if set(passport.files) != expected:
        raise IntegrityError(f"{PASSPORT} must list {', '.join(sorted(expected))}, and nothing else.")


def passport_schema() -> str:
    """The schema as JSON Schema: the text of docs/reference/passport.schema.json."""
    schema = {"$schema": SCHEMA_URL, **Passport.model_json_schema()}
    return json.dumps(_without_sections(schema), indent=1, sort_keys=True) + "\n"


def _without_sections(node: Any) -> Any:
    """The schema with only the prose of each description: the sections of a docstring are for Python."""
    if isinstance(node, dict):
        return {
            k: _SECTIONS.split(v)[0] if k == "description" and isinstance(v, str) else _without_sections(v)
            for k, v in node.items()
        }
    return [_without_sections(v) for v in node] if isinstance(node, list) else node
