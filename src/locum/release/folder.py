"""Release folders on disk: written atomically, read with every check, no pickle and no unlisted file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError, IntegrityError, LocumError
from locum.io import (
    MANIFEST,
    check_manifest_folder,
    check_output_folder,
    check_regular,
    read_regular,
    write_folder_atomically,
)
from locum.release.manifest import MAX_MANIFEST_BYTES, FileEntry, Manifest, parse_manifest
from locum.release.passport.schema import LISTED, PASSPORT
from locum.release.passport.signature import SIGNATURE

_log = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")
# How often a folder is read again that another process replaces meanwhile.
_TRIES = 20
CARD = "README.md"
# What a holder may add later: see `read_passport_files`.
PASSPORT_FILES = frozenset({*LISTED, PASSPORT, SIGNATURE})
MAX_HEADER = 2**20


@dataclass(frozen=True, slots=True)
class FolderContents:
    """What a release folder holds, passport and signature aside; `fingerprint` is the SHA-256 of the manifest."""

    manifest: Manifest
    tensors: dict[str, npt.NDArray[Any]]
    card: bytes
    fingerprint: str


def entry_of(raw: bytes) -> FileEntry:
    """Hash and size of a file.

    Parameters
    ----------
    raw
        The bytes of the file.

    Returns
    -------
    FileEntry
        SHA-256 and number of bytes.

    Examples
    --------
    >>> from locum.release import entry_of
    >>> entry = entry_of(b"abc")
    >>> entry.bytes, entry.sha256[:8]
    (3, 'ba7816bf')
    """
    return FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))


def read_checked_folder(
    path: Path,
    thing: str,
    parse: Callable[[bytes], tuple[Parsed, Mapping[str, FileEntry]]],
    *,
    beside: frozenset[str] = frozenset(),
) -> tuple[Parsed, dict[str, bytes], str]:
    """Read a manifest and the files that it lists, and check names, sizes and hashes; nothing is run.

    A link, a device, a file that is neither listed nor in `beside`, a wrong size or a wrong hash is an error.

    Parameters
    ----------
    path
        The folder.
    thing
        What was asked for, as errors name it, such as "a release".
    parse
        Turns the bytes of the manifest into the manifest and the files that it lists.
    beside
        Names of files that may be there without being listed.

    Returns
    -------
    manifest
        What `parse` returned first.
    contents : dict of str to bytes
        The listed files.
    fingerprint : str
        SHA-256 of the manifest.

    Raises
    ------
    FormatError
        If there is no such folder, or it is not what was asked for.
    IntegrityError
        If a file is missing, was altered or is not listed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release import read_checked_folder
    >>> Path("empty").mkdir()
    >>> read_checked_folder(Path("empty"), "a release", lambda raw: (raw, {}))
    Traceback (most recent call last):
        ...
    locum.errors.FormatError: 'empty' has no manifest.json: it is not a release, or files are missing.
    """
    for _ in range(_TRIES):
        before = _identity(path)
        try:
            return _read_once(path, thing, parse, beside)
        except (LocumError, OSError):
            # Another process has put a new folder in its place meanwhile: files of both were read.
            if before == _identity(path):
                raise
    return _read_once(path, thing, parse, beside)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Tells one folder from another in the same place; numbers of deleted folders are used again, so times count."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns


def _read_once(
    path: Path,
    thing: str,
    parse: Callable[[bytes], tuple[Parsed, Mapping[str, FileEntry]]],
    beside: frozenset[str],
) -> tuple[Parsed, dict[str, bytes], str]:
    check_manifest_folder(path, thing)
    check_regular(path / MANIFEST)
    if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{MANIFEST} is {size} bytes long; {thing}'s has at most {MAX_MANIFEST_BYTES}.")
    raw = read_regular(path / MANIFEST)
    manifest, files = parse(raw)
    if extra := sorted({entry.name for entry in path.iterdir()} - set(files) - {MANIFEST} - beside):
        raise IntegrityError(f"The folder holds {extra[0][:80]!r}, which its manifest does not list: do not open it.")
    return manifest, {name: checked(path / name, entry) for name, entry in files.items()}, entry_of(raw).sha256


def checked(file: Path, entry: FileEntry) -> bytes:
    """The bytes of a file, if their size and hash are those of its entry."""
    if not os.path.lexists(file):
        raise IntegrityError(f"{file.name} is missing: the release is not complete. Ask for it again.")
    check_regular(file)
    if (size := file.stat().st_size) != entry.bytes:
        raise IntegrityError(
            f"{file.name} is {size} bytes long, but its manifest says {entry.bytes}: truncated or altered."
        )
    raw = read_regular(file)
    if entry_of(raw).sha256 != entry.sha256:
        raise IntegrityError(f"{file.name} is not the file that the manifest describes: damaged or altered.")
    return raw


def tensor_file(kind: str) -> str:
    """Name of the file that holds the tensors."""
    return "decoder.safetensors" if kind == "decoder" else "rows.safetensors"


def write_folder(
    path: Path,
    manifest: Manifest,
    tensors: Mapping[str, npt.NDArray[Any]],
    card: str,
    *,
    overwrite: bool,
    bind: Callable[[str], None] | None = None,
) -> Manifest:
    """Write a release atomically and return the manifest with the hashes of its files.

    `bind` gets the fingerprint before the folder is in its place: a ledger must know what it paid for.
    """
    from safetensors.numpy import save

    contents = {
        tensor_file(manifest.kind): save({k: np.ascontiguousarray(v) for k, v in tensors.items()}),
        CARD: card.encode(),
    }
    manifest = manifest.model_copy(update={"files": {name: entry_of(raw) for name, raw in contents.items()}})
    written = manifest.dumps().encode()
    check_output_folder(path, overwrite=overwrite)
    if bind is not None:
        bind(entry_of(written).sha256)
    write_folder_atomically(path, [*contents.items(), (MANIFEST, written)], overwrite=overwrite)
    _log.info("wrote a folder of %d files, %d bytes", len(contents) + 1, sum(map(len, contents.values())))
    return manifest


def transcript_hash(noisy: npt.NDArray[np.float32]) -> str:
    """The hash under which a ledger knows a noisy result.

    Parameters
    ----------
    noisy
        What the mechanism returned, as a release holds it.

    Returns
    -------
    str
        SHA-256 of its bytes as little-endian floats of 32 bits, in hex.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import transcript_hash
    >>> transcript_hash(np.zeros(3, np.float32))[:8]
    '15ec7bf0'
    """
    return hashlib.sha256(np.ascontiguousarray(noisy, dtype="<f4").tobytes()).hexdigest()


def read_folder(path: Path) -> FolderContents:
    """Read a release folder with every check that needs no private data.

    Passport and signature are left to `read_passport_files`: a holder can rewrite them if they are damaged. Most
    callers want `load`, which checks those too.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    FolderContents
        `manifest`, `tensors`, `card` (bytes) and `fingerprint`, the SHA-256 of the manifest.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import read_folder
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("read_folder")
    >>> sorted(read_folder(path).tensors)
    ['factor', 'means', 'scale']
    """
    manifest, contents, fingerprint = read_checked_folder(path, "a release", _parse, beside=PASSPORT_FILES)
    tensors, _ = parse_tensors(contents[tensor_file(manifest.kind)])
    return FolderContents(manifest, tensors, contents[CARD], fingerprint)


def _parse(raw: bytes) -> tuple[Manifest, Mapping[str, FileEntry]]:
    manifest = parse_manifest(raw)
    numbers = tensor_file(manifest.kind)
    if set(manifest.files) != {numbers, CARD}:
        raise FormatError(f"A release of kind {manifest.kind!r} must list {numbers} and {CARD}, and nothing else.")
    return manifest, manifest.files


def parse_tensors(
    raw: bytes, what: str = "The file of tensors", max_header: int = MAX_HEADER
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file.

    Parameters
    ----------
    raw
        The bytes of the file.
    what
        What the error calls the file.
    max_header
        The longest header that is accepted, in bytes.

    Returns
    -------
    tensors : dict of str to ndarray
        The tensors by name.
    metadata : dict of str to str
        Empty if the file has none.

    Raises
    ------
    FormatError
        If the bytes are not a safetensors file.

    Examples
    --------
    >>> import numpy as np
    >>> from safetensors.numpy import save
    >>> from locum.release import parse_tensors
    >>> tensors, metadata = parse_tensors(save({"means": np.eye(2)}))
    >>> tensors["means"].tolist(), metadata
    ([[1.0, 0.0], [0.0, 1.0]], {})
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    length = int.from_bytes(raw[:8], "little") if len(raw) >= 8 else -1
    if not 2 <= length <= max_header or length + 8 > len(raw):
        raise FormatError(f"{what} is not in safetensors format (pickles are never opened).")
    try:
        header = json.loads(raw[8 : 8 + length].decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("not an object")
        return load(raw), header.get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{what} is not in safetensors format, or is damaged.") from error
