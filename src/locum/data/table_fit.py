"""Table columns: fitted to data, or read back from an untrusted file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from locum.data.table_columns import (
    Category,
    Column,
    Number,
    date_parts,
    dtype_name,
    is_fraction,
    is_whole,
    plain_numbers,
    plain_times,
)
from locum.errors import ConfigError, DataError, FormatError

if TYPE_CHECKING:
    import pandas as pd


_NAMES: dict[type, str] = {Category: "category", Number: "number"}
_FIELDS = {
    "category": ("name", "dtype", "values", "missing", "of", "ordered"),
    "number": ("name", "dtype", "low", "high", "missing", "step"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "dtype", "of"), (str,)),
    **dict.fromkeys(("missing", "ordered"), (bool,)),
    **dict.fromkeys(("low", "high"), (int, float)),
    "values": (list,),
    "step": (int,),
}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def fit_column(
    series: pd.Series, name: str, bounds: tuple[Any, Any] | None, categories: Sequence[Any] | None
) -> Column:
    """Fit one column; `bounds` or `categories` replace what would be learned from its values."""
    dtype = dtype_name(series.dtype)
    if not dtype:
        raise DataError(f"Column {name!r} is {series.dtype}, which cannot be encoded: convert it, or leave it out.")
    number = is_whole(dtype) or is_fraction(dtype) or bool(date_parts(dtype)[0])
    if bounds is not None and not number:
        raise ConfigError(f"`bounds` are for numbers and times; column {name!r} is {series.dtype}.")
    part: Column
    if categories is not None:
        part = _listed(series, name, dtype, categories)
    elif number:
        part = _number(series, name, dtype, bounds)
    else:
        part = _category(series, name, dtype)
    if fault := part.fault():
        setting = "categories" if categories is not None else "bounds" if bounds is not None else ""
        if setting:
            raise ConfigError(f"Column {name!r} cannot be encoded with these `{setting}`: it {fault}.")
        raise DataError(f"Column {name!r} cannot be encoded: it {fault}. Convert it, or leave it out.")
    if categories is not None:
        part.read(series)
    return part


def column_to_dict(part: Column) -> dict[str, Any]:
    """The column as plain JSON."""
    kind = _NAMES[type(part)]
    facts = {name: getattr(part, name) for name in _FIELDS[kind]}
    return {"kind": kind, **{name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}}


def column_from_dict(facts: Any, where: str) -> Column:
    """The column that `column_to_dict` wrote; FormatError, starting with `where`, for anything else."""
    kind = facts.get("kind") if isinstance(facts, dict) else None
    if kind not in ("category", "number"):
        raise FormatError(f"{where} must be of kind 'category' or 'number'.")
    given = {name: value for name, value in facts.items() if name != "kind"}
    if set(given) != set(_FIELDS[kind]):
        raise FormatError(f"{where} must have the fields {', '.join(sorted(_FIELDS[kind]))} and no other.")
    for name, value in given.items():
        # Exact types, because True would pass as an int.
        if type(value) not in _TYPES[name]:
            raise FormatError(f"{where} has a wrong type in {name!r}.")
    part: Column = Number(**given) if kind == "number" else Category(**{**given, "values": tuple(given["values"])})
    if fault := part.fault():
        raise FormatError(f"{where} {fault}.")
    return part


def _category(series: pd.Series, name: str, dtype: str) -> Category:
    missing = bool(series.isna().any())
    if dtype == "category":
        declared = series.cat.categories
        of = dtype_name(declared.dtype)
        return Category(name, dtype, tuple(_plain(declared)), missing, of, bool(series.cat.ordered))
    seen = series.dropna()
    kinds = set(map(type, seen)) if dtype == "object" else set()
    if any(kind.__hash__ is None for kind in kinds) or len(kinds) > 1:
        raise DataError(f"Column {name!r} must hold values of one kind: text, numbers or truth values. Convert it.")
    values = _plain(seen.unique())
    # In order of appearance they would show whose record came first; what cannot be sorted is refused later.
    values = sorted(values) if {*map(type, values)} <= {str, bool, int, float} else values
    return Category(name, dtype, tuple(values), missing)


def _listed(series: pd.Series, name: str, dtype: str, categories: Sequence[Any]) -> Category:
    if dtype == "category" or date_parts(dtype)[0]:
        raise ConfigError(f"`categories` cannot be set for column {name!r}: it is {series.dtype}.")
    values = _plain(v for v in categories if v is not None)
    if is_fraction(dtype):
        values = [_own(v, dtype) if type(v) in (int, float) else v for v in values]
    missing = len(values) < len(categories) or bool(series.isna().any())
    return Category(name, dtype, tuple(values), missing)


def _number(series: pd.Series, name: str, dtype: str, bounds: tuple[Any, Any] | None) -> Number:
    kept, unit = series.dropna(), date_parts(dtype)[0]
    values = plain_times(kept, name, dtype) if unit else plain_numbers(kept, name)
    low, high = (values.min().item(), values.max().item()) if len(values) else (_own(0, dtype),) * 2
    if bounds is not None:
        try:
            low, high = _times(bounds, name, dtype) if unit else bounds
            if not is_fraction(dtype) and not (int(low) == low and int(high) == high):
                raise ValueError
            # Of the column's own dtype, so that rounding cannot exceed them.
            low, high = _own(low, dtype), _own(high, dtype)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(
                f"`bounds` of column {name!r} must be two values of its type, the lower first."
            ) from None
    return Number(name, dtype, low, high, len(kept) < len(series), _step(np.append(values, [low, high]), unit))


def _times(bounds: tuple[Any, Any], name: str, dtype: str) -> list[int]:
    import pandas as pd

    low, high = bounds
    ends = pd.Series([pd.Timestamp(low), pd.Timestamp(high)])
    found: list[int] = plain_times(ends, name, dtype).tolist()
    return found


def _own(bound: Any, dtype: str) -> int | float:
    """A bound as the column itself holds it."""
    return float(np.dtype(dtype.lower()).type(bound)) if is_fraction(dtype) else int(bound)


def _step(times: Any, unit: str) -> int:
    """A day, hour, minute or second, if all times are multiples of it."""
    seconds = [s * _PER_SECOND[unit] for s in (86400, 3600, 60, 1)] if unit else []
    return next((s for s in seconds if not (times % s).any()), 1)


def _plain(values: Any) -> list[Any]:
    """Python values in place of NumPy scalars."""
    return [v.item() if isinstance(v, np.generic) else v for v in values]
