"""Passport and signature beside a release: read with the same care, put there all at once or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.release.folder import MANIFEST, PASSPORT_FILES, check_plain, checked, read_plain, write_synced
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
    """Put papers into a release folder and take others out; decoder, card and manifest are not touched.

    Everything is written beside the folder first. If a step fails, what was there before is put back.
    """
    folder = path.resolve()
    unknown = (set(contents) | set(remove)) - PASSPORT_FILES
    if unknown:
        raise ConfigError(f"{sorted(unknown)[0]!r} is no paper of a release.")
    try:
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"Cannot write beside {str(path)!r}: {error.strerror}. Change its permissions.") from error
    try:
        new, old = stage / "new", stage / "old"
        new.mkdir()
        old.mkdir()
        for name, raw in contents.items():
            write_synced(new / name, raw)
        _swap(folder, new, old, set(contents) | set(remove))
    except OSError as error:
        raise ConfigError(f"Cannot write in {str(path)!r}: {error.strerror}. Change its permissions.") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _swap(folder: Path, new: Path, old: Path, names: set[str]) -> None:
    placed = []
    try:
        for name in sorted(names):
            if os.path.lexists(folder / name):
                (folder / name).rename(old / name)
        for file in sorted(new.iterdir()):
            file.rename(folder / file.name)
            placed.append(folder / file.name)
    except BaseException:
        for file in placed:
            file.unlink(missing_ok=True)
        for file in old.iterdir():
            file.rename(folder / file.name)
        raise


def _small(file: Path) -> bytes:
    check_plain(file)
    if (size := file.stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{file.name} is {size} bytes long; one of a release is at most {MAX_MANIFEST_BYTES}.")
    return read_plain(file)
