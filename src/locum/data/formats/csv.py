"""CSV tables: columns of numbers and a column of classes."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from locum.data.formats.arrays import ATTRIBUTE
from locum.data.formats.assemble import assemble
from locum.data.formats.tables import (
    Roles,
    Source,
    as_whole,
    features,
    find_roles,
    guess_label,
    is_text,
    plain_column,
    raw_splits,
)
from locum.errors import DataError
from locum.io import reading_file
from locum.types import EmbeddingInfo, EmbeddingSet

KIND = "a table in UTF-8 text with commas"
# A row of many thousand numbers must fit in one block.
_BLOCK = 1 << 24
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
# A whole number as tables with gaps write it.
_WITH_ZEROS = re.compile(r"^(-?\d+)\.0+$")
_NO_NUMBER = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to double")
_FRACTION = re.compile(r"[-+]?\d*\.\d*([eE][-+]?\d+)?")


def read_csv(path: str) -> dict[str, EmbeddingSet]:
    """All splits of a CSV table with a header row.

    The label column is called label, y, target or class, or is the last one. `subject` (or
    patient, patient_id) says who a record belongs to, `split` says train, val or test, columns
    called `attr_...` become attributes, and every other column must hold numbers: the vector.
    Surrounding blanks are stripped. A column of labels or attributes that holds whole numbers only is read as
    numbers, so 10 sorts after 9; "007" stays text. Subjects are text, and 7.0 is 7.
    """
    names = read_header(path)
    roles = guess_label(find_roles(names, path), names, path)
    table = _table(path, names, roles)
    if table.num_rows == 0:
        raise DataError(f"{path} has a header but no records: add rows.")
    source = Source(path, lambda i: f"row {i + 2} (the header is row 1)")
    X = features(table, roles.rest, source)
    columns = {name: _column(table, name, roles, source) for name in worded(roles)}
    return assemble(raw_splits(X, columns, roles, source), path, EmbeddingInfo())


def write_csv(stream: BinaryIO, data: EmbeddingSet) -> None:
    """Vectors as x0, x1, ..., then label, subject and `attr_...`.

    A CSV cannot hold everything: the backbone, the order of the classes (they come back sorted) and
    classes without records are lost, and text that looks like whole numbers comes back as numbers.
    Use another format to keep them.
    """
    from pyarrow.csv import write_csv as write

    columns: dict[str, Any] = {f"x{j}": data.X[:, j] for j in range(data.dim)}
    columns["label"] = data.labels.tolist()
    if data.subject is not None:
        columns["subject"] = _writable(data.subject)
    columns.update({ATTRIBUTE + k: _writable(v) for k, v in data.attributes.items()})
    write(pa.table(columns), stream)


def _writable(column: npt.NDArray[Any]) -> Any:
    return column.astype(np.str_).tolist() if column.dtype.kind in "US" else column


def read_header(path: str) -> list[str]:
    opener = gzip.open if path.lower().endswith(".gz") else open
    with reading_file(path, KIND), opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        names = [cell.strip() for cell in next(csv.reader(file), [])]
    if len(names) < 2:
        raise DataError(f"{path} has fewer than two columns: separate columns by commas, and name them in row 1.")
    # Entries are not repeated in errors: without a header they belong to a record.
    numbers = [n for n in names if _WHOLE.fullmatch(n) or (n != "." and _FRACTION.fullmatch(n))]
    running = [str(i) for i in range(len(numbers))], [str(i + 1) for i in range(len(numbers))]
    if len(numbers) == len(names) or numbers not in running:
        raise DataError(f"The first row of {path} must name the columns; it holds numbers. Add a header row.")
    if "" in names:
        raise DataError(
            f"Column {names.index('') + 1} of {path} has no name: name it, or leave it out if it only counts rows "
            f"(pandas: to_csv(index=False))."
        )
    return names


def worded(roles: Roles) -> list[str]:
    """Columns to read as text, so that 007 keeps its zeros."""
    return [n for n in (roles.label, roles.subject, roles.split, *roles.attributes.values()) if n is not None]


def _table(path: str, names: Sequence[str], roles: Roles) -> pa.Table:
    from pyarrow import csv as arrow

    options, bad = _options(names, {n: pa.string() for n in worded(roles)})
    with reading_file(path, KIND), _explained(path, names, bad):
        return arrow.read_csv(path, **options)


def text_table(path: str, names: Sequence[str]) -> pa.Table:
    """All columns as text, with nothing but empty entries missing."""
    from pyarrow import csv as arrow

    options, bad = _options(names, dict.fromkeys(names, pa.string()))
    with reading_file(path, KIND), _explained(path, names, bad):
        return arrow.read_csv(path, **options)


def table_pieces(
    path: str, names: Sequence[str], roles: Roles, *, numbers: bool = True
) -> Iterator[tuple[int, pa.Table]]:
    """How many rows came before, and the rows, of each block of a table; without `numbers` the words alone."""
    from pyarrow import csv as arrow

    options, bad = _options(names, {n: pa.string() for n in worded(roles)})
    wanted = {n: pa.float64() for n in roles.rest} if numbers else {}
    options["convert_options"].column_types = {**options["convert_options"].column_types, **wanted}
    options["convert_options"].include_columns = [*worded(roles), *wanted]
    with reading_file(path, KIND), _explained(path, names, bad):
        reader = arrow.open_csv(path, **options)
    start = 0
    with reader:
        while True:
            with reading_file(path, KIND), _explained(path, names, bad):
                batch = next(reader, None)
            if batch is None:
                return
            if batch.num_rows:
                yield start, pa.Table.from_batches([batch])
            start += batch.num_rows


def _options(names: Sequence[str], types: Mapping[str, pa.DataType]) -> tuple[dict[str, Any], list[Any]]:
    """Options of the parser, and a list that gets the first row that it cannot read."""
    from pyarrow import csv as arrow

    bad: list[Any] = []

    def keep(row: Any) -> str:
        bad.append(row)
        return "error"

    return {
        # One thread: otherwise rows are not counted, and an error may leave a reader thread behind.
        "read_options": arrow.ReadOptions(
            column_names=list(names), skip_rows=1, block_size=_BLOCK, use_threads=False
        ),
        "parse_options": arrow.ParseOptions(newlines_in_values=True, invalid_row_handler=keep),
        "convert_options": arrow.ConvertOptions(
            column_types=dict(types), strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    }, bad


@contextmanager
def _explained(path: str, names: Sequence[str], bad: Sequence[Any]) -> Iterator[None]:
    """Say which row or column cannot be read; no entry is repeated."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if bad:
            row = bad[0]
            raise DataError(
                f"Row {row.number} of {path} has {row.actual_columns} fields where the header has "
                f"{row.expected_columns}: the file was cut off, or a comma is missing or extra."
            ) from None
        found = _NO_NUMBER.search(str(error))
        if found is None:
            raise
        name = names[int(found.group(1))]
        raise DataError(
            f"Column `{name}` of {path} holds text, not numbers: write it as numbers, or rename it to "
            f"`{ATTRIBUTE}{name}` to keep it as an attribute."
        ) from None


def _column(table: pa.Table, name: str, roles: Roles, source: Source) -> npt.NDArray[Any]:
    text = column_text(table, name, roles, source)
    return text if name == roles.subject else tidy(text, truth=name in roles.attributes.values())


def column_text(table: pa.Table, name: str, roles: Roles, source: Source) -> npt.NDArray[Any]:
    """The entries of a column of words, without blanks around them."""
    column = table.column(name)
    if is_text(column.type):
        column = pc.utf8_trim_whitespace(column)
        if name not in roles.attributes.values():
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    text = plain_column(column, name, source)
    if name == roles.subject:
        # Each entry by itself: another type for all because of one entry would make other subjects of everybody.
        return np.array([_WITH_ZEROS.sub(r"\1", entry) for entry in text.tolist()])
    return text


def tidy(text: npt.NDArray[Any], *, truth: bool) -> npt.NDArray[Any]:
    """Numbers where every entry is one; otherwise the text itself."""
    found = np.unique(text).tolist()
    if all(_WHOLE.fullmatch(v) for v in found):
        return text.astype(np.int64)
    if all(_WHOLE.fullmatch(v) or (v != "." and _FRACTION.fullmatch(v)) for v in found):
        return as_whole(text.astype(np.float64))
    if truth and set(found) <= {"true", "false"}:
        return np.asarray(text == "true")
    return text
