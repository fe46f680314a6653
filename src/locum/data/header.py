"""What the header of a table says about its columns; no record is read."""

from __future__ import annotations

import os
from pathlib import Path

from locum.data.formats.tables import LABELS, find_roles
from locum.io import is_remote, parquet_files, split_path

#: Names of the column of classes, in the order in which they are looked for.
LABEL_COLUMNS = LABELS


def feature_columns(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The columns that a table is read as: of a CSV, or of Parquet without a column of vectors.

    Parameters
    ----------
    path
        A file, with or without `#split`, or a folder of Parquet files.

    Returns
    -------
    tuple of str
        Without classes, subjects, splits and attributes. Empty for everything else: other files, folders of images,
        and data that are not on this machine. A table of image files is a table here; see `holds_images`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import feature_columns
    >>> written = Path("ages.csv").write_text("age,height,label\\n31,1.7,a\\n")
    >>> feature_columns("ages.csv"), feature_columns("scans.npz")
    (('age', 'height'), ())
    """
    names = _names(path)
    if not names:
        return ()
    roles = find_roles(names, os.fspath(path))
    return roles.rest if roles.label is not None else tuple(name for name in roles.rest if name != names[-1])


def guessed_label(path: str | os.PathLike[str]) -> str | None:
    """The last column of a table, where no column has a name that says that it holds the classes.

    Parameters
    ----------
    path
        A file, with or without `#split`, or a folder of Parquet files.

    Returns
    -------
    str or None
        None if a column is named `label`, `y`, `target` or `class`, or the data are no such table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import guessed_label
    >>> written = Path("wards.csv").write_text("age,height,ward\\n31,1.7,3\\n")
    >>> guessed_label("wards.csv")
    'ward'
    """
    names = _names(path)
    return names[-1] if names and find_roles(names, os.fspath(path)).label is None else None


def _names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    file = split_path(path)[0]
    if is_remote(file):
        return ()
    if file.lower().endswith((".csv", ".csv.gz")) and Path(file).is_file():
        from locum.data.formats.csv import read_header

        return tuple(read_header(file))
    files = parquet_files(file) or [Path(file)]
    if files[0].suffix.lower() == ".parquet" and files[0].is_file():
        from locum.data.formats.parquet import column_names

        return column_names(str(files[0]))
    return ()
