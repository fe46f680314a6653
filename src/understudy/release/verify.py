"""What anyone can check about a release, offline and without private data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.errors import FormatError
from understudy.release.card import render_card
from understudy.release.folder import CARD, MANIFEST
from understudy.release.release import Release

__all__ = ["Verification", "verify"]


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks that a release passed. One that fails any of them raises instead."""

    path: str
    fingerprint: str
    generator: str
    claim: dict[str, Any]
    checks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def verify(path: str | Path) -> Verification:
    """Check a release folder; raise `ReleaseError` with the reason if it must not be used.

    The fingerprint is the SHA-256 of the manifest, which holds the hashes of all the rest: compare it
    over another channel with the sender's. Nothing here shows who made the release.
    """
    folder = Path(path)
    release = Release.open(folder)
    own_card = (folder / CARD).read_bytes() == render_card(release.manifest).encode()
    X, _ = release.sample(None if release.manifest.kind == "data" else 64, random_state=0)
    if not np.isfinite(X).all():
        raise FormatError("The release gives vectors that are not finite.")
    checks = [
        f"{MANIFEST} follows schema {release.manifest.schema_version}",
        f"{len(release.manifest.files)} files present, with the size and SHA-256 that the manifest gives",
        "no file beside those, no link, no pickle",
        f"{len(release.tensors)} tensors finite and of the shapes that the decoder needs",
        "a test draw gives finite vectors",
        "the card is what this version would write"
        if own_card
        else "the card was written by another version or by hand",
    ]
    return Verification(
        str(path), release.fingerprint or "", release.manifest.generator, release.claim.to_dict(), tuple(checks)
    )
