"""Declared columns of a table: which cells a value can fall into, and values drawn from cells.

The cell of a value depends on that value and on what was declared, never on other records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

Codes = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Value = str | int | bool
# Cells of a number that is declared by its range: as many as whole numbers, or so many of one width.
MOST_CELLS = 256
# Values that a column of categories may declare.
MOST_VALUES = 1000
# A range beyond this would lose whole numbers in floating point.
_LARGEST = 2.0**53
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """Declared categories; a value that is not declared falls into `other`, if there is one.

    Parameters
    ----------
    name
        Of the column.
    values
        The categories: all text, all whole numbers or all truth values.
    other
        The text that stands for every value that is not declared; None: such a value is an error.
    missing
        Whether a value may be missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from locum.generate.table import CategoryColumn
    >>> CategoryColumn("job", ("cook", "nurse"), other="other").codes(pd.Series(["nurse", "baker"])).tolist()
    [1, 2]
    """

    name: str
    values: tuple[Value, ...]
    other: str | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        kinds = {type(value) for value in self.values}
        if not _is_name(self.name) or not 1 <= len(self.values) <= MOST_VALUES:
            raise ConfigError(f"A column needs a name and 1 to {MOST_VALUES} values; got {len(self.values)}.")
        if len(kinds) > 1 or not kinds <= {str, int, bool} or not all(_fits(value) for value in self.values):
            raise ConfigError(
                f"The values of column {self.name!r} must be all text of up to {_LONGEST} characters, all whole "
                "numbers or all truth values."
            )
        if len(set(self.values)) < len(self.values) or self.other in self.values:
            raise ConfigError(f"Column {self.name!r} declares a value twice.")
        if self.other is not None and (kinds != {str} or not _is_name(self.other)):
            raise ConfigError(f"`other` of column {self.name!r} must be text, and so must its values.")
        if type(self.missing) is not bool:
            raise ConfigError(f"`missing` of column {self.name!r} must be true or false.")

    @property
    def cells(self) -> int:
        """How many there are."""
        return len(self.values) + (self.other is not None) + self.missing

    @property
    def ordered(self) -> tuple[int, ...]:
        """The cells that lie on a line, from left to right: none."""
        return ()

    def codes(self, series: pd.Series) -> Codes:
        """The cell of each value."""
        kind = type(self.values[0])
        places: dict[Any, int] = {value: i for i, value in enumerate(self.values)}
        rest = -1 if self.other is None else len(self.values)

        def cell(value: Any) -> int:
            return places.get(_as(kind, value), rest)

        return _codes(series, self, cell)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pd.Series:
        """A value of each cell."""
        import pandas as pd

        listed: list[Any] = [*self.values, *([] if self.other is None else [self.other])]
        kind = type(self.values[0])
        dtype = {str: object, int: "Int64" if self.missing else "int64", bool: "boolean" if self.missing else "bool"}
        return pd.Series(np.array([*listed, None], dtype=object)[codes], name=self.name).astype(dtype[kind])

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        out: dict[str, Any] = {"values": list(self.values)}
        return (
            out
            | ({"other": self.other} if self.other is not None else {})
            | ({"missing": True} if self.missing else {})
        )


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A number in a declared range, which is cut into cells at declared edges; a number outside is moved to the end.

    Parameters
    ----------
    name
        Of the column.
    edges
        Where cells begin, and where the last one ends: ascending. Cell i holds edges[i] <= x < edges[i + 1].
    whole
        Whether the numbers are whole; edges are then whole, too.
    special
        Values that have a cell of their own, such as 0.
    missing
        Whether a number may be missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from locum.generate.table import NumberColumn
    >>> NumberColumn("age", (0, 18, 65, 120), whole=True).codes(pd.Series([17, 18, 200])).tolist()
    [0, 1, 2]
    """

    name: str
    edges: tuple[float, ...]
    whole: bool = False
    special: tuple[float, ...] = ()
    missing: bool = False

    def __post_init__(self) -> None:
        numbers = (*self.edges, *self.special)
        if not _is_name(self.name) or not 2 <= len(self.edges) <= MOST_CELLS + 2 or len(self.special) > 16:
            raise ConfigError(
                f"A column of numbers needs a name, 2 to {MOST_CELLS + 1} edges and up to 16 special values; got "
                f"{len(self.edges)} and {len(self.special)}."
            )
        if not all(type(x) in (int, float) and math.isfinite(x) and abs(x) <= _LARGEST for x in numbers):
            raise ConfigError(f"Edges and special values of column {self.name!r} must be finite numbers up to 2**53.")
        if not all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ConfigError(f"The edges of column {self.name!r} must ascend.")
        if type(self.whole) is not bool or type(self.missing) is not bool:
            raise ConfigError(f"`whole` and `missing` of column {self.name!r} must be true or false.")
        if self.whole and any(x != int(x) for x in numbers):
            raise ConfigError(f"Column {self.name!r} holds whole numbers, so edges and special values must be whole.")
        if len(set(self.special)) < len(self.special) or not all(
            self.edges[0] <= x <= self.edges[-1] for x in self.special
        ):
            raise ConfigError(f"Special values of column {self.name!r} must differ and lie within its edges.")

    @classmethod
    def within(
        cls,
        name: str,
        low: float,
        high: float,
        *,
        whole: bool,
        special: tuple[float, ...] = (),
        missing: bool = False,
    ) -> NumberColumn:
        """Cells of one width between two numbers, both included; one for each whole number if they are few.

        >>> NumberColumn.within("age", 0, 3, whole=True).edges
        (0, 1, 2, 3, 4)
        """
        if not all(type(x) in (int, float) and math.isfinite(x) and abs(x) < _LARGEST / 2 for x in (low, high)):
            raise ConfigError(f"`low` and `high` of column {name!r} must be finite numbers.")
        if low > high or (low == high and not whole):
            raise ConfigError(f"`low` of column {name!r} must be below `high`; got {low!r} and {high!r}.")
        if whole:
            if low != int(low) or high != int(high):
                raise ConfigError(f"Column {name!r} holds whole numbers, so `low` and `high` must be whole.")
            first, count = int(low), int(high) - int(low) + 1
            cells = min(count, MOST_CELLS)
            return cls(name, tuple(first + i * count // cells for i in range(cells + 1)), True, special, missing)
        edges = [low + (high - low) * i / MOST_CELLS for i in range(MOST_CELLS)]
        if len(set(edges)) < MOST_CELLS:
            raise ConfigError(f"The range of column {name!r} is too narrow: declare its edges.")
        return cls(name, (*edges, float(high)), False, special, missing)

    @property
    def cells(self) -> int:
        """How many there are: between edges, special values, missing."""
        return len(self.edges) - 1 + len(self.special) + self.missing

    @property
    def ordered(self) -> tuple[int, ...]:
        """The cells that lie on a line, from left to right; a special value before the cell that it lies in."""
        bins = len(self.edges) - 1
        places = [(min(int(np.searchsorted(self.edges, x, side="right")) - 1, bins - 1), x) for x in self.special]
        keyed = [((b, 1, 0.0), b) for b in range(bins)]
        keyed += [((b, 0, x), bins + i) for i, (b, x) in enumerate(places)]
        return tuple(cell for _, cell in sorted(keyed))

    def codes(self, series: pd.Series) -> Codes:
        """The cell of each number."""
        edges, bins = np.asarray(self.edges, dtype=np.float64), len(self.edges) - 1
        special = {float(value): bins + i for i, value in enumerate(self.special)}

        def cell(value: Any) -> int:
            number = _number(value)
            if number is None:
                return -1
            if number in special:
                return special[number]
            return min(max(int(np.searchsorted(edges, number, side="right")) - 1, 0), bins - 1)

        return _codes(series, self, cell)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pd.Series:
        """A number of each cell, uniform between its edges."""
        import pandas as pd

        bins = len(self.edges) - 1
        low = np.array([*self.edges[:-1], *self.special, 0.0], dtype=np.float64)
        width = np.array([*np.diff(self.edges), *[0.0] * len(self.special), 0.0])
        numbers = low[codes] + rng.random(len(codes)) * width[codes]
        if self.whole:
            # Rounding may reach the edge, which belongs to the next cell.
            numbers = np.minimum(np.floor(numbers), low[codes] + np.maximum(width[codes] - 1, 0))
        out = pd.Series(numbers, name=self.name)
        if self.missing:
            out[codes == bins + len(self.special)] = None
        return out.astype("Int64" if self.missing else "int64") if self.whole else out

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        out: dict[str, Any] = {"edges": list(self.edges), "whole": self.whole}
        return (
            out
            | ({"special": list(self.special)} if self.special else {})
            | ({"missing": True} if self.missing else {})
        )


Column = CategoryColumn | NumberColumn


def _codes(series: pd.Series, column: Column, cell: Any) -> Codes:
    """The cell of each value; equal values are looked up once."""
    import pandas as pd

    empty = series.isna().to_numpy(dtype=bool)
    if empty.any() and not column.missing:
        raise DataError(
            f'Column {column.name!r} has missing values, which its domain does not declare: add "missing": true.'
        )
    out = np.full(len(series), column.cells - 1, dtype=np.int64)
    present = series[~empty]
    if len(present):
        if present.dtype == object:
            codes = np.array(_one_by_one(present.tolist(), cell), dtype=np.int64)
        else:
            places, found = pd.factorize(present)
            codes = np.array([cell(value) for value in found.tolist()], dtype=np.int64)[places]
        if (codes < 0).any():
            raise DataError(
                f"Column {column.name!r} holds a value that its domain does not declare: declare all that can occur."
            )
        out[~empty] = codes
    return out


def _one_by_one(values: list[Any], cell: Any) -> list[int]:
    """Cells of values of any type.

    True and 1 are equal in Python, and so are decimals or times that are written differently: the first one would
    decide about the others. So only values of plain types are looked up once, by type.
    """
    known: dict[tuple[type, Any], int] = {}
    out = []
    for value in values:
        if type(value) not in (str, int, float, bool):
            out.append(cell(value))
            continue
        key = (type(value), value)
        if key not in known:
            known[key] = cell(value)
        out.append(known[key])
    return out


def text_of(value: Any) -> str:
    """A value as text. A whole number is written without a point: one gap among others makes 1 into 1.0."""
    if isinstance(value, float | np.floating) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _as(kind: type, value: Any) -> Any:
    """A value as the kind that was declared; text is read by itself, as in a file."""
    if kind is str:
        return text_of(value)
    if kind is bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        return {"true": True, "false": False}.get(str(value).lower())
    number = _number(value)
    return None if number is None or number != int(number) else int(number)


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable()


def _fits(value: Value) -> bool:
    if isinstance(value, str):
        return _is_name(value)
    return abs(value) < _LARGEST
