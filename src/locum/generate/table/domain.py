"""The domain of a table: the declared columns, with their categories, ranges and cells. All of it is public."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from locum.errors import ConfigError, DataError, FormatError
from locum.generate.table.columns import CategoryColumn, Codes, Column, NumberColumn, text_of
from locum.io import read_regular

if TYPE_CHECKING:
    import pandas as pd

# Columns of one table; each pair of them is counted.
MOST_COLUMNS = 64
# Values of a label: every clique has it.
MOST_LABELS = 50
# A domain in a file.
_MOST_BYTES = 2**22
# The same inside a manifest, which holds 2**22 bytes with all else that it says.
_MOST_WRITTEN = 2**22 - 2**18
# Whole numbers that differ by less are categories if a domain is read from data.
_FEW = 2


@dataclass(frozen=True, slots=True)
class TableDomain:
    """What can occur in a table, declared before it is read. Everything in here becomes public.

    Parameters
    ----------
    columns
        Each a `CategoryColumn` or a `NumberColumn`, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> from locum.generate.table import TableDomain
    >>> domain = TableDomain.from_dict(
    ...     {"columns": {"age": {"low": 0, "high": 120, "whole": True}, "job": {"values": ["cook", "nurse"]}}}
    ... )
    >>> domain.codes(pd.DataFrame({"age": [20, 30], "job": ["nurse", "cook"]})).tolist()
    [[20, 1], [30, 0]]
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.columns) <= MOST_COLUMNS:
            raise ConfigError(
                f"A table needs 2 to {MOST_COLUMNS} columns, the utility among them; got {len(self.columns)}."
            )
        if len(set(self.names)) < len(self.columns):
            raise ConfigError("A domain declares each column once.")
        # Before anything is paid for: what is learned must fit into a folder.
        if len(json.dumps({"domain": self.to_dict()}, indent=1)) > _MOST_WRITTEN:
            raise ConfigError(
                f"The domain is longer than {_MOST_WRITTEN} bytes of JSON: declare fewer or shorter values, or merge "
                "some into `other`."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def cells(self) -> tuple[int, ...]:
        """How many cells each column has."""
        return tuple(column.cells for column in self.columns)

    def codes(self, frame: pd.DataFrame) -> Codes:
        """The cell of each value (n, columns); columns that are not declared are an error."""
        if lacking := [name for name in self.names if name not in frame.columns]:
            raise DataError(f"The table lacks the column {lacking[0]!r}, which the domain declares.")
        if not frame.columns.is_unique:
            raise DataError("Several columns of the table have the same name: rename them.")
        if more := [str(name) for name in frame.columns if name not in self.names]:
            raise DataError(f"The domain does not declare the column {more[0]!r}: declare it, or leave it out.")
        if not len(frame):
            return np.zeros((0, len(self.columns)), dtype=np.int64)
        return np.stack([column.codes(frame[column.name]) for column in self.columns], axis=1)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pd.DataFrame:
        """A table with a value of each cell; numbers are uniform within theirs."""
        import pandas as pd

        return pd.DataFrame({c.name: c.draw(codes[:, i], rng) for i, c in enumerate(self.columns)})

    def without(self, *names: str) -> TableDomain:
        """The domain without some columns."""
        return TableDomain(tuple(column for column in self.columns if column.name not in names))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, by the names of the columns."""
        return {"columns": {column.name: column.to_dict() for column in self.columns}}

    @classmethod
    def from_dict(cls, facts: Any) -> TableDomain:
        """Undo `to_dict`, or read what a holder wrote; anything else is a FormatError."""
        columns = facts.get("columns") if isinstance(facts, dict) and set(facts) == {"columns"} else None
        if not isinstance(columns, dict):
            raise FormatError('A domain must be {"columns": {NAME: {...}, ...}} and nothing else.')
        try:
            return cls(tuple(_column(name, given) for name, given in columns.items()))
        except ConfigError as error:
            raise FormatError(str(error)) from None

    @classmethod
    def from_file(cls, path: str | Path) -> TableDomain:
        """Read a domain from a JSON file."""
        raw = read_regular(Path(path))
        if len(raw) > _MOST_BYTES:
            raise FormatError(f"The domain {str(path)!r} is longer than {_MOST_BYTES} bytes: merge values.")
        try:
            facts = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
        except (ValueError, RecursionError):
            raise FormatError(f"The domain {str(path)!r} is not JSON: see docs/guides/obfuscation.md.") from None
        return cls.from_dict(facts)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        categories: Collection[str] = (),
        rare: Mapping[str, frozenset[str]] | None = None,
    ) -> TableDomain:
        """The domain that a table shows: categories, and ranges of numbers. It is private until somebody declares it.

        Columns of text in which every value is a number count as numbers, unless `categories` names them. `rare` are
        values of text, by column, that go into "other".
        """
        found = [
            _seen(frame[name], str(name), str(name) in categories, (rare or {}).get(str(name), frozenset()))
            for name in frame
        ]
        return cls(tuple(found))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _column(name: str, given: Any) -> Column:
    fields = set(given) if isinstance(given, dict) else set()
    where = f"Column {str(name)[:80]!r} of the domain"
    if "values" in fields and fields <= {"values", "other", "missing"}:
        values = given["values"]
        if not isinstance(values, list) or not all(type(value) in (str, int, bool) for value in values):
            raise FormatError(f"{where} needs a list of text, whole numbers or truth values in `values`.")
        other = given.get("other")
        if not isinstance(other, str | None):
            raise FormatError(f"{where} needs text in `other`.")
        return CategoryColumn(name, tuple(values), other, given.get("missing", False))
    rest = (
        {"special": tuple(_numbers(given.get("special", []), where)), "missing": given.get("missing", False)}
        if (isinstance(given, dict))
        else {}
    )
    if "edges" in fields and fields <= {"edges", "whole", "special", "missing"}:
        return NumberColumn(name, tuple(_numbers(given["edges"], where)), given.get("whole", False), **rest)
    if {"low", "high"} <= fields <= {"low", "high", "whole", "special", "missing"}:
        low, high = _numbers([given["low"], given["high"]], where)
        return NumberColumn.within(name, low, high, whole=given.get("whole", False), **rest)
    raise FormatError(
        f"{where} must have `values` (with `other`, `missing`), or `low` and `high`, or `edges` (with `whole`, "
        "`special`, `missing`)."
    )


def _numbers(values: Any, where: str) -> list[float]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise FormatError(f"{where} needs numbers.")
    return values


def _seen(series: pd.Series, name: str, category: bool, rare: frozenset[str]) -> Column:
    import pandas as pd

    present, missing = series.dropna(), bool(series.isna().any())
    if not len(present):
        raise DataError(f"Column {name!r} holds no value: leave it out.")
    if pd.api.types.is_bool_dtype(series.dtype):
        return CategoryColumn(name, (False, True), None, missing)
    numbers = pd.to_numeric(present, errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    if whole or (not category and np.isfinite(values).all()):
        low, high = float(values.min()), float(values.max())
        if whole and (category or high - low < _FEW):
            return CategoryColumn(name, tuple(int(value) for value in np.unique(values)), None, missing)
        if low == high:
            raise DataError(f"Column {name!r} holds one number only: leave it out.")
        # 0 often stands for something of its own, and needs no look at the data.
        special = (0,) if low <= 0 <= high and high - low > 1 else ()
        low, high = (int(low), int(high)) if whole else (low, high)
        few = whole and high - low < 256
        return NumberColumn.within(name, low, high, whole=whole, special=() if few else special, missing=missing)
    texts = sorted({text_of(value) for value in present.tolist()})
    kept = tuple(text for text in texts if text not in rare)
    return CategoryColumn(name, kept, "other" if len(kept) < len(texts) else None, missing)
