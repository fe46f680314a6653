"""Tables as pandas DataFrames: CSV and Parquet files, with atomic writes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from locum.data.formats.csv import read_header
from locum.errors import DataError
from locum.io import reading_file, write_atomically

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_CSV = "a table in UTF-8 text with commas"
_READABLE = "readable are .csv and .parquet"
# A row of many thousand cells must fit in one block.
_BLOCK = 1 << 24
_WHOLE = r"0|-?[1-9]\d{0,17}"
_POINT = r"[-+]?(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+)([eE][-+]?\d+)?"
_TRUTH = r"(?i:true|false)"
_TIME = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?"


def read_frame(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table in a .csv with a header row, or in a .parquet file; rows are numbered from 0.

    In a CSV, a column of whole numbers, decimal numbers, truth values (true, false) or times (2020-01-31,
    2020-01-31 12:00:00) is read as such if all its entries are; "007" stays text. Surrounding blanks are stripped.
    Cells that are empty or say NA, NaN, null and the like are missing; whole numbers and truth values with missing
    cells keep their type (Int64, boolean). Parquet keeps the types of its columns; a named index becomes columns, any
    other index is dropped.

    Parameters
    ----------
    path
        A .csv or .parquet file.

    Returns
    -------
    pandas.DataFrame
        The table, with at least one row.

    Raises
    ------
    DataError
        In one sentence. It names the path as given, and quotes no cell.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_frame
    >>> _ = Path("people.csv").write_text("age,code\\n20,007\\n30,012\\n")
    >>> read_frame("people.csv").to_dict("list")
    {'age': [20, 30], 'code': ['007', '012']}
    """
    return _read(path, _READERS)


def read_text_frame(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The same, but every column of a .csv stays text: what is in a cell depends on that cell alone.

    `read_frame` reads a column as numbers only if all its cells are numbers, so one record decides how the values of
    all others are read. A guarantee about one record needs this function.

    Parameters
    ----------
    path
        A .csv or .parquet file; Parquet keeps the types of its columns, also where values are missing.

    Returns
    -------
    pandas.DataFrame
        The table, with at least one row; empty cells, NA and the like are missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_text_frame
    >>> _ = Path("texts.csv").write_text("age,code\\n20,007\\n30,012\\n")
    >>> read_text_frame("texts.csv").to_dict("list")
    {'age': ['20', '30'], 'code': ['007', '012']}
    """
    return _read(path, {".csv": _read_csv_text, ".parquet": partial(_read_parquet, gaps=True)})


def write_frame(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table without its index, as .csv or .parquet; atomic, and readable by its owner only.

    Parquet keeps the types of the columns. A CSV keeps text: `read_frame` guesses the types, and reads text that is
    empty or says NA as a missing value.

    Parameters
    ----------
    frame
        The table.
    path
        The file; its suffix chooses the format. It is replaced if it exists.

    Raises
    ------
    DataError
        If the suffix is not known, or the table or the file cannot be written. It quotes no cell.

    Examples
    --------
    >>> import pandas as pd
    >>> from locum.data import read_frame, write_frame
    >>> write_frame(pd.DataFrame({"age": [20, 30], "job": ["cook", "nurse"]}), "jobs.parquet")
    >>> read_frame("jobs.parquet")["job"].tolist()
    ['cook', 'nurse']
    """
    name = os.fspath(path)
    writer = _WRITERS.get(Path(name).suffix.lower())
    if writer is None:
        raise DataError(f"{name} has no suffix that can be written: use .csv or .parquet.")
    if not frame.columns.is_unique:
        raise DataError(f"{name} cannot be written: several columns have the same name. Rename them.")
    write_atomically(name, lambda stream: writer(frame, stream, name))


def _read(path: str | os.PathLike[str], readers: Mapping[str, Callable[[str], pd.DataFrame]]) -> pd.DataFrame:
    name, place = os.fspath(path), Path(path)
    if not place.exists():
        raise DataError(f"There is no file {name}: check the spelling; {_READABLE}.")
    reader = readers.get(place.suffix.lower())
    if reader is None or not place.is_file():
        raise DataError(f"{name} is not a kind of table that can be read: {_READABLE}.")
    if place.stat().st_size == 0:
        raise DataError(f"{name} is empty: export it again; {_READABLE}.")
    frame = reader(name)
    if len(frame) == 0:
        raise DataError(f"{name} holds no records: add some.")
    return frame


def _read_csv(path: str) -> pd.DataFrame:
    import pandas as pd

    table = _csv_cells(path)
    return pd.DataFrame({name: _typed(table.column(name)) for name in table.column_names})


def _read_csv_text(path: str) -> pd.DataFrame:
    import pandas as pd
    import pyarrow.compute as pc

    table = _csv_cells(path)
    return pd.DataFrame({n: pc.utf8_trim_whitespace(table.column(n)).to_pandas() for n in table.column_names})


def _csv_cells(path: str) -> pa.Table:
    """All cells as text."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    names, bad = read_header(path), []
    if len(set(names)) < len(names):
        raise DataError(f"The first row of {path} names a column twice: rename one.")

    def keep(row: Any) -> str:
        bad.append(row)
        return "error"

    # One thread: otherwise rows are not counted, and an error may leave a reader thread behind.
    options = arrow.ReadOptions(column_names=names, skip_rows=1, block_size=_BLOCK, use_threads=False)
    parse = arrow.ParseOptions(newlines_in_values=True, invalid_row_handler=keep)
    convert = arrow.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    with reading_file(path, _CSV):
        try:
            return arrow.read_csv(path, read_options=options, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            if not bad:
                raise
            raise DataError(
                f"Row {bad[0].number} of {path} has {bad[0].actual_columns} fields where the header has "
                f"{bad[0].expected_columns}: the file was cut off, or a comma is missing or extra."
            ) from None


def _typed(column: pa.ChunkedArray) -> pd.Series:
    """Numbers, truth values or times if every cell is one; otherwise the text."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.utf8_trim_whitespace(column)

    def every(*patterns: str) -> bool:
        return bool(pc.all(pc.match_substring_regex(column, f"^({'|'.join(patterns)})$"), min_count=1).as_py())

    gaps = column.null_count > 0
    if every(_WHOLE):
        return column.cast(pa.int64()).to_pandas(types_mapper=lambda _: pd.Int64Dtype() if gaps else None)
    if every(_WHOLE, _POINT):
        return column.cast(pa.float64()).to_pandas()
    if every(_TRUTH):
        return column.cast(pa.bool_()).to_pandas(types_mapper=lambda _: pd.BooleanDtype() if gaps else None)
    text = column.to_pandas()
    if every(_TIME):
        try:
            return pd.to_datetime(text, format="ISO8601")
        except ValueError:
            # February 31 stays text.
            return text
    return text


def _read_parquet(path: str, gaps: bool = False) -> pd.DataFrame:
    """With `gaps`, whole numbers and truth values have a type that does not depend on whether some are missing."""
    from pyarrow.parquet import ParquetFile

    with reading_file(path, "a Parquet file"), ParquetFile(path) as file:
        table = file.read()
        # Arrow trusts the text and offsets of a file unless told to check.
        table.validate(full=True)
        frame = table.to_pandas(date_as_object=False, types_mapper=_with_gaps().get if gaps else None)
        named = [level for level in frame.index.names if level is not None]
        frame = frame.reset_index(level=named).reset_index(drop=True) if named else frame.reset_index(drop=True)
    if len(frame.columns) == 0 or not frame.columns.is_unique:
        raise DataError(f"{path} must have columns, all with different names: export it again.")
    return frame


def _with_gaps() -> dict[pa.DataType, Any]:
    """Types of pandas that can hold missing values, by those of Arrow: otherwise one gap makes 1 into 1.0 for all."""
    import pandas as pd
    import pyarrow as pa

    return {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(), pa.uint64(): pd.UInt64Dtype(),
    }  # fmt: skip


def _write_csv(frame: pd.DataFrame, stream: BinaryIO, path: str) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    try:
        frame.to_csv(text, index=False, lineterminator="\n")
        text.flush()
    except UnicodeError:
        raise DataError(f"{path} cannot be written: the table holds text that is not valid.") from None
    finally:
        # The caller closes the stream.
        text.detach()


def _write_parquet(frame: pd.DataFrame, stream: BinaryIO, path: str) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, UnicodeError, ValueError):
        # Arrow's message quotes a cell.
        raise DataError(
            f"{path} cannot be written: a column mixes kinds of values. Convert it, or use .csv."
        ) from None
    write_table(table, stream)


_READERS: dict[str, Callable[[str], pd.DataFrame]] = {".csv": _read_csv, ".parquet": _read_parquet}
_WRITERS: dict[str, Callable[[pd.DataFrame, BinaryIO, str], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
