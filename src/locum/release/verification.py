"""What anyone can check about a release, offline and without private data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import FormatError, IntegrityError
from locum.io import MANIFEST
from locum.release.card import render_card
from locum.release.folder import CARD
from locum.release.passport.files import PassportFiles, read_passport_files
from locum.release.passport.schema import PASSPORT
from locum.release.passport.signature import SIGNATURE, check_signature, key_id, read_public_key
from locum.release.release import Release


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks that a release passed. One that fails any of them raises instead.

    `passport` is the SHA-256 of the passport, if there is one; `signed_by` the id of the key whose signature was
    checked, and None where none was; `not_checked` says in words what nobody looked at.
    """

    path: str
    fingerprint: str
    generator: str
    claim: dict[str, Any]
    checks: tuple[str, ...]
    passport: str | None = None
    signed_by: str | None = None
    not_checked: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def verify(path: str | Path, *, key: str | Path | None = None) -> Verification:
    """Check a release folder; raise `ReleaseError` with the reason if it must not be used.

    The fingerprint is the SHA-256 of the manifest, which holds the hashes of decoder and card: compare it over
    another channel with the sender's. With `key`, a public key, the signature must be that of its owner. Without it
    nothing here shows who made the release.
    """
    folder = Path(path)
    release = Release.open(folder)
    own_card = (folder / CARD).read_bytes() == render_card(release.manifest).encode()
    X, _ = release.sample(None if release.manifest.kind == "data" else 64, random_state=0)
    if not np.isfinite(X).all():
        raise FormatError("The release gives vectors that are not finite.")
    passport_files = read_passport_files(folder, release.manifest, release.fingerprint or "")
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
    if passport_files.passport is not None:
        checks.append(
            f"{PASSPORT} follows schema {passport_files.passport.schema_version}, and is that of this release"
        )
        checks.append("the passport makes the claim of the manifest, and no other")
        checks.append(
            f"{len(passport_files.passport.files)} papers present, with the size and SHA-256 that the passport gives"
        )
    signed_by, not_checked = None, []
    if key is not None:
        signed_by = _signer(passport_files, Path(key))
        checks.append(f"signed with the key {signed_by[:16]}, over {' and '.join(passport_files.hashes)}")
    elif passport_files.signature is not None:
        not_checked.append(
            f"nobody's signature was checked: the release names the key {passport_files.signature.key[:16]}, which "
            "anybody can write; give the sender's public key with --key"
        )
    else:
        not_checked.append("nobody's signature was checked: the release has none, and anybody could have made it")
    return Verification(
        path=str(path),
        fingerprint=release.fingerprint or "",
        generator=release.manifest.generator,
        claim=release.claim.to_dict(),
        checks=tuple(checks),
        passport=passport_files.hashes.get(PASSPORT),
        signed_by=signed_by,
        not_checked=tuple(not_checked),
    )


def _signer(passport_files: PassportFiles, path: Path) -> str:
    public = read_public_key(path)
    if passport_files.signature is None:
        raise IntegrityError(f"Nobody signed this release: it has no {SIGNATURE}. Ask the sender for a signed one.")
    check_signature(passport_files.signature, public)
    return key_id(public)
