"""Declared ranges of a table: a small CSV file that a person writes."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from locum.errors import DataError

_COLUMNS = ["name", "low", "high"]


def read_ranges(file: Path) -> dict[str, tuple[float, float]]:
    """The public range of each feature, by name, from a CSV with the columns name, low and high.

    Parameters
    ----------
    file
        The file, with one line per feature after the first.

    Returns
    -------
    dict
        Lowest and highest usual value of each feature, in the order of the file.

    Raises
    ------
    DataError
        If the file is no such table, or names a feature twice.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_ranges
    >>> written = Path("ranges.csv").write_text("name,low,high\\nage,18,98\\n")
    >>> read_ranges(Path("ranges.csv"))
    {'age': (18.0, 98.0)}
    """
    if not file.is_file():
        raise DataError(
            f"There is no file {str(file)!r} with ranges: write {','.join(_COLUMNS)}, one line per feature."
        )
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            rows = [[cell.strip() for cell in row] for row in csv.reader(stream) if "".join(row).strip()]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(f"{str(file)!r} cannot be read as a table in UTF-8 text with commas.") from None
    if not rows or rows[0] != _COLUMNS:
        raise DataError(f"{str(file)!r} must begin with the line {','.join(_COLUMNS)}; then one line per feature.")
    if len(rows) < 2:
        raise DataError(f"{str(file)!r} has no features: add one line per feature (name, low, high).")
    ranges: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows[1:], start=2):
        try:
            name, first, second = row
            low, high = float(first), float(second)
        except ValueError:
            raise DataError(
                f"Line {number} of {str(file)!r} must hold a name and two numbers; got {','.join(row)[:80]!r}."
            ) from None
        if not (math.isfinite(high - low) and low < high):
            raise DataError(
                f"Line {number} of {str(file)!r}: {name[:80]!r} goes from {low:g} to {high:g}, and a range goes "
                "from a lower to a higher finite number."
            )
        if name in ranges:
            raise DataError(f"{str(file)!r} has two lines for the feature {name[:80]!r}: leave one out.")
        ranges[name] = (low, high)
    return ranges
