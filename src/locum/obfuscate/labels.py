"""Utility attributes: what the receiver needs of each record, as codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError

Array = npt.NDArray[Any]
# One release of rows: (rows, codes of the utility attribute, coins) -> rows of the same shape.
Masking = Callable[[Array, Array, np.random.Generator], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows between 0 and 1, with two codes each: what they are published for, and what somebody wants to find out.

    `utility` and `private` count from 0. The private codes serve to judge a release; an obfuscator never sees them.
    """

    X: Array
    utility: Array
    private: Array

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.utility) == len(self.private):
            raise DataError(
                f"Rows and labels must be as many: got {len(self.X)} rows, {len(self.utility)} utility labels and "
                f"{len(self.private)} private ones."
            )

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: npt.ArrayLike) -> Labelled:
        """Some of the rows, by position or mask."""
        chosen = np.asarray(rows)
        return Labelled(self.X[chosen], self.utility[chosen], self.private[chosen])


Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UtilityLabels:
    """Names and values of the utility attributes. Values are text or whole numbers, and leave with a release.

    One attribute comes as a list, array or Series; several as a DataFrame, or as a mapping from names to lists.
    """

    names: tuple[str, ...]
    values: tuple[tuple[str | int, ...], ...]

    @classmethod
    def fit(cls, utility: Any) -> UtilityLabels:
        """Learn which attributes there are and which values they take."""
        columns = _columns(utility)
        values = tuple(tuple(np.unique(column).tolist()) for column in columns.values())
        for name, found in zip(columns, values, strict=True):
            if len(found) < 2:
                raise DataError(f"Utility attribute {name!r} has one value for all records: nothing to keep.")
        return cls(tuple(columns), values)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each attribute has."""
        return tuple(len(values) for values in self.values)

    def codes(self, utility: Any) -> Codes:
        """One row a record, one column an attribute; a value that was not fitted is an error."""
        columns = _columns(utility)
        if len(columns) != len(self.names):
            raise DataError(f"There are {len(self.names)} utility attributes {list(self.names)}; got {len(columns)}.")
        if set(columns) == set(self.names):
            columns = {name: columns[name] for name in self.names}
        out = []
        for (name, column), values in zip(columns.items(), self.values, strict=True):
            known = np.asarray(values)
            if column.dtype.kind != known.dtype.kind:
                try:
                    column = column.astype(known.dtype if known.dtype.kind in "iu" else str)
                except ValueError:
                    raise DataError(f"Utility attribute {name!r} was fitted on whole numbers; got text.") from None
            place = np.searchsorted(known, column).clip(max=len(known) - 1)
            if (known[place] != column).any():
                raise DataError(f"Utility attribute {name!r} takes a value that was not there when it was fitted.")
            out.append(place)
        return np.stack(out, axis=1).astype(np.int64)


def _columns(utility: Any) -> dict[str, npt.NDArray[Any]]:
    """Attributes by name; a single one without a name is called "utility"."""
    if isinstance(utility, Mapping) or hasattr(utility, "columns"):
        found = {str(name): np.asarray(utility[name]) for name in utility}
    else:
        values = np.asarray(utility)
        if values.ndim == 2:
            found = {f"utility {i}": values[:, i] for i in range(values.shape[1])}
        else:
            found = {str(getattr(utility, "name", None) or "utility"): values}
    if not found or any(column.ndim != 1 for column in found.values()):
        raise DataError("Utility attributes come as one value a record: a list, a Series, or a table of them.")
    return {name: _plain(column, name) for name, column in found.items()}


def _plain(column: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Text or whole numbers: a value must be the same when it is read from a file again."""
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind == "b":
        return column.astype(np.int64)
    if column.dtype.kind == "f":
        if not np.isfinite(column).all() or (column != np.round(column)).any():
            raise DataError(f"Utility attribute {name!r} holds numbers that are missing or not whole.")
        return column.astype(np.int64)
    if any(value is None or value != value for value in column.tolist()):
        raise DataError(f"Utility attribute {name!r} has missing values: leave those records out.")
    return column.astype(str)
