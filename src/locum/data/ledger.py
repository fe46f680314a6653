"""Which ledger pays for a release of some data: one answer for the program, for Python and for federated sites."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from locum.data.batches import open_batches, opens_in_pieces
from locum.data.files import SUFFIXES, read_splits
from locum.errors import DataError
from locum.io import array_files, is_remote, ledger_path, parquet_files, split_path
from locum.types import EmbeddingInfo


def ledger_for(data: str | os.PathLike[str], info: EmbeddingInfo | None = None) -> Path:
    """The ledger of `data`: that of the images that vectors were made from, else `.locum/ledger.sqlite` beside it.

    Every spelling of a path gives the same ledger, and so do all vectors that `embed` made from the same images.

    Parameters
    ----------
    data
        A file (with or without `#split`) or a folder; it need not exist.
    info
        What the file says about its vectors, to save reading it again. None: it is read.

    Returns
    -------
    Path
        The ledger's file, which may not exist yet.

    Examples
    --------
    >>> from locum.data import ledger_for
    >>> ledger_for("/data/../data/scans.npz#train").as_posix()
    '/data/.locum/ledger.sqlite'
    """
    if info is None:
        info = EmbeddingInfo() if is_remote(data) else _described(split_path(data)[0])
    return Path(info.ledger) if info.ledger else ledger_path(data)


def place_of(data: str | os.PathLike[str], info: EmbeddingInfo | None = None) -> str:
    """Where the records lie that a ledger pays for: the images that vectors were made from, else the data.

    Parameters
    ----------
    data
        A file (with or without `#split`) or a folder.
    info
        What the file says about its vectors, to save reading it again. None: it is read.

    Returns
    -------
    str
        A path without links, as `check_one_ledger` and `paying_for` take it; empty if the data are not on this
        machine.

    Examples
    --------
    >>> from locum.data import place_of
    >>> place_of("/data/../data/scans.npz#train"), place_of("s3://bucket/scans.parquet")
    ('/data/scans.npz', '')
    """
    if info is None:
        info = EmbeddingInfo() if is_remote(data) else _described(split_path(data)[0])
    if info.images or is_remote(data):
        return info.images
    return os.path.realpath(split_path(data)[0])


def _described(file: str) -> EmbeddingInfo:
    # Files of one folder that name different ledgers are refused when they are read. One without a row is none here.
    if arrays := array_files(file):
        states = [one.stat() for one in arrays.values()]
        changed, size = max(one.st_mtime_ns for one in states), sum(one.st_size for one in states)
        return _info_of(os.path.realpath(file), changed, size) or EmbeddingInfo()
    for one in parquet_files(file) or [Path(file)]:
        if one.suffix.lower() in SUFFIXES and one.is_file():
            state = one.stat()
            info = _info_of(str(one.resolve()), state.st_mtime_ns, state.st_size)
            if info is not None:
                return info
    # A table of image paths or of mixed columns: it says nothing about a ledger.
    return EmbeddingInfo()


@lru_cache(maxsize=16)
def _info_of(file: str, changed: int, size: int) -> EmbeddingInfo | None:
    """What a file says about itself, read once as long as it does not change: a site asks at every request."""
    try:
        # Without the vectors where that is possible: they may not fit in memory.
        if opens_in_pieces(file):
            return next(iter(open_batches(file).values())).info
        return next(iter(read_splits(file).values())).info
    except DataError:
        return None
