"""Reading and writing the folder: all of it or none of it, no pickle, no surprise files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.release.manifest import MAX_MANIFEST_BYTES, FileEntry, Manifest, parse_manifest
from locum.release.passport.schema import LISTED, PASSPORT
from locum.release.passport.signature import SIGNATURE

MANIFEST = "manifest.json"
Parsed = TypeVar("Parsed")


def entry_of(raw: bytes) -> FileEntry:
    """A file's fingerprint."""
    return FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))


def lies_in_release(path: Path) -> bool:
    """Whether a folder above `path` has a manifest: what lies there is made to leave."""
    return any((folder / MANIFEST).exists() for folder in path.resolve().parents)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Complain early about a place where a release cannot be written, before hours of work."""
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} exists already. Choose another folder, or ask to overwrite it (--force).")
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{str(path)!r} is not a release: it is left alone. Choose another folder.")
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"Nothing can be written in {str(parent)!r}. Choose another place for {path.name!r}.")


def write_folder_atomically(
    path: Path, contents: Iterable[tuple[str, bytes]], *, overwrite: bool, mode: int = 0o755
) -> None:
    """Write beside `path` and rename at the end, so that a reader never sees half of it.

    `contents` come one at a time, so that many need little memory. One of them must be the manifest: what is there is
    replaced only if it has one too.
    """
    check_target(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise ConfigError(f"Cannot write beside {str(path)!r}: {error.strerror}. Choose another folder.") from error
    try:
        # mkdtemp gives 0700; most of these are made to be shared.
        temporary.chmod(mode)
        for name, raw in contents:
            write_synced(temporary / name, raw)
        if path.exists():
            old = temporary.with_name(temporary.name + "-old")
            path.rename(old)
            temporary.rename(path)
            shutil.rmtree(old)
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read_checked_folder(
    path: Path,
    thing: str,
    parse: Callable[[bytes], tuple[Parsed, Mapping[str, FileEntry]]],
    *,
    beside: frozenset[str] = frozenset(),
) -> tuple[Parsed, dict[str, bytes], str]:
    """Manifest, files and the manifest's fingerprint, after every check that bytes allow. Nothing is run.

    `parse` gives the manifest and the files that it lists. A link, a device, a file that is neither listed nor
    `beside`, another size or another hash is an error. `thing` is what was asked for, such as "a release".
    """
    if not path.is_dir():
        raise FormatError(f"{str(path)!r} is not a folder: {thing} is a folder with {MANIFEST} in it.")
    if not os.path.lexists(path / MANIFEST):
        raise FormatError(f"{str(path)!r} has no {MANIFEST}: it is not {thing}, or not all of it arrived.")
    check_plain(path / MANIFEST)
    if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{MANIFEST} is {size} bytes long; {thing}'s is at most {MAX_MANIFEST_BYTES}.")
    raw = read_plain(path / MANIFEST)
    manifest, files = parse(raw)
    if extra := sorted({entry.name for entry in path.iterdir()} - set(files) - {MANIFEST} - beside):
        raise IntegrityError(f"The folder holds {extra[0][:80]!r}, which its manifest does not list: do not open it.")
    return manifest, {name: checked(path / name, entry) for name, entry in files.items()}, entry_of(raw).sha256


def checked(file: Path, entry: FileEntry) -> bytes:
    """The bytes of a file that is what its entry says."""
    if not os.path.lexists(file):
        raise IntegrityError(f"{file.name} is missing: not all of the release arrived.")
    check_plain(file)
    if file.stat().st_size != entry.bytes:
        raise IntegrityError(
            f"{file.name} is {file.stat().st_size} bytes long, its manifest says {entry.bytes}: cut off or altered."
        )
    raw = read_plain(file)
    if entry_of(raw).sha256 != entry.sha256:
        raise IntegrityError(f"{file.name} is not the file that the manifest describes: damaged or altered.")
    return raw


def check_plain(file: Path) -> None:
    """Refuse what is no plain file: a link could point anywhere on the reader's machine, a pipe block for ever."""
    if not stat.S_ISREG(file.lstat().st_mode):
        raise FormatError(f"{file.name} is a link or a device, not a plain file: do not open this release.")


def read_plain(file: Path) -> bytes:
    """The bytes, or one sentence."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise FormatError(f"{file.name} cannot be read: {error.strerror}.") from error


def write_synced(file: Path, raw: bytes) -> None:
    """Write, and wait until it is on disk."""
    with file.open("wb") as f:
        f.write(raw)
        f.flush()
        os.fsync(f.fileno())


CARD = "README.md"
# What a holder may add later: see `read_papers`.
PASSPORT_FILES = frozenset({*LISTED, PASSPORT, SIGNATURE})
MAX_HEADER = 2**20


def tensor_file(kind: str) -> str:
    """Name of the file that holds the numbers."""
    return "decoder.safetensors" if kind == "decoder" else "rows.safetensors"


def check_file(path: Path, suffix: str, *, overwrite: bool) -> None:
    """The same for a single file. Nothing is renamed: what ends in another suffix is refused."""
    if path.suffix.lower() != suffix:
        raise ConfigError(f"{str(path)!r} must end in {suffix}, because that is what is written: add it.")
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder: give the name of a file in it.")
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} exists already. Choose another file, or ask to overwrite it (--force).")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"Nothing can be written in {str(path.parent)!r}. Create it, or choose another folder.")


def write_folder(
    path: Path, manifest: Manifest, tensors: Mapping[str, npt.NDArray[Any]], card: str, *, overwrite: bool
) -> Manifest:
    """Write a release whole or not at all; gives the manifest with the hashes of its files."""
    from safetensors.numpy import save

    contents = {
        tensor_file(manifest.kind): save({k: np.ascontiguousarray(v) for k, v in tensors.items()}),
        CARD: card.encode(),
    }
    manifest = manifest.model_copy(update={"files": {name: entry_of(raw) for name, raw in contents.items()}})
    write_folder_atomically(path, [*contents.items(), (MANIFEST, manifest.dumps().encode())], overwrite=overwrite)
    return manifest


def read_folder(path: Path) -> tuple[Manifest, dict[str, npt.NDArray[Any]], str]:
    """Manifest, tensors and the manifest's own fingerprint, after every check that needs no private data.

    Passport and signature are left to `read_passport_files`: a holder can rewrite them if they are damaged.
    """
    manifest, contents, fingerprint = read_checked_folder(path, "a release", _parse, beside=PASSPORT_FILES)
    return manifest, parse_tensors(contents[tensor_file(manifest.kind)])[0], fingerprint


def _parse(raw: bytes) -> tuple[Manifest, Mapping[str, FileEntry]]:
    manifest = parse_manifest(raw)
    numbers = tensor_file(manifest.kind)
    if set(manifest.files) != {numbers, CARD}:
        raise FormatError(f"A release of kind {manifest.kind!r} holds {numbers} and {CARD}, and nothing else.")
    return manifest, manifest.files


def parse_tensors(
    raw: bytes, what: str = "The file of tensors", max_header: int = MAX_HEADER
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Tensors and metadata of a safetensors file; `what` is its name in the error."""
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
        raise FormatError(f"{what} is not in safetensors format, or damaged.") from error
