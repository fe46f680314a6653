"""Arrow tables to columns by split, for CSV and Parquet.

`find_roles` and `guess_label` read the meaning of columns from their names; the rest converts columns to arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from locum.data.formats.arrays import ATTRIBUTE
from locum.data.formats.assemble import ALL, SPLITS, RawSplit
from locum.errors import DataError
from locum.io import listed
from locum.types import SUBJECT_COLUMNS, seems_subject

Array = npt.NDArray[Any]
LABELS = ("label", "y", "target", "class")
_NUMBERED = re.compile(r"^(\D*)\d+$")


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns by meaning; `rest` holds those whose names say nothing."""

    label: str | None
    subject: str | None
    split: str | None
    attributes: dict[str, str]
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """How errors name the file and a record of it."""

    path: str
    where: Callable[[int], str]


def find_roles(names: Sequence[str], path: str) -> Roles:
    """Label, subject, split and `attr_...` columns; case does not matter."""
    twice = sorted({n for n in names if list(names).count(n) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{path} has two columns called `{twice[0]}`: rename one.")
    attributes = {n.removeprefix(ATTRIBUTE): n for n in names if n.startswith(ATTRIBUTE) and len(n) > len(ATTRIBUTE)}
    free = [n for n in names if n not in attributes.values()]
    label = _only(free, LABELS, "labels", path)
    subject = _only(free, SUBJECT_COLUMNS, "subjects", path)
    split = _only(free, ("split",), "splits", path)
    rest = tuple(n for n in free if n not in (label, subject, split))
    for name in rest:
        if seems_subject(name):
            raise DataError(
                f"Column `{name}` of {path} seems to say whom a record belongs to: rename it to `subject`, "
                f"or to `{ATTRIBUTE}{name}` if it does not."
            )
    return Roles(label, subject, split, attributes, rest)


def guess_label(roles: Roles, names: Sequence[str], path: str) -> Roles:
    """The same roles, with the last column as label if no name says which it is.

    Refused if the last column is clearly something else: one of many numbered features, or a
    subject, a split or an attribute.
    """
    if roles.label is not None:
        return roles
    last = names[-1]
    number = _NUMBERED.match(last)
    series = number is not None and sum(_series(n) == number.group(1) for n in roles.rest) > 1
    if last not in roles.rest or series or len(roles.rest) < 2:
        raise DataError(f"{path} has vectors but no labels: name the column of classes `label`.")
    return Roles(last, roles.subject, roles.split, roles.attributes, roles.rest[:-1])


def raw_splits(X: Array, columns: dict[str, Array], roles: Roles, source: Source) -> dict[str, RawSplit]:
    """Columns by the values of the split column, or one split if there is none."""
    assert roles.label is not None, "callers settle the label first"
    if roles.label.lower() not in LABELS and columns[roles.label].dtype.kind == "f":
        raise DataError(
            f"{source.path} has no labels: no column is called {listed(LABELS)}, "
            f"and the last one, `{roles.label}`, holds fractions. Name the column of classes `label`."
        )
    parts: dict[str, Array | slice] = {ALL: slice(None)}
    if roles.split is not None:
        names = columns[roles.split].astype(np.str_)
        unknown = ~np.isin(names, SPLITS)
        if unknown.any():
            raise DataError(
                f"Column `{roles.split}` of {source.path} must say train, val or test; "
                f"{source.where(int(np.argmax(unknown)))} says something else."
            )
        parts = {s: names == s for s in SPLITS if (names == s).any()}
    return {
        name: RawSplit(
            X=X[rows],
            labels=columns[roles.label][rows],
            subject=None if roles.subject is None else columns[roles.subject][rows],
            attributes={k: columns[c][rows] for k, c in roles.attributes.items()},
        )
        for name, rows in parts.items()
    }


def features(table: pa.Table, names: Sequence[str], source: Source) -> npt.NDArray[np.float32]:
    """The named columns of numbers as one float32 matrix."""
    if not names:
        raise DataError(f"{source.path} has labels but no vectors: add columns of numbers.")
    X = np.empty((table.num_rows, len(names)), dtype=np.float32)
    for j, name in enumerate(names):
        column = table.column(name)
        _no_gaps(column, name, source)
        if not (_is_number(column.type) or pa.types.is_boolean(column.type)):
            raise DataError(
                f"Column `{name}` of {source.path} holds {_called(column.type)}, not numbers: write it as numbers, "
                f"or rename it to `{ATTRIBUTE}{name}` to keep it as an attribute."
            )
        with np.errstate(over="ignore"):  # Too large for float32 becomes infinity, which EmbeddingSet refuses.
            # By way of float64, whatever the type: one record with a fraction must not change how others are rounded.
            X[:, j] = column.to_numpy().astype(np.float64, copy=False)
    return X


def list_vectors(column: pa.ChunkedArray, name: str, source: Source) -> Array:
    """The vectors in a column of lists, one row per record."""
    _no_gaps(column, name, source)
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # Older Arrow keeps the chunks of an empty column.
        raise DataError(f"{source.path} holds no records: add some.")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    wrong = lengths != lengths[0]
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(
            f"Vectors in `{name}` of {source.path} must have one length; the first has {int(lengths[0])} numbers "
            f"and {source.where(i)} has {int(lengths[i])}."
        )
    values = lists.flatten()
    if values.null_count:
        i = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // int(lengths[0])
        raise DataError(
            f"Column `{name}` of {source.path} lacks a number in {source.where(i)}: fill it in, or drop the record."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(lists), int(lengths[0]))


def plain_column(column: pa.ChunkedArray, name: str, source: Source) -> Array:
    """Labels, subjects or an attribute as text, whole numbers or truth values."""
    _no_gaps(column, name, source)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if is_text(kind):
        return np.asarray(column.to_pylist(), dtype=np.str_)
    if _is_number(kind) or pa.types.is_boolean(kind):
        return as_whole(np.asarray(column.to_numpy()))
    raise DataError(f"Column `{name}` of {source.path} holds {_called(kind)}: write it as text or whole numbers.")


def as_whole(values: Array) -> Array:
    """Int64 for whole numbers stored as floats, which is common for columns that once had gaps."""
    whole = values.dtype.kind == "f" and bool(np.isfinite(values).all()) and bool((values == np.rint(values)).all())
    return values.astype(np.int64) if whole else values


def is_text(kind: pa.DataType) -> bool:
    """True for all text types of Arrow."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _series(name: str) -> str | None:
    found = _NUMBERED.match(name)
    return None if found is None else found.group(1)


def _only(names: Collection[str], wanted: Sequence[str], what: str, path: str) -> str | None:
    found = [n for n in names if n.lower() in wanted]
    if len(found) > 1:
        raise DataError(
            f"Both `{found[0]}` and `{found[1]}` of {path} could hold the {what}: "
            f"rename one, for example to `{ATTRIBUTE}{found[1]}`."
        )
    return found[0] if found else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _called(kind: pa.DataType) -> str:
    if is_text(kind) or pa.types.is_dictionary(kind):
        return "text"
    return "dates or times" if pa.types.is_temporal(kind) else f"values of type {kind}"


def _no_gaps(column: pa.ChunkedArray, name: str, source: Source) -> None:
    if column.null_count:
        i = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(
            f"Column `{name}` of {source.path} lacks a value in {source.where(i)}: fill it in, or drop the record."
        )
