"""A distribution over the rows of a table: a label, columns in a tree given the label, and cells within groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.generate.table.columns import CategoryColumn, Codes
from locum.generate.table.domain import TableDomain
from locum.generate.table.tree import order_of

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
# Rows at a time.
_ROWS = 1 << 12
# More rows than this do not fit in the memory of most machines.
MOST_SAMPLES = 50_000_000


@dataclass(frozen=True, slots=True, eq=False)
class TableModel:
    """What a private table has learned; anyone may sample it, without the records and without a further payment.

    Attributes
    ----------
    domain
        The declared columns.
    utility
        The name of the label.
    parents
        For each other column, in order, the position of its parent among them; -1 for the first of the tree.
    groups
        For each of them, the group of each cell.
    label
        The distribution of the label.
    conditionals
        For each of them, its groups given the label and the parent's group (labels, parent's groups, groups).
    within
        For each of them, the distribution over the cells of each group (cells,): each group's part sums to 1.
    count
        The noisy number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import TableDomain, TableModel
    >>> columns = {"job": {"values": ["cook", "nurse"]}, "smokes": {"values": [0, 1]}}
    >>> domain, even = TableDomain.from_dict({"columns": columns}), np.array([0.5, 0.5])
    >>> same = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> model = TableModel(domain, "smokes", (-1,), (np.arange(2),), even, (same,), (np.ones(2),), 10.0)
    >>> drawn = model.sample(100, random_state=0)
    >>> ((drawn["job"] == "nurse") == (drawn["smokes"] == 1)).all().item()
    True
    """

    domain: TableDomain
    utility: str
    parents: tuple[int, ...]
    groups: tuple[Codes, ...]
    label: Floats
    conditionals: tuple[Floats, ...]
    within: tuple[Floats, ...]
    count: float

    def sample(self, n: int | None = None, *, random_state: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Rows that were never anybody's: label and values are drawn from what was learned.

        Parameters
        ----------
        n
            How many; None: about as many as there were, by a noisy count that was paid for.
        random_state
            A seed; None: other rows each time. It need not be secret.

        Returns
        -------
        DataFrame
            The declared columns, in their order.
        """
        if n is None:
            n = max(1, round(self.count))
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= MOST_SAMPLES:
            raise ConfigError(f"`n` must be a whole number from 1 to {MOST_SAMPLES}; got {n!r}.")
        rng = np.random.default_rng(random_state)
        return self._drawn(rng.choice(len(self.label), size=int(n), p=self.label), rng)

    def given(self, labels: Any, *, random_state: int | np.random.Generator | None = None) -> pd.DataFrame:
        """One row for each label that is passed, the other columns drawn given it.

        If the labels are those of real records, neither they nor their number are hidden: no guarantee covers that.

        Parameters
        ----------
        labels
            One declared value of the utility column per row.
        random_state
            A seed; None: other rows each time.

        Returns
        -------
        DataFrame
            The declared columns, in their order; the utility is what was passed.
        """
        import pandas as pd

        series = pd.Series(labels)
        if not len(series):
            raise DataError("There are no labels to draw rows for: pass at least one.")
        return self._drawn(self.label_column.codes(series), np.random.default_rng(random_state))

    @property
    def label_column(self) -> CategoryColumn:
        """The declared utility column."""
        found = next(column for column in self.domain.columns if column.name == self.utility)
        assert isinstance(found, CategoryColumn)
        return found

    def _drawn(self, labels: Codes, rng: np.random.Generator) -> pd.DataFrame:
        codes = np.concatenate([self._codes(labels[i : i + _ROWS], rng) for i in range(0, len(labels), _ROWS)])
        return self.domain.draw(codes, rng)

    def _codes(self, labels: Codes, rng: np.random.Generator) -> Codes:
        names = self.domain.names
        others = [i for i, name in enumerate(names) if name != self.utility]
        out = np.empty((len(labels), len(names)), dtype=np.int64)
        out[:, names.index(self.utility)] = labels
        held: dict[int, Codes] = {}
        for column in order_of(self.parents):
            above = held.get(self.parents[column], np.zeros_like(labels))
            held[column] = _choose(self.conditionals[column][labels, above], rng)
            group = self.groups[column]
            spread = np.where(group == np.arange(group.max() + 1)[:, None], self.within[column], 0.0)
            out[:, others[column]] = _choose(spread[held[column]], rng)
        return out


def _choose(odds: Floats, rng: np.random.Generator) -> Codes:
    """One place of each row, drawn by its odds; a place with odds 0 is never drawn."""
    ends = odds.cumsum(axis=1)
    wanted = rng.random(len(odds)) * ends[:, -1]
    found: Codes = (ends <= wanted[:, None]).sum(axis=1)
    # Rounding may reach the end.
    last = odds.shape[1] - 1 - (odds[:, ::-1] > 0).argmax(axis=1)
    out: Codes = np.minimum(found, last)
    return out
