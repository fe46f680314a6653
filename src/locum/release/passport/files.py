"""Passport and signature in a release folder: read with the same checks as the release, written all at once."""

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
    """What a holder added to a release; passport and signature may each be missing.

    Parameters
    ----------
    passport
        The passport.
    signature
        The signature; who made it is not checked.
    hashes
        SHA-256 of the files that a signature must cover, by name.
    listed
        The bytes of the files that the passport lists, by name.

    Examples
    --------
    >>> from locum.release.passport import PassportFiles
    >>> PassportFiles(None, None, {"manifest.json": "0" * 64}, {}).contents()
    {}
    """

    passport: Passport | None
    signature: Signature | None
    hashes: dict[str, str]
    listed: dict[str, bytes]

    def contents(self) -> dict[str, bytes]:
        """The bytes of every file, by name, for `write_passport_files`."""
        own: dict[str, Passport | Signature | None] = {PASSPORT: self.passport, SIGNATURE: self.signature}
        return self.listed | {name: found.dumps().encode() for name, found in own.items() if found is not None}


def present_passport_files(path: Path) -> list[str]:
    """Names of the passport files in a release folder, checked or not.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    list of str
        Sorted; empty if there are none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import present_passport_files
    >>> Path("present").mkdir()
    >>> _ = Path("present/passport.json").write_text("{}")
    >>> present_passport_files(Path("present"))
    ['passport.json']
    """
    return sorted(PASSPORT_FILES & {entry.name for entry in path.iterdir()})


def read_passport_files(path: Path, manifest: Manifest, fingerprint: str) -> PassportFiles:
    """Read passport and signature of a release that `read_folder` read, with every check that needs no key.

    The passport must belong to this release and list every other passport file with its hash; a signature must be
    over the hashes found, and be there if the passport names a decision. Who signed is not checked here.

    Parameters
    ----------
    path
        The folder.
    manifest, fingerprint
        Its manifest, and the SHA-256 of that.

    Returns
    -------
    PassportFiles
        Passport and signature, each None if it is not there.

    Raises
    ------
    ReleaseError
        If one of the files is damaged, or belongs to another release.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import read_folder
    >>> from locum.release.passport import read_passport_files
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("without_passport")
    >>> folder = read_folder(path)
    >>> read_passport_files(path, folder.manifest, folder.fingerprint).passport is None
    True
    """
    found = set(present_passport_files(path))
    hashes = {MANIFEST: fingerprint}
    passport = signature = None
    listed: dict[str, bytes] = {}
    if PASSPORT in found:
        raw = _read_small(path / PASSPORT)
        passport = parse_passport(raw)
        check_passport(passport, manifest, fingerprint)
        hashes[PASSPORT] = hashlib.sha256(raw).hexdigest()
        listed = {name: checked(path / name, entry) for name, entry in passport.files.items()}
    if extra := sorted(found - set(listed) - {PASSPORT, SIGNATURE}):
        raise IntegrityError(f"The folder holds {extra[0]!r}, which no passport in it lists: do not open it.")
    if SIGNATURE in found:
        signature = parse_signature(_read_small(path / SIGNATURE))
        if signature.files != hashes:
            raise IntegrityError(
                f"{SIGNATURE} was made for other files than these: the release was altered after it was signed, or "
                "must be signed again."
            )
    if signature is None and passport is not None and passport.decision is not None:
        raise IntegrityError(
            f"The passport names a decision, but the release has no {SIGNATURE}: a decision is signed as it is made, "
            "so the files were altered. Ask the sender for a signed release."
        )
    return PassportFiles(passport, signature, hashes, listed)


def write_passport_files(path: Path, contents: Mapping[str, bytes], *, remove: Iterable[str] = ()) -> None:
    """Write and remove passport files of a release in one step; the release itself is not touched.

    Parameters
    ----------
    path
        The folder of the release.
    contents
        The bytes of each file to write, by name.
    remove
        Names of passport files to remove.

    Raises
    ------
    ConfigError
        If a name is not that of a passport file.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release.passport import present_passport_files, write_passport_files
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("written")
    >>> write_passport_files(path, {"passport.md": b"# Passport"})
    >>> present_passport_files(path)
    ['passport.md']
    """
    unknown = (set(contents) | set(remove)) - PASSPORT_FILES
    if unknown:
        raise ConfigError(f"{sorted(unknown)[0]!r} is not a passport file of a release.")
    replace_in_folder(path, contents, remove=set(remove))


def _read_small(file: Path) -> bytes:
    check_regular(file)
    if (size := file.stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{file.name} is {size} bytes long; the limit is {MAX_MANIFEST_BYTES}.")
    return read_regular(file)
