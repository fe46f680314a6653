"""Passport and signature beside a release: read with the same care, put there all at once or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.io import MANIFEST, check_regular, read_regular, replace_in_folder
from locum.release.folder import PASSPORT_FILES, checked
from locum.release.manifest import MAX_MANIFEST_BYTES, Manifest
from locum.release.passport.schema import PASSPORT, Passport, check_passport, parse_passport
from locum.release.passport.signature import SIGNATURE, Signature, parse_signature


@dataclass(frozen=True, slots=True)
class PassportFiles:
    """What a holder added to a release; either may be missing. `hashes` is what a signature must cover."""

    passport: Passport | None
    signature: Signature | None
    hashes: dict[str, str]


def present_passport_files(path: Path) -> list[str]:
    """Names of the papers that lie in a release folder, whole or not."""
    return sorted(PASSPORT_FILES & {entry.name for entry in path.iterdir()})


def read_passport_files(path: Path, manifest: Manifest, fingerprint: str) -> PassportFiles:
    """Passport and signature of a release that `read_folder` read, after every check that needs no key.

    The passport must be that of this release and list every other paper with its hash; a signature must be over the
    hashes that are found. Whose signature it is, is not looked at.
    """
    found = set(present_passport_files(path))
    hashes = {MANIFEST: fingerprint}
    passport = signature = None
    listed = {SIGNATURE}
    if PASSPORT in found:
        raw = _small(path / PASSPORT)
        passport = parse_passport(raw)
        check_passport(passport, manifest, fingerprint)
        hashes[PASSPORT] = hashlib.sha256(raw).hexdigest()
        listed |= {PASSPORT, *passport.files}
        for name, entry in passport.files.items():
            checked(path / name, entry)
    if extra := sorted(found - listed):
        raise IntegrityError(f"The folder holds {extra[0]!r}, which no passport in it lists: do not open it.")
    if SIGNATURE in found:
        signature = parse_signature(_small(path / SIGNATURE))
        if signature.files != hashes:
            raise IntegrityError(
                f"{SIGNATURE} was made for other files than these: the release was altered after it was signed, or "
                "must be signed again."
            )
    return PassportFiles(passport, signature, hashes)


def write_passport_files(path: Path, contents: Mapping[str, bytes], *, remove: Iterable[str] = ()) -> None:
    """Put passport files into a release folder and take others out, all at once; the release is not touched."""
    unknown = (set(contents) | set(remove)) - PASSPORT_FILES
    if unknown:
        raise ConfigError(f"{sorted(unknown)[0]!r} is no passport file of a release.")
    replace_in_folder(path, contents, remove=set(remove))


def _small(file: Path) -> bytes:
    check_regular(file)
    if (size := file.stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{file.name} is {size} bytes long; one of a release is at most {MAX_MANIFEST_BYTES}.")
    return read_regular(file)
