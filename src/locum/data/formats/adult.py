"""The files of UCI Adult: who earns more than 50,000 dollars a year, from the census of 1994."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from locum.errors import DataError
from locum.io import reading_file

if TYPE_CHECKING:
    import pandas as pd


ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_FILES = ("adult.data", "adult.test")


def read_adult(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The complete rows of UCI Adult: six columns of numbers (int64) and nine of text.

    Both files together have 45,222 such rows. Rows with a '?' are dropped; so is the dot after the income in
    `adult.test`.

    Parameters
    ----------
    path
        The folder that holds `adult.data` and `adult.test` (rows come in that order; one of the two is enough), or
        one such file.

    Returns
    -------
    pandas.DataFrame
        One row per person, with the columns as UCI names them.

    Raises
    ------
    DataError
        If a file is missing, damaged or in another format.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_adult
    >>> row = "39, ?, 7, HS-grad, 9, Single, Sales, Husband, White, Male, 0, 0, 40, Peru, <=50K"
    >>> _ = Path("adult.data").write_text(row + "\\n" + row.replace("?", "Private"))
    >>> read_adult("adult.data")[["age", "workclass", "income"]].values.tolist()
    [[39, 'Private', '<=50K']]
    """
    import pandas as pd

    place = Path(path)
    files = [place / name for name in _FILES if (place / name).is_file()] if place.is_dir() else [place]
    if not files:
        raise DataError(f"{os.fspath(path)} holds neither adult.data nor adult.test: give the folder that does.")
    rows = [row for file in files for row in _rows(file)]
    if not rows:
        raise DataError(f"{os.fspath(path)} holds no complete row of UCI Adult: fetch its files again.")
    frame = pd.DataFrame(rows, columns=list(ADULT_COLUMNS))
    return frame.astype(dict.fromkeys(_NUMBERS, "int64"))


def _rows(file: Path) -> list[list[str | int]]:
    """The complete rows of one file."""
    if not file.is_file():
        raise DataError(f"There is no file {file}: give UCI's adult.data or adult.test, or their folder.")
    with reading_file(str(file), "a file of UCI Adult"):
        lines = file.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        # The first line of adult.test is a remark.
        if not line.strip() or line.startswith("|"):
            continue
        cells: list[str | int] = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(ADULT_COLUMNS):
            raise DataError(
                f"Row {number} of {file} has {len(cells)} fields where UCI Adult has {len(ADULT_COLUMNS)}."
            )
        if "?" in cells:
            continue
        for place, name in enumerate(ADULT_COLUMNS):
            if name in _NUMBERS:
                try:
                    cells[place] = int(cells[place])
                except ValueError:
                    raise DataError(f"Row {number} of {file} has no whole number in {name!r}.") from None
        cells[-1] = str(cells[-1]).removesuffix(".")
        found.append(cells)
    return found
