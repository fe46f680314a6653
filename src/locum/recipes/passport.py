"""`passport`: the papers with which a release may leave, written into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from locum.errors import ConfigError, DataError
from locum.recipes.verify import check_cost
from locum.release import FileEntry, Manifest, Release, read_folder
from locum.release.passport import (
    CROISSANT,
    PAGE,
    PASSPORT,
    REGISTRY,
    SHEET,
    SIGNATURE,
    AttackEntry,
    AuditEntry,
    EpsilonAuditEntry,
    Passport,
    PolicyEntry,
    RuleEntry,
    UtilityEntry,
    build_passport,
    present_passport_files,
    render_croissant,
    render_registry,
    worst_verdict,
    write_passport_files,
)
from locum.report import blurred, passport_html, passport_markdown, shareable_figures
from locum.types import PrivacyClaim

# What reading a file that is not as expected can raise.
_BAD = (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError)
_MAX_BYTES = 64 * 2**20
# What may be told of an attack, by its name in the audit. The rest (classes, curves, notes) stays at home.
_FIGURES = {"attack": "attack", "control": "control", "baseline": "baseline", "most_exposed": "most exposed"}
_RATES = {0.01: "TPR at 1 % FPR", 0.001: "TPR at 0.1 % FPR"}


def read_audit(path: Path, fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """What `locum audit --json` wrote about the release with this fingerprint."""
    return audit_entry(read_json(path, "audit"), fingerprint, include_measured=include_measured)


def read_evaluation(path: Path, fingerprint: str) -> UtilityEntry:
    """What `locum evaluate --json` wrote."""
    return utility_entry(read_json(path, "evaluation"), fingerprint)


def audit_entry(audit: Mapping[str, Any], fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """Attacks and verdicts; with `include_measured` also their figures, blurred.

    `audit` must say by `fingerprint` which release was attacked: the good marks of another would fit any.
    """
    if audit.get("fingerprint") != fingerprint:
        given = "says of none" if not audit.get("fingerprint") else "is of another release"
        raise DataError(f"The audit must be of this release, by its `fingerprint`; it {given}. Audit this one.")
    results = audit.get("results")
    if not isinstance(results, list) or not results:
        raise DataError("The audit holds no `results`: give what `locum audit RELEASE --json` wrote.")
    try:
        entries = [_attack(result, include_measured) for result in results]
        return AuditEntry(
            # Doubts about the data make an audit worse than any of its results.
            verdict=worst_verdict(audit["verdict"], *(entry.verdict for entry in entries)),
            results=tuple(entries),
            policy=_policy(audit),
            epsilon_audit=_epsilon_audit(audit.get("epsilon_audit")),
        )
    except _BAD:
        # What a library says of a bad file may quote it.
        raise DataError("The audit is not as `locum audit RELEASE --json` writes it: write it again.") from None


def utility_entry(evaluation: Mapping[str, Any], fingerprint: str) -> UtilityEntry:
    """Scores, blurred, of an evaluation. One that names a release must name this one."""
    if evaluation.get("fingerprint", fingerprint) != fingerprint:
        raise DataError("The evaluation is of another release, by its `fingerprint`. Evaluate this one.")
    try:
        told = shareable_figures({"membership": None, **evaluation})
        return UtilityEntry(**{k: told[k] for k in ("head", "seeds", "rows")})
    except _BAD:
        raise DataError(
            "The evaluation is not as `locum evaluate RELEASE --json` writes it: write it again."
        ) from None


def _attack(result: Mapping[str, Any], include_measured: bool) -> AttackEntry:
    name = result["attack_name"] if "attack_name" in result else result["attack"]
    figures: dict[Any, Any] = {}
    if include_measured:
        # By either name: `attack` is the attack's name where its figures are apart.
        source = {**result, **result.get("estimates", {})}
        for key, title in _FIGURES.items():
            if isinstance(source.get(key), Mapping):
                figures[title] = blurred(source[key])
        for rate, estimate in source.get("tpr", {}).items():
            if float(rate) in _RATES:
                figures[_RATES[float(rate)]] = blurred(estimate)
    return AttackEntry(attack=name, verdict=result["verdict"], figures=figures)


def _policy(audit: Mapping[str, Any]) -> PolicyEntry | None:
    """Which rules are met; what was found for each stays at home."""
    policy = audit.get("policy")
    if policy is None:
        return None
    rules = tuple(RuleEntry(rule=finding["rule"], met=finding["met"]) for finding in policy["findings"])
    return PolicyEntry(name=policy["name"], met=audit["may_leave"], rules=rules)


def _epsilon_audit(found: Mapping[str, Any] | None) -> EpsilonAuditEntry | None:
    """It read no record, so that its figures may be told as they are."""
    if found is None:
        return None
    lower = found["lower"]
    return EpsilonAuditEntry(
        verdict=found["verdict"],
        lower=lower["epsilon"],
        upper=found["upper"],
        delta=lower["delta"],
        confidence=lower["confidence"],
        canaries=lower["canaries"],
    )


def read_json(path: Path, what: str) -> Mapping[str, Any]:
    """What `audit` or `evaluate` wrote with --json, or one sentence on why this file is not that."""
    if not path.is_file():
        raise ConfigError(f"There is no file {str(path)!r}: give what `locum {_verb(what)} RELEASE --json` wrote.")
    if path.stat().st_size > _MAX_BYTES:
        raise DataError(f"{str(path)!r} is too long to be an {what}.")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        data = None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not isinstance(data, dict):
        raise DataError(f"{str(path)!r} is no JSON of an {what}: write it with `locum {_verb(what)} --json`.")
    return data


def _verb(what: str) -> str:
    return "audit" if what == "audit" else "evaluate"


@dataclass(frozen=True, slots=True)
class PassportSummary:
    """What was written: the passport itself, its hash, the files, and whether a signature had to go."""

    path: str
    passport: Passport
    sha256: str
    files: tuple[str, ...]
    signature_removed: bool

    @property
    def claim(self) -> PrivacyClaim:
        """What is promised, and what the passport adds to what is not covered."""
        return self.passport.privacy_claim()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "path": self.path,
            "fingerprint": self.passport.release.fingerprint,
            "passport": self.sha256,
            "files": list(self.files),
            "claim": self.claim.to_dict(),
            "audit": None if self.passport.audit is None else self.passport.audit.verdict,
            "measured": self.passport.has_figures,
            "signature_removed": self.signature_removed,
        }


def write_passport(
    release: Path,
    *,
    audit: Path | None = None,
    evaluation: Path | None = None,
    include_measured: bool = False,
    overwrite: bool = False,
) -> PassportSummary:
    """Write passport, page, sheet, Croissant metadata and, under differential privacy, a registry's record.

    They hold no real point and no exact count. Of `audit` (the JSON of `locum audit`) the verdicts are told, and
    its figures only with `include_measured`; of `evaluation` (that of `locum evaluate`) there are only figures.
    All of that is rounded, and named in `not_covered`. Decoder, card and manifest are not touched; a signature is
    taken away, since it is not one over this passport. A claim whose events cost more than it says gets none.
    """
    if include_measured and audit is None and evaluation is None:
        raise ConfigError("--include-measured needs something measured: add --audit FILE or --evaluation FILE.")
    if evaluation is not None and not include_measured:
        raise ConfigError("--evaluation holds nothing but measured figures: add --include-measured, or leave it out.")
    manifest, tensors, fingerprint = read_folder(release)
    Release(manifest, tensors, fingerprint)
    found = present_passport_files(release)
    if found and not overwrite:
        raise ConfigError(f"{str(release)!r} has {found[0]} already: replace all such papers with --force.")
    claim = manifest.claim.claim()
    if claim.dp is not None:
        check_cost(claim.dp)
    passport = build_passport(
        manifest,
        fingerprint,
        written_on=datetime.now(UTC).date().isoformat(),
        audit=None if audit is None else read_audit(audit, fingerprint, include_measured=include_measured),
        utility=None if evaluation is None else read_evaluation(evaluation, fingerprint),
    )
    contents = {name: text.encode() for name, text in render_passport_files(manifest, passport).items()}
    listed: Any = {
        n: FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw)) for n, raw in contents.items()
    }
    passport = passport.model_copy(update={"files": listed})
    contents[PASSPORT] = passport.dumps().encode()
    write_passport_files(release, contents, remove=found)
    sha256 = hashlib.sha256(contents[PASSPORT]).hexdigest()
    return PassportSummary(str(release), passport, sha256, tuple(sorted(contents)), SIGNATURE in found)


def render_passport_files(manifest: Manifest, passport: Passport) -> dict[str, str]:
    """The papers that are made from a passport, by name: the same passport always gives the same text."""
    passport_files = {
        PAGE: passport_html(passport),
        SHEET: passport_markdown(passport),
        CROISSANT: render_croissant(manifest, passport),
    }
    if passport.ledger is not None:
        passport_files[REGISTRY] = render_registry(manifest, passport)
    return passport_files
