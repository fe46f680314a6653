"""Reading and writing the folder: all of it or none of it, no pickle, no surprise files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError, FormatError
from understudy.release.manifest import FileEntry, Manifest, parse_manifest
from understudy.release.passport import LISTED, PASSPORT
from understudy.release.signature import SIGNATURE
from understudy.release.whole import MANIFEST, entry_of, read_whole, write_whole

__all__ = [
    "CARD",
    "MANIFEST",
    "PAPERS",
    "check_file",
    "parse_tensors",
    "read_folder",
    "tensor_file",
    "write_folder",
]

CARD = "README.md"
# What a holder may add later: see `read_papers`.
PAPERS = frozenset({*LISTED, PASSPORT, SIGNATURE})
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
    write_whole(path, [*contents.items(), (MANIFEST, manifest.dumps().encode())], overwrite=overwrite)
    return manifest


def read_folder(path: Path) -> tuple[Manifest, dict[str, npt.NDArray[Any]], str]:
    """Manifest, tensors and the manifest's own fingerprint, after every check that needs no private data.

    Passport and signature are left to `read_papers`: a holder can write them anew even where they are damaged.
    """
    manifest, contents, fingerprint = read_whole(path, "a release", _parse, beside=PAPERS)
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
