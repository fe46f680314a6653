"""Records with utility and private codes, and the utility attributes: what a receiver needs of each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
# One release of rows: (rows, utility codes, rng) -> rows of the same shape.
Masking = Callable[[Array, Array, np.random.Generator], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Labeled:
    """Rows between 0 and 1, each with two codes: what it is published for, and what an attacker wants to know.

    The private codes are for judging a release; an obfuscator never sees them.

    Parameters
    ----------
    X
        Rows: (n, features), or images (n, channels, side, side).
    utility, private
        Codes from 0, one per row. `utility` may have several columns.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.obfuscate import Labeled
    >>> rows = Labeled(np.eye(3), np.array([0, 1, 1]), np.array([1, 0, 1]))
    >>> len(rows), rows.take([2]).private.tolist()
    (3, [1])
    """

    X: Array
    utility: Array
    private: Array

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.utility) == len(self.private):
            raise DataError(
                f"There must be as many labels as rows; got {len(self.X)} rows, {len(self.utility)} utility and "
                f"{len(self.private)} private labels."
            )

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: npt.ArrayLike) -> Labeled:
        """Some of the rows, by position or mask."""
        chosen = np.asarray(rows)
        return Labeled(self.X[chosen], self.utility[chosen], self.private[chosen])


@dataclass(frozen=True, slots=True)
class UtilityLabels:
    """Names and values of the utility attributes. Values are text or integers, and leave with a release.

    Pass one attribute as a list, array or Series; several as a DataFrame, or as a mapping from names to lists.
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
                raise DataError(
                    f"Utility attribute {name!r} has the same value in all records: there is nothing to keep."
                )
        return cls(tuple(columns), values)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each attribute has."""
        return tuple(len(values) for values in self.values)

    def codes(self, utility: Any) -> Codes:
        """One row per record, one column per attribute; a value not seen in `fit` is an error."""
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
                raise DataError(f"Utility attribute {name!r} has a value that was not there when it was fitted.")
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
        raise DataError("Utility attributes need one value per record: pass a list, a Series, or a table of them.")
    return {name: _plain(column, name) for name, column in found.items()}


def _plain(column: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Text or integers: a value must be the same when it is read from a file again."""
    if column.dtype.kind in "iub":
        return column.astype(np.int64)
    if column.dtype.kind == "f":
        if not np.isfinite(column).all() or (column != np.round(column)).any():
            raise DataError(f"Utility attribute {name!r} holds numbers that are missing or not whole.")
        return column.astype(np.int64)
    if any(value is None or value != value for value in column.tolist()):
        raise DataError(f"Utility attribute {name!r} has missing values: leave those records out.")
    return column.astype(str)
