"""`passport`: write the passport files into a release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from locum.errors import ConfigError, DataError, ReleaseError
from locum.io import MANIFEST
from locum.recipes.verify import check_cost
from locum.release import OpenedRelease, Release, entry_of, read_folder
from locum.release.passport import (
    PASSPORT,
    SIGNATURE,
    AttackEntry,
    AuditEntry,
    DecisionEntry,
    EpsilonAuditEntry,
    Passport,
    PassportFiles,
    PolicyEntry,
    RuleEntry,
    UtilityEntry,
    build_passport,
    present_passport_files,
    read_passport_files,
    write_passport_files,
)
from locum.report import render_passport_files, shareable_figures
from locum.types import AttackResult, PrivacyClaim, worst_verdict

# What a malformed file can raise.
_BAD = (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError)
_MAX_BYTES = 64 * 2**20


def read_audit(path: Path, fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """What `locum audit --json` wrote about the release with this fingerprint."""
    return audit_entry(read_json(path, "audit"), fingerprint, include_measured=include_measured)


def read_evaluation(path: Path, fingerprint: str) -> UtilityEntry:
    """What `locum evaluate --json` wrote."""
    return utility_entry(read_json(path, "evaluation"), fingerprint)


def audit_entry(audit: Mapping[str, Any], fingerprint: str, *, include_measured: bool) -> AuditEntry:
    """Attacks and verdicts; with `include_measured` also their figures, rounded.

    The `fingerprint` in `audit` must be that of the release: otherwise any good audit could be used for any release.
    """
    if audit.get("fingerprint") != fingerprint:
        given = "has no `fingerprint`" if not audit.get("fingerprint") else "is of another release"
        raise DataError(f"The audit must be of this release; it {given}. Audit this release.")
    results = audit.get("results")
    if not isinstance(results, list) or not results:
        raise DataError("The audit has no `results`. Give what `locum audit RELEASE --json` wrote.")
    try:
        shared = (AttackResult.from_dict(result).shareable(figures=include_measured) for result in results)
        entries = tuple(AttackEntry(**attack) for attack in shared)
        return AuditEntry(
            # Faults of the data can make the audit's verdict worse than that of any result.
            verdict=worst_verdict(audit["verdict"], *(entry.verdict for entry in entries)),
            results=entries,
            policy=_policy(audit),
            epsilon_audit=_epsilon_audit(audit.get("epsilon_audit")),
        )
    except _BAD:
        # The message of a library may quote the file.
        raise DataError("The audit is not as `locum audit RELEASE --json` writes it: write it again.") from None


def utility_entry(evaluation: Mapping[str, Any], fingerprint: str) -> UtilityEntry:
    """The rounded scores of an evaluation. If it has a `fingerprint`, that must be of this release."""
    if evaluation.get("fingerprint", fingerprint) != fingerprint:
        raise DataError("The evaluation is of another release: its `fingerprint` differs. Evaluate this release.")
    try:
        figures = shareable_figures({**evaluation, "membership": None})
        return UtilityEntry(**{k: figures[k] for k in ("head", "seeds", "rows")})
    except _BAD:
        raise DataError(
            "The evaluation is not as `locum evaluate RELEASE --json` writes it: write it again."
        ) from None


def _policy(audit: Mapping[str, Any]) -> PolicyEntry | None:
    """Which rules are met; the findings behind them do not leave."""
    policy = audit.get("policy")
    if policy is None:
        return None
    rules = tuple(RuleEntry(rule=finding["rule"], met=finding["met"]) for finding in policy["findings"])
    return PolicyEntry(name=policy["name"], met=audit["may_leave"], rules=rules)


def _epsilon_audit(found: Mapping[str, Any] | None) -> EpsilonAuditEntry | None:
    """It reads no record, so its figures may leave unrounded."""
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
    """The JSON that `audit` or `evaluate` wrote, or an error that says why this file is not that."""
    if not path.is_file():
        raise ConfigError(f"There is no file {str(path)!r}. Give what `locum {_verb(what)} RELEASE --json` wrote.")
    if path.stat().st_size > _MAX_BYTES:
        raise DataError(f"{str(path)!r} is too large to be an {what}.")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        data = None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not isinstance(data, dict):
        raise DataError(f"{str(path)!r} is not the JSON of an {what}. Write it with `locum {_verb(what)} --json`.")
    return data


def _verb(what: str) -> str:
    return "audit" if what == "audit" else "evaluate"


@dataclass(frozen=True, slots=True)
class PassportSummary:
    """What was written by `write_passport`.

    Attributes
    ----------
    path
        Folder of the release.
    passport
        The passport.
    sha256
        Its hash.
    files
        The names of the files.
    signature_removed
        Whether there was a signature, which did not cover this passport.
    decision_removed
        Whether the holder's decision was in the old passport: it was not about this one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import write_passport
    >>> write_passport(Path("release")).files  # doctest: +SKIP
    ('croissant.json', 'passport.html', 'passport.json', 'passport.md')
    """

    path: str
    passport: Passport
    sha256: str
    files: tuple[str, ...]
    signature_removed: bool
    decision_removed: bool = False

    @property
    def claim(self) -> PrivacyClaim:
        """The claim, with what the passport adds to `not_covered`."""
        return self.passport.claim

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
            "decision_removed": self.decision_removed,
        }


def write_passport(
    release: Path,
    *,
    audit: Path | None = None,
    evaluation: Path | None = None,
    include_measured: bool = False,
    overwrite: bool = False,
) -> PassportSummary:
    """Write the passport files into a release.

    They are the passport, a page, a sheet, Croissant metadata and, under differential privacy, a registry entry. They
    hold no real point and no exact count. Decoder, card and manifest are not changed; a signature is removed, since
    it does not cover this passport, and so is a decision. A release whose claim is below the cost of its events gets
    no passport.

    Parameters
    ----------
    release
        Folder of the release.
    audit
        The JSON that `locum audit` wrote about this release: its verdicts are included.
    evaluation
        The JSON that `locum evaluate` wrote. It has only figures and needs `include_measured`.
    include_measured
        Also include measured figures, rounded; they are named in `not_covered`.
    overwrite
        Replace the passport files that are there.

    Returns
    -------
    PassportSummary
        The passport, its hash, and the names of the files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, write_passport
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-with-passport"), no_dp=True).release
    >>> write_passport(release).files
    ('croissant.json', 'passport.html', 'passport.json', 'passport.md')
    """
    draft = draft_passport(
        release, audit=audit, evaluation=evaluation, include_measured=include_measured, overwrite=overwrite
    )
    files = draft.filled().passport_files
    assert files.passport is not None
    contents = files.contents()
    decided = draft.old is not None and draft.old.decision is not None
    write_passport_files(release, contents, remove=draft.found)
    return PassportSummary(
        str(release),
        files.passport,
        files.hashes[PASSPORT],
        tuple(sorted(contents)),
        SIGNATURE in draft.found,
        decided,
    )


@dataclass(frozen=True, slots=True)
class PassportDraft:
    """What a passport will say about a release; everything is checked, nothing is written.

    `found` are the passport files that are there, `replaced` is what they say, if they can be read.
    """

    path: Path
    release: Release
    fingerprint: str
    card: bytes
    audit: AuditEntry | None
    utility: UtilityEntry | None
    found: tuple[str, ...]
    replaced: PassportFiles | None

    @property
    def old(self) -> Passport | None:
        """The passport that is there, if it can be read."""
        return None if self.replaced is None else self.replaced.passport

    def filled(self, decision: DecisionEntry | None = None) -> OpenedRelease:
        """The release as it will be with its passport, before it is signed."""
        manifest = self.release.manifest
        passport = build_passport(
            manifest,
            self.fingerprint,
            written_on=datetime.now(UTC).date().isoformat(),
            audit=self.audit,
            utility=self.utility,
            decision=decision,
        )
        listed = {name: text.encode() for name, text in render_passport_files(manifest, passport).items()}
        passport = passport.model_copy(update={"files": {name: entry_of(raw) for name, raw in listed.items()}})
        sha256 = hashlib.sha256(passport.dumps().encode()).hexdigest()
        hashes = {MANIFEST: self.fingerprint, PASSPORT: sha256}
        files = PassportFiles(passport, None, hashes, listed)
        return OpenedRelease(self.path, self.release, self.fingerprint, self.card, files)


def draft_passport(
    release: Path, *, audit: Path | None, evaluation: Path | None, include_measured: bool, overwrite: bool
) -> PassportDraft:
    """Read and check what goes into a passport; the arguments are those of `write_passport`."""
    if include_measured and audit is None and evaluation is None:
        raise ConfigError("--include-measured needs measured figures. Add --audit FILE or --evaluation FILE.")
    if evaluation is not None and not include_measured:
        raise ConfigError("--evaluation holds only measured figures. Add --include-measured, or leave it out.")
    folder = read_folder(release)
    fingerprint = folder.fingerprint
    opened = Release(folder.manifest, folder.tensors, fingerprint)
    found = present_passport_files(release)
    if found and not overwrite:
        raise ConfigError(f"{str(release)!r} has {found[0]} already. Replace all passport files with --force.")
    claim = folder.manifest.claim
    if claim.dp is not None:
        check_cost(claim.dp)
    replaced = None
    # Damaged files are replaced like others.
    with suppress(ReleaseError):
        replaced = read_passport_files(release, folder.manifest, fingerprint)
    return PassportDraft(
        path=release,
        release=opened,
        fingerprint=fingerprint,
        card=folder.card,
        audit=None if audit is None else read_audit(audit, fingerprint, include_measured=include_measured),
        utility=None if evaluation is None else read_evaluation(evaluation, fingerprint),
        found=tuple(found),
        replaced=replaced,
    )
