"""What federations keep on disk: tensors with a few words about them, and folders that one process works in."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from understudy.data.files import write_bytes

__all__ = ["UNREADABLE", "locked", "named", "part_of", "read_tensors", "write_tensors"]

Arrays = dict[str, npt.NDArray[Any]]
_ENTRY = "understudy"
# What `read_tensors`, and taking apart what it gives, raises on a file that is damaged or not ours.
UNREADABLE = (SafetensorError, OSError, ValueError, KeyError, TypeError)


def write_tensors(file: Path, tensors: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """One private file, whole or not at all; `meta` is plain JSON."""
    # Transposed arrays would be written in the wrong order, without a word.
    whole = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    write_bytes(str(file), save(whole, metadata={_ENTRY: json.dumps(meta)}))


def read_tensors(file: Path) -> tuple[dict[str, Any], Arrays]:
    """Undo `write_tensors`: what was said, and the arrays. One of `UNREADABLE` where that cannot be done."""
    with safe_open(file, framework="np") as f:
        meta: dict[str, Any] = json.loads((f.metadata() or {})[_ENTRY])
        return meta, {key: f.get_tensor(key) for key in f.keys()}  # noqa: SIM118


def named(prefix: str, tensors: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The tensors under a common prefix."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def part_of(tensors: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    """Undo `named`."""
    return {k.removeprefix(f"{prefix}/"): v for k, v in tensors.items() if k.startswith(f"{prefix}/")}


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold `file` alone; without `wait`, BlockingIOError if another process has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            # Closing is not enough where a process was forked meanwhile: it would hold the lock for ever.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
