"""One way out: an `EmbeddingSet` becomes a file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from understudy.data.csv_table import write_csv
from understudy.data.files import SUFFIXES, write_atomically
from understudy.data.npz import write_npz
from understudy.data.parquet import write_parquet
from understudy.data.safetensors_file import write_safetensors
from understudy.errors import DataError
from understudy.types import EmbeddingSet

__all__ = ["write_embeddings"]

_WRITERS: dict[str, Callable[[BinaryIO, EmbeddingSet], None]] = {
    ".csv": write_csv,
    ".npz": write_npz,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}


def write_embeddings(path: str | os.PathLike[str], data: EmbeddingSet) -> None:
    """Write `data` so that `read_embeddings` gives it back; the suffix chooses the format.

    The file appears whole or not at all, and only its owner may read it. .npz, .parquet and
    .safetensors keep everything. A .csv loses `info`, the order of the classes and classes without
    records, and gives text that reads as whole numbers back as numbers.

    Examples
    --------
    >>> import tempfile
    >>> from understudy.data import load_sample, read_embeddings, write_embeddings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_embeddings(f"{folder}/sample.parquet", load_sample("breast-cancer"))
    ...     read_embeddings(f"{folder}/sample.parquet").info.class_names
    ('malignant', 'benign')
    """
    name = os.fspath(path)
    writer = _WRITERS.get(Path(name).suffix.lower())
    if writer is None:
        known = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise DataError(f"{name} has no suffix that can be written: end it in {known}.")
    write_atomically(name, lambda stream: writer(stream, data))
