"""`passport`: the papers with which a release may leave, written into it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError
from understudy.recipes.passport_figures import read_audit, read_evaluation
from understudy.recipes.verify import check_cost
from understudy.release import Manifest, Passport, Release, build_passport
from understudy.release.croissant import render_croissant
from understudy.release.folder import read_folder
from understudy.release.manifest import FileEntry
from understudy.release.papers import present_papers, put_papers
from understudy.release.passport import CROISSANT, PAGE, PASSPORT, REGISTRY, SHEET
from understudy.release.registry import render_registry
from understudy.release.signature import SIGNATURE
from understudy.report.passport import passport_html, passport_markdown
from understudy.types import PrivacyClaim

__all__ = ["PassportSummary", "render_papers", "write_passport"]


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

    They hold no real point and no exact count. Of `audit` (the JSON of `understudy audit`) the verdicts are told, and
    its figures only with `include_measured`; of `evaluation` (that of `understudy evaluate`) there are only figures.
    All of that is rounded, and named in `not_covered`. Decoder, card and manifest are not touched; a signature is
    taken away, since it is not one over this passport. A claim whose events cost more than it says gets none.
    """
    if include_measured and audit is None and evaluation is None:
        raise ConfigError("--include-measured needs something measured: add --audit FILE or --evaluation FILE.")
    if evaluation is not None and not include_measured:
        raise ConfigError("--evaluation holds nothing but measured figures: add --include-measured, or leave it out.")
    manifest, tensors, fingerprint = read_folder(release)
    Release(manifest, tensors, fingerprint)
    found = present_papers(release)
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
    contents = {name: text.encode() for name, text in render_papers(manifest, passport).items()}
    listed: Any = {
        n: FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw)) for n, raw in contents.items()
    }
    passport = passport.model_copy(update={"files": listed})
    contents[PASSPORT] = passport.dumps().encode()
    put_papers(release, contents, remove=found)
    sha256 = hashlib.sha256(contents[PASSPORT]).hexdigest()
    return PassportSummary(str(release), passport, sha256, tuple(sorted(contents)), SIGNATURE in found)


def render_papers(manifest: Manifest, passport: Passport) -> dict[str, str]:
    """The papers that are made from a passport, by name: the same passport always gives the same text."""
    papers = {
        PAGE: passport_html(passport),
        SHEET: passport_markdown(passport),
        CROISSANT: render_croissant(manifest, passport),
    }
    if passport.ledger is not None:
        papers[REGISTRY] = render_registry(manifest, passport)
    return papers
