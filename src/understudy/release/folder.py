"""Reading and writing the folder: all of it or none of it, no pickle, no surprise files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError, FormatError, IntegrityError
from understudy.release.manifest import MAX_MANIFEST_BYTES, FileEntry, Manifest, parse_manifest
from understudy.release.passport import LISTED, PASSPORT
from understudy.release.signature import SIGNATURE

__all__ = [
    "CARD",
    "MANIFEST",
    "PAPERS",
    "check_file",
    "check_target",
    "parse_tensors",
    "read_folder",
    "tensor_file",
    "write_folder",
]

MANIFEST = "manifest.json"
CARD = "README.md"
# What a holder may add later: see `read_papers`.
PAPERS = frozenset({*LISTED, PASSPORT, SIGNATURE})
MAX_HEADER = 2**20


def tensor_file(kind: str) -> str:
    """Name of the file that holds the numbers."""
    return "decoder.safetensors" if kind == "decoder" else "rows.safetensors"


def check_target(path: Path, *, overwrite: bool) -> None:
    """Complain early about a place where a release cannot be written, before hours of work."""
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} exists already. Choose another folder, or ask to overwrite it (--force).")
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{str(path)!r} is not a release: it is left alone. Choose another folder.")
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"Nothing can be written in {str(parent)!r}. Choose another place for {path.name!r}.")


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
    """Write beside `path` and rename at the end, so that a reader never sees half a release."""
    from safetensors.numpy import save

    check_target(path, overwrite=overwrite)
    contents = {
        tensor_file(manifest.kind): save({k: np.ascontiguousarray(v) for k, v in tensors.items()}),
        CARD: card.encode(),
    }
    entries = {
        name: FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw)) for name, raw in contents.items()
    }
    manifest = manifest.model_copy(update={"files": entries})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise ConfigError(f"Cannot write beside {str(path)!r}: {error.strerror}. Choose another folder.") from error
    try:
        # mkdtemp gives 0700; a release is made to be shared.
        temporary.chmod(0o755)
        for name, raw in {**contents, MANIFEST: manifest.dumps().encode()}.items():
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
    return manifest


def read_folder(path: Path) -> tuple[Manifest, dict[str, npt.NDArray[Any]], str]:
    """Manifest, tensors and the manifest's own fingerprint, after every check that needs no private data.

    Passport and signature are left to `read_papers`: a holder can write them anew even where they are damaged.
    """
    if not path.is_dir():
        raise FormatError(f"{str(path)!r} is not a folder: a release is a folder with {MANIFEST} in it.")
    if not os.path.lexists(path / MANIFEST):
        raise FormatError(f"{str(path)!r} has no {MANIFEST}: it is not a release, or not all of it arrived.")
    _check_plain(path / MANIFEST)
    if (size := (path / MANIFEST).stat().st_size) > MAX_MANIFEST_BYTES:
        raise FormatError(f"{MANIFEST} is {size} bytes long; a release's is at most {MAX_MANIFEST_BYTES}.")
    raw = _read_plain(path / MANIFEST)
    manifest = parse_manifest(raw)
    numbers = tensor_file(manifest.kind)
    if set(manifest.files) != {numbers, CARD}:
        raise FormatError(f"A release of kind {manifest.kind!r} holds {numbers} and {CARD}, and nothing else.")
    found = {entry.name for entry in path.iterdir()}
    if extra := sorted(found - set(manifest.files) - {MANIFEST} - PAPERS):
        raise IntegrityError(f"The folder holds {extra[0][:80]!r}, which its manifest does not list: do not open it.")
    contents = {name: _checked(path / name, entry) for name, entry in manifest.files.items()}
    return manifest, parse_tensors(contents[numbers])[0], hashlib.sha256(raw).hexdigest()


def _checked(file: Path, entry: FileEntry) -> bytes:
    if not os.path.lexists(file):
        raise IntegrityError(f"{file.name} is missing: not all of the release arrived.")
    _check_plain(file)
    if file.stat().st_size != entry.bytes:
        raise IntegrityError(
            f"{file.name} is {file.stat().st_size} bytes long, its manifest says {entry.bytes}: cut off or altered."
        )
    raw = _read_plain(file)
    if hashlib.sha256(raw).hexdigest() != entry.sha256:
        raise IntegrityError(f"{file.name} is not the file that the manifest describes: damaged or altered.")
    return raw


def _check_plain(file: Path) -> None:
    # A link could point anywhere on the reader's machine, a pipe could block for ever.
    if not stat.S_ISREG(file.lstat().st_mode):
        raise FormatError(f"{file.name} is a link or a device, not a plain file: do not open this release.")


def _read_plain(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise FormatError(f"{file.name} cannot be read: {error.strerror}.") from error


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


def _write_synced(file: Path, raw: bytes) -> None:
    with file.open("wb") as f:
        f.write(raw)
        f.flush()
        os.fsync(f.fileno())
