"""One column of a table and its place in a matrix: a block of categories, or a number between two bounds.

Both kinds work in two steps. `read` and `series` convert between a pandas Series and plain arrays; `place` and `draw`
convert between those arrays and columns of the matrix. `TableCodec.snap` uses the second step alone, so it cannot
differ from decoding and encoding again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
Value = str | bool | int | float

# Names of the pandas dtypes that can be encoded.
_WHOLE = re.compile(r"u?int(8|16|32|64)|U?Int(8|16|32|64)")
_FRACTION = re.compile(r"float(16|32|64)|Float(32|64)")
_DATE = re.compile(r"datetime64\[(s|ms|us|ns)(?:, ([^\]]{1,60}))?\]")
_TEXT = re.compile(r"str|string\[(python|pyarrow)\]")
_FULL = re.compile(r"u?int\d+|bool")
# A float beyond this may not fit in an int64.
_FAR = 2.0**62
# Rows of a block that are handled at once.
_PIECE = 4096


def dtype_name(dtype: Any) -> str:
    """A name from which the pandas dtype can be restored, or "" if columns of that dtype are not supported."""
    import pandas as pd

    if isinstance(dtype, pd.StringDtype):
        return f"string[{dtype.storage}]" if dtype.na_value is pd.NA else "str"
    # NumPy uses the name "int64" for either byte order.
    name = dtype.name if isinstance(dtype, np.dtype) else str(dtype)
    known = name == "category" or is_whole(name) or is_fraction(name) or is_date(name) or held_types(name)
    return name if known else ""


def is_whole(name: str) -> bool:
    """Whether the dtype holds whole numbers."""
    return _WHOLE.fullmatch(name) is not None


def is_fraction(name: str) -> bool:
    """Whether the dtype holds floating-point numbers."""
    return _FRACTION.fullmatch(name) is not None


def is_date(name: str) -> bool:
    """Whether the dtype holds times, without a time zone or with one that exists."""
    import pandas as pd

    if not _DATE.fullmatch(name):
        return False
    try:
        return str(pd.api.types.pandas_dtype(name)) == name
    except Exception:  # an invalid time zone can fail anywhere
        return False


def date_parts(name: str) -> tuple[str, str]:
    """Unit and time zone ("" for none) of a type of times."""
    found = _DATE.fullmatch(name)
    return (found[1], found[2] or "") if found else ("", "")


def can_miss(name: str) -> bool:
    """Whether a column of this dtype can hold missing values."""
    return not _FULL.fullmatch(name)


def held_types(name: str) -> set[type]:
    """Python types that a categorical column of this dtype can hold; empty if it cannot be categorical."""
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
    """Smallest and largest number of a dtype, of times in their unit. All whole numbers must fit in an int64."""
    if is_whole(name):
        whole = np.iinfo(name.lower())
        return int(whole.min), min(int(whole.max), 2**63 - 1)
    if is_fraction(name):
        fraction = np.finfo(name.lower())
        return float(fraction.min), float(fraction.max)
    # The smallest int64 means "not a time".
    return 1 - 2**63, 2**63 - 1


def choose(block: Array, rng: np.random.Generator | None) -> Array:
    """One entry of a block per row: the largest, or drawn in proportion to the entries clipped to [0, 1].

    A row without a positive entry takes its largest entry in both cases.
    """
    uniforms = None if rng is None else rng.random(len(block))
    chosen = np.zeros(len(block), dtype=np.intp)
    # Contiguous pieces that fit in the cache: three times as fast as one `argmax` over a wide matrix.
    for start in range(0, len(block), _PIECE):
        rows = slice(start, start + _PIECE)
        piece = np.ascontiguousarray(block[rows])
        chosen[rows] = piece.argmax(axis=1)
        if uniforms is not None:
            heights = piece.clip(0, 1).astype(np.float64).cumsum(axis=1)
            drawn = (heights <= uniforms[rows, None] * heights[:, -1:]).sum(axis=1)
            chosen[rows] = np.where(heights[:, -1] > 0, drawn, chosen[rows])
    return chosen


@dataclass(frozen=True, slots=True)
class Category:
    """A column of categories: one entry per category, and a last one for missing values if `missing`."""

    name: str
    dtype: str
    values: tuple[Value, ...]
    missing: bool = False
    # For dtype "category" only: the dtype of its categories, and whether they are ordered.
    of: str = ""
    ordered: bool = False

    @property
    def width(self) -> int:
        return len(self.values) + self.missing

    @property
    def blocks(self) -> tuple[slice, ...]:
        return (slice(0, self.width),)

    def fault(self) -> str:
        """What is wrong with this column, or ""."""
        base = self.of if self.dtype == "category" else self.dtype
        kinds = {type(v) for v in self.values}
        # pandas has no categories of float16.
        if not held_types(base) or self.of == "float16" or (self.dtype != "category" and (self.of or self.ordered)):
            return "is of a type that cannot be encoded"
        if not _fits(self.name, "str"):
            return "has a name that is not text"
        if self.width == 0:
            return "has no category"
        if not kinds <= {str, bool, int, float} or len(kinds) > 1:
            return "must hold values of one kind: text, numbers or truth values"
        if not kinds <= held_types(base) or not all(_fits(v, base) for v in self.values):
            return "has categories that its type cannot hold"
        if len(set(self.values)) < len(self.values):
            return "lists a category twice"
        if self.missing and not can_miss(self.dtype):
            return "has no room for missing values"
        return ""

    def read(self, series: pd.Series) -> Array:
        """The position of each row's category."""
        import pandas as pd

        known = pd.Index(list(self.values), dtype=object)
        try:
            if isinstance(series.dtype, pd.CategoricalDtype):
                places = known.get_indexer(series.cat.categories.astype(object))
                codes = np.append(places, -1)[series.cat.codes.to_numpy()]
            else:
                codes = known.get_indexer(pd.Index(series.to_numpy(dtype=object), dtype=object))
        except TypeError:
            # A value that cannot be hashed was not fitted.
            codes = np.full(len(series), -1)
        empty = _missing(series, self)
        codes = np.where(empty, len(self.values), codes)
        if (codes < 0).any():
            raise DataError(
                f"Column {self.name!r} holds a category that the fitted table did not have: leave such rows out, or "
                f"fit with `categories` that list all."
            )
        return codes

    def place(self, codes: Array, out: Array) -> None:
        """Write one-hot rows into `out`, which holds zeros."""
        out[np.arange(len(codes)), codes] = 1

    def draw(self, Z: Array, rng: np.random.Generator | None) -> Array:
        """Positions of categories."""
        return choose(Z, rng)

    def series(self, codes: Array) -> pd.Series:
        """The categories at these positions, of the fitted dtype."""
        import pandas as pd

        if self.dtype == "category":
            values = pd.CategoricalDtype(pd.Index(list(self.values), dtype=self.of), ordered=self.ordered)
            return pd.Series(pd.Categorical.from_codes(np.where(codes < len(self.values), codes, -1), dtype=values))
        listed = pd.Series([*self.values, *[None] * self.missing], dtype=self.dtype)
        return listed.take(codes).reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Number:
    """A column of numbers or times: its position between two bounds, then present and missing if `missing`.

    Whole numbers and times (int64 in the unit of their dtype) have bounds of type int, because a float cannot resolve
    nanoseconds. Their values are `low` plus a multiple of `step`: a column of days gives days.
    """

    name: str
    dtype: str
    low: int | float
    high: int | float
    missing: bool = False
    step: int = 1

    @property
    def width(self) -> int:
        return 3 if self.missing else 1

    @property
    def blocks(self) -> tuple[slice, ...]:
        return (slice(1, 3),) if self.missing else ()

    def fault(self) -> str:
        """What is wrong with this column, or ""."""
        whole = is_whole(self.dtype) or is_date(self.dtype)
        if not whole and not is_fraction(self.dtype):
            return "is of a type that cannot be encoded"
        if not _fits(self.name, "str"):
            return "has a name that is not text"
        if type(self.low) is not type(self.high) or type(self.low) is not (int if whole else float):
            return f"must have two bounds that are {'whole numbers' if whole else 'fractions'}"
        least, most = limits(self.dtype)
        if not least <= self.low <= self.high <= most:
            return "must have a lower and an upper bound that its type can hold"
        if not np.isfinite(float(self.high - self.low)):
            return "has bounds that lie too far apart"
        if not 1 <= self.step < 2**63 or (self.step > 1 and (not whole or (self.high - self.low) % self.step)):
            return "has a step that does not lead from bound to bound"
        if self.missing and not can_miss(self.dtype):
            return "has no room for missing values"
        return ""

    def read(self, series: pd.Series) -> tuple[Array, Array]:
        """Int64 or float64 within the bounds, and a mask of missing values, which count as the lower bound."""
        unit, _ = date_parts(self.dtype)
        values = plain_times(series, self.name, self.dtype) if unit else plain_numbers(series, self.name)
        if not is_fraction(self.dtype) and values.dtype.kind == "f":
            values = np.rint(values).clip(-_FAR, _FAR).astype(np.int64)
        empty = _missing(series, self)
        return np.where(empty, self.low, values.clip(self.low, self.high)), empty

    def place(self, read: tuple[Array, Array], out: Array) -> None:
        """Write the numbers into the first column of `out`, which holds zeros, and the missing mask into the rest."""
        values, empty = read
        if self.high > self.low:
            above = values - self.low if is_fraction(self.dtype) else values.view(np.uint64) - _modulo(self.low)
            out[:, 0] = above / float(self.high - self.low)
        if self.missing:
            out[:, 1] = ~empty
            out[:, 2] = empty

    def draw(self, Z: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        """Numbers of the fitted dtype within the bounds, and a mask of missing values."""
        share = Z[:, 0].astype(np.float64).clip(0, 1)
        if is_fraction(self.dtype):
            near = (self.low + share * (self.high - self.low)).clip(self.low, self.high)
            values = near.astype(self.dtype.lower()).astype(np.float64)
        else:
            most = int(self.high - self.low) // self.step
            steps = np.rint(share * most)
            # The last step separately: as a float it may be one too many.
            last = steps >= float(most)
            above = np.where(last, np.uint64(most), np.where(last, 0, steps).astype(np.uint64))
            # Modulo 2**64, where the difference of two int64 always fits.
            values = (above * np.uint64(self.step) + _modulo(self.low)).view(np.int64)
        empty = choose(Z[:, 1:], rng) == 1 if self.missing else np.zeros(len(Z), dtype=bool)
        return np.where(empty, self.low, values), empty

    def series(self, drawn: tuple[Array, Array]) -> pd.Series:
        """The numbers, of the fitted dtype."""
        import pandas as pd

        values, empty = drawn
        unit, zone = date_parts(self.dtype)
        if unit:
            out = pd.Series(values.view(f"datetime64[{unit}]"))
            if zone:
                out = out.dt.tz_localize("UTC").dt.tz_convert(pd.api.types.pandas_dtype(self.dtype).tz)
        else:
            out = pd.Series(values).astype(self.dtype)
        return out.mask(empty) if empty.any() else out


Column = Category | Number


def plain_numbers(series: pd.Series, name: str) -> Array:
    """Int64 or float64 without infinities; zero where a value is missing."""
    import pandas as pd

    types = pd.api.types
    if not types.is_numeric_dtype(series.dtype) or types.is_bool_dtype(series.dtype):
        raise DataError(f"Column {name!r} must hold numbers, as when the table was fitted; it is {series.dtype}.")
    if types.is_integer_dtype(series.dtype):
        values = series.fillna(0).to_numpy()
        if values.dtype.kind == "u" and values.max(initial=0) > 2**63 - 1:
            raise DataError(f"Column {name!r} holds whole numbers of 2**63 or more: convert it to text or fractions.")
        return np.asarray(values, dtype=np.int64)
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        raise DataError(f"Column {name!r} holds infinite numbers: replace them, or leave the rows out.")
    return np.asarray(np.nan_to_num(values))


def plain_times(series: pd.Series, name: str, dtype: str) -> Array:
    """Int64 in the unit of `dtype`; the least one where a value is missing."""
    import pandas as pd

    unit, zone = date_parts(dtype)
    if not pd.api.types.is_datetime64_any_dtype(series.dtype) or (series.dt.tz is not None) is not bool(zone):
        raise DataError(
            f"Column {name!r} must hold times {'with' if zone else 'without'} a time zone, as when the table was "
            f"fitted; it is {series.dtype}."
        )
    try:
        return np.asarray((series.dt.tz_convert(None) if zone else series).dt.as_unit(unit).to_numpy().view(np.int64))
    except ValueError:
        raise DataError(f"Column {name!r} holds times that {dtype} cannot hold: leave such rows out.") from None


def _missing(series: pd.Series, column: Column) -> Array:
    empty: Array = series.isna().to_numpy()
    if empty.any() and not column.missing:
        raise DataError(f"Column {column.name!r} has missing values, but had none when it was fitted: fill them in.")
    return empty


def _fits(value: Value, dtype: str) -> bool:
    """Whether a column of this dtype returns the category unchanged."""
    if isinstance(value, str):
        # A lone surrogate, as an untrusted file may hold one, is not valid text.
        return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    if is_whole(dtype):
        return limits(dtype)[0] <= value <= limits(dtype)[1]
    if is_fraction(dtype):
        return limits(dtype)[0] <= value <= limits(dtype)[1] and float(np.dtype(dtype.lower()).type(value)) == value
    return bool(np.isfinite(value)) if isinstance(value, float) else True


def _modulo(low: int | float) -> Array:
    # An array: NumPy warns when a scalar wraps around.
    return np.array([int(low) % 2**64], dtype=np.uint64)
