"""Tables of mixed columns as numbers between 0 and 1, and back to valid records with the same columns and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data.table_columns import Column
from locum.data.table_fit import column_from_dict, column_to_dict, fit_column
from locum.errors import ConfigError, DataError, FormatError

if TYPE_CHECKING:
    import pandas as pd


Array = npt.NDArray[Any]
Bounds = Mapping[str, tuple[Any, Any]]
Categories = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TableCodec:
    """A pandas DataFrame <-> a float32 matrix in [0, 1]; any finite matrix decodes to valid records.

    Categories (text, object, bool, category) become a block with one entry per category: those that occur, or all
    that a column of dtype category declares. Numbers and times become one column between their smallest and largest
    value. Missing values have a separate entry, only if some were missing at `fit`; in object columns they come back
    as None. Column names, order and dtypes are restored; the index is not.

    Limits: a float32 resolves about 16 million steps, so whole numbers with a wider range and fractions come back
    rounded. A codec shows the categories and the smallest and largest number of each column, which are real values of
    some record: give public `bounds` and `categories` to `fit` if that matters.

    Parameters
    ----------
    parts
        The columns, as `TableCodec.fit` learns them and `TableCodec.from_dict` reads them.

    Examples
    --------
    >>> import pandas as pd
    >>> from locum.data import TableCodec
    >>> people = pd.DataFrame({"age": [20, 30, 60], "job": ["cook", "nurse", "cook"]})
    >>> codec = TableCodec.fit(people)
    >>> codec.encode(people).tolist()
    [[0.0, 1.0, 0.0], [0.25, 0.0, 1.0], [1.0, 1.0, 0.0]]
    >>> codec.decode([[0.52, 0.4, 0.3]]).to_dict("records")
    [{'age': 41, 'job': 'cook'}]
    """

    parts: tuple[Column, ...]

    @classmethod
    def fit(
        cls, frame: pd.DataFrame, *, bounds: Bounds | None = None, categories: Categories | None = None
    ) -> TableCodec:
        """Learn the columns of `frame`.

        `bounds` gives numbers or times a public smallest and largest value; values outside are clipped. `categories`
        lists the public categories of a column (None for a missing value); a column of numbers then becomes a block.
        """
        bounds, categories = bounds or {}, categories or {}
        _check_names(frame)
        for setting, given in (("bounds", bounds), ("categories", categories)):
            if unknown := [name for name in given if name not in frame.columns]:
                raise ConfigError(f"`{setting}` names columns that the table does not have: {unknown}.")
        if both := sorted(set(bounds) & set(categories)):
            raise ConfigError(f"A column has either `bounds` or `categories`; got both for {both}.")
        if len(frame) == 0:
            raise DataError("A table without rows cannot be fitted: add records.")
        parts = tuple(fit_column(frame[name], name, bounds.get(name), categories.get(name)) for name in frame.columns)
        return cls(parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(part.name for part in self.parts)

    @property
    def width(self) -> int:
        """Columns of the matrix."""
        return sum(part.width for part in self.parts)

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks of the matrix: categories, and whether a number is present or missing."""
        return tuple(
            slice(place.start + block.start, place.start + block.stop)
            for part, place in self._places()
            for block in part.blocks
        )

    def encode(self, frame: pd.DataFrame) -> npt.NDArray[np.float32]:
        """The rows as (n, width) float32 in [0, 1]; numbers outside the fitted range are clipped into it.

        Columns are found by name, in any order. A missing or extra column, an unknown category, an infinite number,
        or a missing value in a column that had none at `fit` is a DataError that names the column and no value.
        """
        _check_names(frame)
        if lacking := [name for name in self.columns if name not in frame.columns]:
            raise DataError(f"The table lacks columns that were fitted: {lacking}.")
        if more := [name for name in frame.columns if name not in self.columns]:
            raise DataError(f"The table has columns that were not fitted: {more}; leave them out.")
        out = np.zeros((len(frame), self.width), dtype=np.float32)
        for part, place in self._places():
            part.place(part.read(frame[part.name]), out[:, place])  # type: ignore[arg-type]
        return out

    def decode(
        self, Z: npt.ArrayLike, rng: np.random.Generator | None = None, index: pd.Index | None = None
    ) -> pd.DataFrame:
        """Valid records from any finite matrix: the fitted columns and dtypes, with values that `fit` allows.

        In a block the largest entry counts; with `rng` an entry is drawn in proportion to the entries clipped to
        [0, 1]. Numbers are clipped, scaled back, and rounded if they were whole.
        """
        return self.decode_parts([Z], rng, index)

    def decode_parts(
        self, parts: Iterable[npt.ArrayLike], rng: np.random.Generator | None = None, index: pd.Index | None = None
    ) -> pd.DataFrame:
        """One table from the rows of several matrices; only one matrix at a time is in memory."""
        import pandas as pd

        drawn: dict[str, list[Any]] = {name: [] for name in self.columns}
        for Z in parts:
            matrix = self._checked(Z)
            for part, place in self._places():
                drawn[part.name].append(part.draw(matrix[:, place], rng))
        if not drawn[self.columns[0]]:
            return self.decode_parts([np.zeros((0, self.width))], rng, index)
        # Each Series is made once, at the end: hundreds of short ones take several times the memory of a long one.
        frame = pd.DataFrame({part.name: part.series(_joined(drawn.pop(part.name))) for part in self.parts})
        if index is not None:
            if len(index) != len(frame):
                raise DataError(
                    f"`index` must have one entry for each of the {len(frame)} rows; it has {len(index)}."
                )
            frame.index = index
        return frame

    def snap(self, Z: npt.ArrayLike, rng: np.random.Generator | None = None) -> npt.NDArray[np.float32]:
        """`encode(decode(Z, rng))`, to the last bit, without making a table."""
        Z = self._checked(Z)
        out = np.zeros(Z.shape, dtype=np.float32)
        for part, place in self._places():
            part.place(part.draw(Z[:, place], rng), out[:, place])  # type: ignore[arg-type]
        return out

    def to_dict(self) -> dict[str, Any]:
        """The codec as plain JSON."""
        return {"columns": [column_to_dict(part) for part in self.parts]}

    @classmethod
    def from_dict(cls, facts: Any) -> TableCodec:
        """The codec that `to_dict` wrote; FormatError for anything else. The dict may be untrusted."""
        columns = facts.get("columns") if isinstance(facts, dict) and len(facts) == 1 else None
        if not isinstance(columns, list) or not columns:
            raise FormatError("A table codec must be {'columns': [...]} with at least one column.")
        parts = tuple(column_from_dict(c, f"Column {i} of a table codec") for i, c in enumerate(columns, 1))
        if len({part.name for part in parts}) < len(parts):
            raise FormatError("A table codec must name each column once.")
        return cls(parts)

    def _places(self) -> list[tuple[Column, slice]]:
        ends = np.cumsum([part.width for part in self.parts]).tolist()
        return [(part, slice(end - part.width, end)) for part, end in zip(self.parts, ends, strict=True)]

    def _checked(self, Z: npt.ArrayLike) -> Array:
        Z = np.asarray(Z)
        if Z.ndim != 2 or Z.shape[1] != self.width or Z.dtype.kind not in "fiub":
            raise DataError(f"The matrix of this table must be (rows, {self.width}) numbers; got shape {Z.shape}.")
        if not np.isfinite(Z).all():
            raise DataError("The matrix holds NaN or infinite numbers: they cannot be decoded.")
        return Z


def _joined(drawn: list[Any]) -> Any:
    """Draws of a column from several matrices, concatenated: an array, or a pair of arrays."""
    if isinstance(drawn[0], tuple):
        return tuple(np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    return np.concatenate(drawn)


def _check_names(frame: pd.DataFrame) -> None:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"A table must be a pandas DataFrame; got {type(frame).__name__}.")
    if len(frame.columns) == 0:
        raise DataError("The table has no columns: add some.")
    if not all(isinstance(name, str) for name in frame.columns):
        raise DataError("Column names must be text: rename them (frame.columns.astype(str)).")
    if not frame.columns.is_unique:
        raise DataError(
            f"Several columns have the same name: {sorted(set(frame.columns[frame.columns.duplicated()]))}."
        )
