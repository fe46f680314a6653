"""CSV tables as they are kept: with gaps, columns of text, and a column that says where a record comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from locum.data.formats.arrays import ATTRIBUTE
from locum.data.formats.assemble import assemble
from locum.data.formats.csv import column_text, read_header, text_table, tidy, worded
from locum.data.formats.tables import LABELS, Roles, Source, find_roles, guess_label, raw_splits
from locum.data.reference import Reference
from locum.errors import DataError
from locum.types import EmbeddingInfo, EmbeddingSet

Ranges = Mapping[str, tuple[float, float]]
# Besides an empty entry and what Arrow takes for one; "?" is common in the UCI repository.
_GAPS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
# A column with more different texts holds names or remarks, not categories.
_MOST_TEXTS = 50


@dataclass(frozen=True, slots=True, eq=False)
class MixedTable:
    r"""The records of a table as numbers, and the range of each feature.

    Parameters
    ----------
    splits
        The records by split, or all of them as "all".
    ranges
        Smallest and largest value by feature, in the order of the vectors: those that were declared, or else those of
        the records, which are private.
    declared
        Whether the ranges were declared.
    gaps
        How many missing values were filled with the middle of their range.
    texts
        Columns of text, each of which became one feature per value.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_table
    >>> _ = Path("table.csv").write_text("age,blood,ill\n40,A,1\n60,B,0\n,A,1\n")
    >>> table = read_table("table.csv")
    >>> table.splits["all"].X.tolist()
    [[40.0, 1.0, 0.0], [60.0, 0.0, 1.0], [50.0, 1.0, 0.0]]
    >>> table.ranges["age"], table.gaps, table.texts
    ((40.0, 60.0), 1, ('blood',))
    """

    splits: dict[str, EmbeddingSet]
    ranges: dict[str, tuple[float, float]]
    declared: bool
    gaps: int
    texts: tuple[str, ...]

    def reference(self) -> Reference:
        """Statistics from the ranges, public if those are; a feature that never changes gets the width 1."""
        low, high = np.array(list(self.ranges.values())).T
        flat = low == high
        source = "declared ranges" if self.declared else "ranges of the records, which are private"
        return Reference.from_ranges(low - flat / 2, high + flat / 2, source=f"{source}, {len(low)} features")


def read_table(path: str, *, attributes: Sequence[str] = (), ranges: Ranges | None = None) -> MixedTable:
    r"""Read a CSV table of numbers and text, with gaps.

    Columns have the same meaning as in other CSV files: the label is called label, y, target or class, or is the last
    column. A missing number becomes the middle of its range, which is 0 once vectors are whitened by the ranges. A
    column of text becomes one feature per value, unless `ranges` are declared: then all features must be numbers.

    Parameters
    ----------
    path
        A .csv or .csv.gz file with a header row.
    attributes
        Columns to keep as attributes, besides those called `attr_...`.
    ranges
        The public range of each feature; None: the smallest and largest value of the records.

    Returns
    -------
    MixedTable
        The records, as private as the file, and the ranges.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_table
    >>> _ = Path("heart.csv").write_text("site,age,ill\nrome,40,1\noslo,,0\n")
    >>> table = read_table("heart.csv", attributes=["site"], ranges={"age": (18, 98)})
    >>> table.splits["all"].attributes["site"].tolist(), table.splits["all"].X.tolist()
    (['rome', 'oslo'], [[40.0], [58.0]])
    """
    names = read_header(path)
    roles = _with_attributes(guess_label(find_roles(names, path), names, path), attributes, names, path)
    table = text_table(path, names)
    if table.num_rows == 0:
        raise DataError(f"{path} has a header but no records: add rows.")
    if ranges is not None and (more := [name for name in ranges if name not in roles.rest]):
        raise DataError(f"There is a range for `{more[0]}`, which is not a feature of {path}: leave it out.")
    source = Source(path, lambda i: f"row {i + 2} (the header is row 1)")
    _check_label(table, roles, source)
    columns: list[npt.NDArray[np.float64]] = []
    found: dict[str, tuple[float, float]] = {}
    gaps, texts = 0, []
    for name in roles.rest:
        entries = _entries(table, name)
        values = _numbers(entries)
        if values is not None:
            found[name] = _range_of(name, values, ranges, path)
            missing = np.isnan(values)
            gaps += int(missing.sum())
            columns.append(np.where(missing, sum(found[name]) / 2, values))
            continue
        if ranges is not None:
            raise DataError(
                f"Column `{name}` of {path} holds text, and with declared ranges all features are numbers: write it "
                f"as numbers, or rename it to `{ATTRIBUTE}{name}` to keep it as an attribute."
            )
        texts.append(name)
        for value in _texts(entries, name, path):
            found[f"{name}={value}"] = (0.0, 1.0)
            columns.append(pc.fill_null(pc.equal(entries, value), False).to_numpy().astype(np.float64))
    if not columns:
        raise DataError(f"{path} has labels but no features: add columns of numbers.")
    with np.errstate(over="ignore"):  # EmbeddingSet refuses what is too large for float32.
        X = np.stack(columns, axis=1).astype(np.float32)
    words = {name: _words(table, name, roles, source) for name in worded(roles)}
    splits = assemble(raw_splits(X, words, roles, source), path, EmbeddingInfo())
    return MixedTable(splits, found, ranges is not None, gaps, tuple(texts))


def _with_attributes(roles: Roles, wanted: Sequence[str], names: Sequence[str], path: str) -> Roles:
    for name in wanted:
        if name in roles.attributes:
            continue
        if name not in names:
            known = ", ".join([*names[:20], *(["..."] if len(names) > 20 else [])])
            raise DataError(f"{path} has no column `{name}`: name one that it has ({known}).")
        if name not in roles.rest:
            meaning = "label" if name == roles.label else "subject" if name == roles.subject else "split"
            raise DataError(f"Column `{name}` of {path} is the {meaning}: name another column as the attribute.")
        rest = tuple(other for other in roles.rest if other != name)
        roles = replace(roles, attributes={**roles.attributes, name: name}, rest=rest)
    return roles


def _check_label(table: pa.Table, roles: Roles, source: Source) -> None:
    assert roles.label is not None
    missing = _entries(table, roles.label).is_null().to_numpy()
    if missing.any():
        named = roles.label.lower() in LABELS
        taken = "the label," if named else "the last column, which is taken for the label,"
        cure = "fill it, or drop the record" if named else "fill it, or rename the column of classes to `label`"
        raise DataError(
            f"`{roles.label}`, {taken} lacks a value in {source.where(int(np.argmax(missing)))} of {source.path}: "
            f"{cure}."
        )


def _entries(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Text without blanks around it; null where there is no value."""
    column = pc.utf8_trim_whitespace(table.column(name))
    return pc.if_else(pc.is_in(column, value_set=pa.array(_GAPS)), pa.scalar(None, pa.string()), column)


def _numbers(entries: pa.ChunkedArray) -> npt.NDArray[np.float64] | None:
    """The entries as numbers, NaN where one is missing; None if some are no numbers."""
    try:
        return np.asarray(pc.cast(entries, pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowInvalid:
        return None


def _range_of(name: str, values: npt.NDArray[np.float64], ranges: Ranges | None, path: str) -> tuple[float, float]:
    if ranges is not None:
        if name not in ranges:
            raise DataError(
                f"There is no range for `{name}`, a feature of {path}: add a line for it, or rename the column to "
                f"`{ATTRIBUTE}{name}` to keep it as an attribute."
            )
        return ranges[name]
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def _texts(entries: pa.ChunkedArray, name: str, path: str) -> list[str]:
    values = sorted(pc.unique(entries.drop_null()).to_pylist())
    if len(values) > _MOST_TEXTS:
        raise DataError(
            f"Column `{name}` of {path} holds more than {_MOST_TEXTS} different texts, so it is no category: write "
            f"it as numbers, rename it to `{ATTRIBUTE}{name}`, or leave it out."
        )
    return values


def _words(table: pa.Table, name: str, roles: Roles, source: Source) -> npt.NDArray[Any]:
    text = column_text(table, name, roles, source)
    return text if name == roles.subject else tidy(text, truth=name in roles.attributes.values())
