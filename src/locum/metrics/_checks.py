"""Checks shared by the metrics: a table of finite numbers, and labels that match it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]

# Squares of larger values overflow float32, in which the large products are computed.
_LARGEST = 1e15


def table(name: str, X: npt.ArrayLike, *, rows: int = 1) -> FloatArray:
    """`X` as a 2-D float array in its own precision, without a copy if it already is one."""
    a = np.asarray(X)
    if a.dtype.kind not in "fiub":
        raise DataError(f"`{name}` must hold numbers; got an array of {a.dtype}.")
    if a.dtype.kind != "f":
        a = a.astype(np.float64)
    if a.ndim != 2 or a.shape[1] == 0:
        raise DataError(f"`{name}` must be a table of records by features; got shape {a.shape}.")
    if len(a) < rows:
        raise DataError(f"`{name}` needs at least {rows} records; got {len(a)}.")
    # The extremes also reveal NaN and infinity, without an array of the size of `a`.
    low, high = float(a.min()), float(a.max())
    if not (low >= -_LARGEST and high <= _LARGEST):
        raise DataError(
            f"`{name}` must hold finite numbers within ±{_LARGEST:g}; found values from {low:g} to {high:g}. "
            "Drop or repair those records."
        )
    return a


def column(name: str, values: npt.ArrayLike, *, rows: int = 1) -> npt.NDArray[np.float64]:
    """`values` as one column of finite float64."""
    a = np.asarray(values)
    if a.dtype.kind not in "fiub" or a.ndim != 1:
        raise DataError(f"`{name}` must be one column of numbers; got shape {a.shape} of {a.dtype}.")
    if len(a) < rows:
        raise DataError(f"`{name}` needs at least {rows} values; got {len(a)}.")
    if not np.isfinite(a).all():
        raise DataError(f"`{name}` must hold finite numbers; found NaN or infinity. Drop or repair those values.")
    return a.astype(np.float64)


def labels(name: str, y: npt.ArrayLike, n: int) -> npt.NDArray[Any]:
    """`y` as one label per record."""
    a = np.asarray(y)
    if a.shape != (n,):
        raise DataError(f"`{name}` must hold one label per record ({n}); got shape {a.shape}.")
    if a.dtype.kind not in "iubUS":
        raise DataError(f"`{name}` must hold plain text or whole numbers; got {a.dtype}.")
    return a


def same_width(name_a: str, a: FloatArray, name_b: str, b: FloatArray) -> None:
    """Refuse two tables with different numbers of features."""
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"`{name_a}` and `{name_b}` must have equally many features; got {a.shape[1]} and {b.shape[1]}. "
            "Use vectors of one backbone."
        )


def at_least(name: str, value: int, minimum: int) -> None:
    """Refuse a whole-number setting below its minimum."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ConfigError(f"`{name}` must be a whole number of {minimum} or more; got {value!r}.")
