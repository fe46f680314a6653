"""Parquet files: a column of vectors, or columns of numbers as in a CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from locum.data.formats.arrays import ATTRIBUTE
from locum.data.formats.assemble import info_from_json, info_to_json, names_from_json
from locum.data.formats.tables import (
    LABELS,
    Roles,
    Source,
    features,
    find_roles,
    guess_label,
    is_text,
    list_vectors,
)
from locum.errors import DataError
from locum.io import listed, reading_file
from locum.types import EmbeddingInfo, EmbeddingSet

_VECTORS = ("embedding", "vector", "X")
# What `sample` writes beside the files of a draw.
DRAWN = "_samples.json"
# What `embed` writes beside the files of a folder.
EMBEDDED = "_embedded.json"
_ROW_NUMBERS = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a Parquet file mean, read from its schema."""

    roles: Roles
    vector: str | None
    info: EmbeddingInfo
    names: tuple[str, ...]

    @property
    def worded(self) -> list[str]:
        """Columns that are not numbers of a vector."""
        roles = self.roles
        return [n for n in (roles.label, roles.subject, roles.split, *roles.attributes.values()) if n is not None]

    @property
    def numbers(self) -> list[str]:
        """Columns that the vectors are made of."""
        return list(self.roles.rest) if self.vector is None else [self.vector]

    def vectors(self, table: pa.Table, source: Source) -> Any:
        """The vectors of a table, one row per record."""
        if self.vector is None:
            return features(table, self.roles.rest, source)
        return list_vectors(table.column(self.vector), self.vector, source)


def find_layout(schema: pa.Schema, path: str) -> Layout:
    """The meaning of the columns.

    The vector is the only column of lists of numbers, or the one called embedding, vector or X;
    without such a column each column of numbers is a feature, as in a CSV. Label, subject and
    split columns are named as in a CSV. Beside a column of vectors, further columns of text or
    whole numbers become attributes; columns of other kinds (images, times, fractions) are left out.
    """
    # pandas adds row numbers, which say nothing about a record.
    kept = pa.schema([field for field in schema if not _ROW_NUMBERS.fullmatch(field.name)], schema.metadata)
    if not kept.names:
        raise DataError(f"{path} holds no records: add some.")
    roles = find_roles(kept.names, path)
    vector = _vector_column(kept, path)
    roles = guess_label(roles, kept.names, path) if vector is None else _with_attributes(roles, kept, vector, path)
    meta = schema.metadata or {}
    info = info_from_json(_decoded(meta.get(b"info")), path)
    return Layout(roles, vector, info, names_from_json(_decoded(meta.get(b"class_names")), path))


def check_same(path: str, schemas: Sequence[pa.Schema]) -> None:
    """Refuse files that do not belong together."""
    if any(not schema.equals(schemas[0], check_metadata=True) for schema in schemas[1:]):
        raise DataError(
            f"{path} holds Parquet files with different columns, classes or sources: give files that belong together."
        )


def check_complete(path: str, rows: int) -> None:
    """Refuse what `sample` or `embed` did not finish, or what lost a file: nobody would notice what is missing."""
    folder = Path(path)
    _check_embedded(folder, rows)
    try:
        expected = json.loads((folder / DRAWN).read_bytes())["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if rows != expected:
        raise DataError(
            f"{folder} holds {rows} of {expected} vectors of a draw: run `locum sample` again to complete it."
        )


def _check_embedded(folder: Path, rows: int) -> None:
    try:
        note = json.loads((folder / EMBEDDED).read_bytes())
        files, finished = int(note["files"]), [int(entry["rows"]) for entry in note["shards"].values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if len(finished) != files:
        raise DataError(
            f"{folder} holds {len(finished)} of {files} files of vectors: run `locum embed` again to complete it."
        )
    if rows != sum(finished):
        raise DataError(
            f"{folder} holds {rows} of {sum(finished)} vectors: run `locum embed` again to restore what is missing."
        )


def write_parquet(stream: BinaryIO, data: EmbeddingSet) -> None:
    """Write `data` without loss: `embedding`, `label` as text, `subject`, `attr_...`."""
    write_parquet_stream(stream, [data])


def write_parquet_stream(stream: BinaryIO, pieces: Iterable[EmbeddingSet], split: str | None = None) -> int:
    """Write pieces of one data set to a Parquet file, one row group each, and return how many rows there are.

    Parameters
    ----------
    stream
        Where to write.
    pieces
        One or more sets with the same columns, classes and source; only one is held at a time.
    split
        "train", "val" or "test", if all rows belong to one and the file should say so. None: there is no such column.

    Returns
    -------
    int
        The number of rows.

    Examples
    --------
    >>> from locum.data import load_sample, read_embeddings, write_parquet_stream
    >>> tumors = load_sample("breast-cancer")
    >>> with open("pieces.parquet", "wb") as stream:
    ...     write_parquet_stream(stream, (tumors.take(range(i, i + 100)) for i in (0, 100)))
    200
    >>> len(read_embeddings("pieces.parquet"))
    200
    """
    from pyarrow.parquet import ParquetWriter

    writer, rows = None, 0
    for piece in pieces:
        table = _table(piece, split)
        if writer is None:
            # Vectors hardly ever repeat a number: a dictionary of them would be longer than they are.
            writer = ParquetWriter(
                stream, table.schema, use_dictionary=[n for n in table.column_names if n != "embedding"]
            )
        writer.write_table(table, row_group_size=len(piece))
        rows += len(piece)
    if writer is None:
        raise DataError("A Parquet file needs one piece of data or more; got none.")
    writer.close()
    return rows


def _table(data: EmbeddingSet, split: str | None = None) -> pa.Table:
    columns: dict[str, Any] = {
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(data.X.ravel()), data.dim),
        "label": pa.array(data.info.class_names, pa.string()).take(pa.array(data.y)),
    }
    if split is not None:
        columns["split"] = pa.array([split] * len(data), pa.string())
    if data.subject is not None:
        columns["subject"] = _writable(data.subject)
    columns.update({ATTRIBUTE + k: _writable(v) for k, v in data.attributes.items()})
    meta = {"class_names": json.dumps(data.info.class_names), "info": info_to_json(data.info)}
    return pa.table(columns).replace_schema_metadata(meta)


def _writable(column: Any) -> Any:
    text = column.dtype.kind in "US"
    return pa.array(column.astype(np.str_).tolist(), pa.string()) if text else pa.array(column)


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode("utf-8", errors="replace")


def _holds_vectors(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists) and bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def column_names(path: str) -> tuple[str, ...]:
    """Columns of a file with a column per feature; empty if a column holds whole vectors."""
    import pyarrow.parquet as pq

    with reading_file(path, "Parquet"):
        schema = pq.read_schema(path)
    return () if _vector_column(schema, path) else tuple(schema.names)


def _vector_column(schema: pa.Schema, path: str) -> str | None:
    lists: list[str] = [f.name for f in schema if _holds_vectors(f.type)]
    if len(lists) < 2:
        return lists[0] if lists else None
    named = [n for n in lists if n in _VECTORS]
    if len(named) != 1:
        raise DataError(f"{path} has several columns of vectors ({', '.join(lists)}): call one `embedding`.")
    return named[0]


def _with_attributes(roles: Roles, schema: pa.Schema, vector: str, path: str) -> Roles:
    """Further columns of text or whole numbers as attributes beside a column of vectors."""
    if roles.label is None or roles.label == vector:
        raise DataError(f"{path} has vectors but no labels: add a column called {listed(LABELS)}.")
    attributes = dict(roles.attributes)
    for name in roles.rest:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if name == vector or not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            continue
        if name in attributes:
            raise DataError(f"{path} has both `{name}` and `{ATTRIBUTE}{name}`: rename one.")
        attributes[name] = name
    return replace(roles, attributes=attributes, rest=())
