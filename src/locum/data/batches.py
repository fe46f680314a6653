"""Open data as `Batches`, and bring batches, or a random part of them, into memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.memory import check_memory
from locum.errors import DataError
from locum.io import array_files, file_system, is_remote, parquet_files, remote_errors
from locum.types import Batches, EmbeddingSet


def opens_in_pieces(path: str | os.PathLike[str]) -> bool:
    """Whether `open_batches` reads this kind of data: Parquet, safetensors, CSV, or a folder of .npy files.

    Parameters
    ----------
    path
        A file, a folder or an address, without `#split`.

    Returns
    -------
    bool
        False for an .npz and images, which are read as a whole.

    Examples
    --------
    >>> from locum.data import opens_in_pieces
    >>> opens_in_pieces("vectors.parquet"), opens_in_pieces("vectors.npz")
    (True, False)
    """
    text = os.fspath(path)
    suffix = Path(text.partition("?")[0]).suffix.lower()
    if is_remote(text):
        return suffix == ".parquet" or (suffix == "" and _has_parquet(text))
    if suffix in (".parquet", ".safetensors", ".csv") or text.lower().endswith(".csv.gz"):
        return True
    return bool(parquet_files(text) or array_files(text))


def _has_parquet(address: str) -> bool:
    from pyarrow import fs

    system, place = file_system(address)
    selector = fs.FileSelector(place, allow_not_found=True)
    with remote_errors(address):
        return any(one.extension.lower() == "parquet" for one in system.get_file_info(selector))


def open_batches(path: str | os.PathLike[str]) -> dict[str, Batches]:
    """All splits of data that need not fit in memory, as `read_splits` has them.

    Parameters
    ----------
    path
        A Parquet file or a folder of them, here or at an address such as `s3://bucket/vectors`; a safetensors file; a
        CSV table, also compressed with gzip; or a folder with `X.npy`, `y.npy` and so on.

    Returns
    -------
    dict of str to Batches
        The records by split, not read yet; class codes agree between splits. As private as the records.

    Raises
    ------
    DataError
        In one sentence, also later, when a piece is read that cannot be used.

    Examples
    --------
    >>> from locum.data import load_sample, open_batches, write_embeddings
    >>> write_embeddings("tumors.parquet", load_sample("breast-cancer"))
    >>> batches = open_batches("tumors.parquet")["all"]
    >>> len(batches), batches.dim, sum(len(piece) for piece in batches)
    (569, 30, 569)
    """
    text = os.fspath(path)
    if not opens_in_pieces(text):
        raise DataError(f"{text} cannot be read piece by piece: give Parquet, safetensors or CSV files.")
    found: Mapping[str, Batches]
    if text.lower().endswith(".safetensors") or array_files(text):
        from locum.data.formats.mapped import open_mapped

        found = open_mapped(text)
    elif text.lower().endswith((".csv", ".csv.gz")):
        from locum.data.formats.csv_batches import open_csv

        found = open_csv(text)
    else:
        from locum.data.formats.parquet_batches import open_parquet

        found = open_parquet(text)
    return dict(found)


def gather(batches: Batches, path: str, rows: int | None = None) -> EmbeddingSet:
    """All records in memory, or so many drawn at random, in their order.

    Parameters
    ----------
    batches
        The records.
    path
        The data, as an error names them.
    rows
        How many to draw, without replacement; the same ones in every call. None: all.

    Returns
    -------
    EmbeddingSet
        The records.

    Raises
    ------
    DataError
        If they do not fit in memory.

    Examples
    --------
    >>> from locum.data import gather, load_sample
    >>> from locum.types import SetBatches
    >>> len(gather(SetBatches(load_sample("digits")), "digits", rows=100))
    100
    """
    n = len(batches)
    kept: npt.NDArray[np.int64] | None = None
    if rows is not None and rows < n:
        kept = np.sort(np.random.default_rng(0).choice(n, size=rows, replace=False))
    size = n if kept is None else len(kept)
    check_memory(path, size, batches.dim)
    X = np.empty((size, batches.dim), dtype=np.float32)
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    seen = done = 0
    for piece in batches:
        if kept is not None:
            first, last = np.searchsorted(kept, [seen, seen + len(piece)])
            inside = kept[first:last] - seen
            seen += len(piece)
            if not len(inside):
                continue
            piece = piece.take(inside)
        X[done : done + len(piece)] = piece.X
        done += len(piece)
        columns.setdefault("y", []).append(piece.y)
        if piece.subject is not None:
            columns.setdefault("subject", []).append(piece.subject)
        for name, column in piece.attributes.items():
            columns.setdefault(f"attr_{name}", []).append(column)
    whole = {name: np.concatenate(values) for name, values in columns.items()}
    attributes = {name: whole[f"attr_{name}"] for name in batches.attribute_names}
    return EmbeddingSet(X, whole["y"], whole.get("subject"), attributes, batches.info)
