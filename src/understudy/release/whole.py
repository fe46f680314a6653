"""A folder of files with a manifest: written whole or not at all, read with every check that bytes allow."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from understudy.errors import ConfigError, FormatError, IntegrityError
from understudy.release.manifest import MAX_MANIFEST_BYTES, FileEntry

__all__ = [
    "MANIFEST",
    "check_plain",
    "check_target",
    "checked",
    "entry_of",
    "lies_in_release",
    "read_plain",
    "read_whole",
    "write_synced",
    "write_whole",
]

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


def write_whole(path: Path, contents: Iterable[tuple[str, bytes]], *, overwrite: bool, mode: int = 0o755) -> None:
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


def read_whole(
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
