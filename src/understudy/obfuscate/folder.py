"""A folder of files with a manifest: written whole or not at all, read with a release's care."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from understudy.errors import ConfigError, FormatError, IntegrityError
from understudy.release.folder import MANIFEST, _check_plain, _checked, _read_plain, _write_synced, check_target
from understudy.release.manifest import MAX_MANIFEST_BYTES, FileEntry

__all__ = ["entry_of", "read_whole", "write_whole"]

Parsed = TypeVar("Parsed")


def entry_of(raw: bytes) -> FileEntry:
    """A file's fingerprint."""
    return FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))


def write_whole(path: Path, contents: Iterable[tuple[str, bytes]], *, overwrite: bool, mode: int = 0o755) -> None:
    """Write beside `path` and rename at the end; `contents` come one at a time, so that many need little memory.

    One of them must be the manifest: what is there is replaced only if it has one too.
    """
    check_target(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise ConfigError(f"Cannot write beside {str(path)!r}: {error.strerror}. Choose another folder.") from error
    try:
        temporary.chmod(mode)
        for name, raw in contents:
            _write_synced(temporary / name, raw)
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
    expected: Iterable[str],
    parse: Callable[[bytes], Parsed],
    listed: Callable[[Parsed], Mapping[str, FileEntry]],
) -> tuple[Parsed, dict[str, bytes], str]:
    """Manifest, files and the manifest's fingerprint, after every check that bytes allow. Nothing is run.

    A link, a device, a file that the manifest does not list, another size or another hash is an error.
    """
    if not path.is_dir():
        raise FormatError(f"{str(path)!r} is not a folder: an {thing} is a folder with {MANIFEST} in it.")
    if not os.path.lexists(path / MANIFEST):
        raise FormatError(f"{str(path)!r} has no {MANIFEST}: it is no {thing}, or not all of it arrived.")
    _check_plain(path / MANIFEST)
    if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{MANIFEST} is {size} bytes long; an {thing}'s is at most {MAX_MANIFEST_BYTES}.")
    raw = _read_plain(path / MANIFEST)
    manifest = parse(raw)
    files, names = listed(manifest), tuple(expected)
    if set(files) != set(names):
        raise FormatError(f"The manifest of an {thing} lists {' and '.join(names)}, and nothing else.")
    if extra := sorted({entry.name for entry in path.iterdir()} - set(files) - {MANIFEST}):
        raise IntegrityError(f"The folder holds {extra[0][:80]!r}, which its manifest does not list: do not open it.")
    return manifest, {name: _checked(path / name, entry) for name, entry in files.items()}, entry_of(raw).sha256
