"""Which types of pandas columns are handled, by names from which they can be restored."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

__all__ = ["can_miss", "date_parts", "dtype_name", "held_types", "is_date", "is_fraction", "is_whole", "limits"]

_WHOLE = re.compile(r"u?int(8|16|32|64)|U?Int(8|16|32|64)")
_FRACTION = re.compile(r"float(16|32|64)|Float(32|64)")
_DATE = re.compile(r"datetime64\[(s|ms|us|ns)(?:, ([^\]]{1,60}))?\]")
_TEXT = re.compile(r"str|string\[(python|pyarrow)\]")
_FULL = re.compile(r"u?int\d+|bool")


def dtype_name(dtype: Any) -> str:
    """The name of a pandas dtype that can be restored from it, or "" where columns of that kind are not handled."""
    import pandas as pd

    if isinstance(dtype, pd.StringDtype):
        return f"string[{dtype.storage}]" if dtype.na_value is pd.NA else "str"
    # Of numpy, "int64" is the name for either byte order.
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype)
    known = name == "category" or is_whole(name) or is_fraction(name) or is_date(name) or held_types(name)
    return name if known else ""


def is_whole(name: str) -> bool:
    """Whole numbers."""
    return _WHOLE.fullmatch(name) is not None


def is_fraction(name: str) -> bool:
    """Numbers with a point."""
    return _FRACTION.fullmatch(name) is not None


def is_date(name: str) -> bool:
    """Times, with a time zone that exists or without one."""
    import pandas as pd

    if not _DATE.fullmatch(name):
        return False
    try:
        return str(pd.api.types.pandas_dtype(name)) == name
    except Exception:  # a made-up time zone can fail anywhere
        return False


def date_parts(name: str) -> tuple[str, str]:
    """Unit and time zone ("" for none) of a type of times."""
    found = _DATE.fullmatch(name)
    return (found[1], found[2] or "") if found else ("", "")


def can_miss(name: str) -> bool:
    """If a column of that type has room for a missing value."""
    return not _FULL.fullmatch(name)


def held_types(name: str) -> set[type]:
    """Python's types of what a column of categories can hold; none where it cannot be one."""
    if _TEXT.fullmatch(name):
        return {str}
    if is_whole(name):
        return {int}
    if is_fraction(name):
        return {float}
    if name in ("bool", "boolean"):
        return {bool}
    return {str, bool, int, float} if name == "object" else set()


def limits(name: str) -> tuple[int | float, int | float]:
    """Least and greatest number of a type; of times in their unit. All whole numbers must fit in an int64."""
    if is_whole(name):
        whole = np.iinfo(name.lower())
        return int(whole.min), min(int(whole.max), 2**63 - 1)
    if is_fraction(name):
        fraction = np.finfo(name.lower())
        return float(fraction.min), float(fraction.max)
    # The least int64 means "no time".
    return 1 - 2**63, 2**63 - 1
