"""Whether data fit in memory, before they are read."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from locum.errors import DataError

# What a verb needs at its peak, as a multiple of the vectors alone: the file's columns, the vectors, and a copy.
_TIMES = 3


def free_memory() -> int:
    """Bytes that this process may still take: of the machine, of its container, and of its own limit.

    Returns
    -------
    int
        The smallest of the three, as far as they are known.

    Examples
    --------
    >>> from locum.data import free_memory
    >>> free_memory() > 0
    True
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            limits.append(1024 * int(line.split()[1]))
    most, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if most and used and most[0].strip().isdigit():
        limits.append(int(most[0]) - int(used[0]))
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        taken = _lines("/proc/self/statm")
        limits.append(soft - (int(taken[0].split()[0]) * os.sysconf("SC_PAGE_SIZE") if taken else 0))
    return max(min(limits), 0)


def check_memory(path: str, rows: int, dim: int) -> None:
    """Refuse to read vectors that do not fit in memory, with the size that they would need.

    Parameters
    ----------
    path
        The data, as the error names them.
    rows, dim
        How many vectors, of how many numbers.

    Raises
    ------
    DataError
        If there is too little memory; it names a random part that would fit.

    Examples
    --------
    >>> from locum.data import check_memory
    >>> check_memory("scans.parquet", 1000, 64)
    """
    needed, free = _TIMES * 4 * rows * dim, free_memory()
    if needed <= free:
        return
    fits = max(1, rows * free // (2 * needed))
    part = int(10 ** (len(str(fits)) - 1))
    raise DataError(
        f"{path} holds {rows:,} vectors of {dim:,} numbers, which take about {_giga(needed)} of memory when all of "
        f"them are read, and {_giga(free)} are free: name a random part of them, such as '{path}#[{part}]', or use a "
        "machine with more memory. Only `fit` works piece by piece: with the generator gaussian, or cvae and --no-dp."
    )


def _giga(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
