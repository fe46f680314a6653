"""What is counted next, and what the noisy counts add up to. It never sees a record: all of it is post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.generate.table.columns import Codes
from locum.generate.table.counts import MOST_CELLS, CountQuery
from locum.generate.table.domain import TableDomain
from locum.generate.table.groups import merge_cells, within_groups
from locum.generate.table.model import TableModel
from locum.generate.table.tree import Clue, LabelTree, best_tree, consistent, dependence, on_simplex

Floats = npt.NDArray[np.float64]
# Shares of the precision: each column with the label, all pairs with the label, the tree. Chosen on training folds.
SHARES = (0.3, 0.2, 0.5)
# One column and the label: there are no pairs to choose from.
_LONE = (0.5, 0.5)
# Records that a cell should hold on average, in standard deviations of its noise: of pairs, and of the tree.
ROOM = (6.0, 1.0)
# Groups of a column, at most and at least.
_MOST_PAIRED, _MOST_GROUPS, _LEAST_GROUPS = 12, 40, 3
# The least share of a group among those of its label: nothing that was declared is impossible.
_LEAST = 1e-6
# Tables of a draw share a little less than all of it, so that rounding cannot exceed it.
_ALL = 1 - 2.0**-20


def shares_of(domain: TableDomain) -> tuple[float, ...]:
    """The share of the precision that each draw gets."""
    return SHARES if len(domain.columns) > 2 else _LONE


class TableLearner:
    """Says what is counted next, takes the noisy counts, and fits a tree of columns to all of them.

    Parameters
    ----------
    domain
        The declared columns.
    utility
        The name of the label.
    noise
        The noise multiplier that the whole payment is worth; each draw has it over the root of its share.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import TableDomain, TableLearner, row_weights
    >>> columns = {"job": {"values": ["cook", "nurse"]}, "smokes": {"values": [0, 1]}}
    >>> learner = TableLearner(TableDomain.from_dict({"columns": columns}), "smokes", 0.001)
    >>> codes = np.array([[0, 0], [1, 1]] * 50)
    >>> while not learner.done:
    ...     learner.take(learner.query.sums(codes, row_weights(100)).to_array())
    >>> learner.model().label.round(3).tolist()
    [0.5, 0.5]
    """

    def __init__(self, domain: TableDomain, utility: str, noise: float) -> None:
        self._domain, self._utility, self._noise = domain, utility, noise
        self._label = domain.names.index(utility)
        self._others = [i for i in range(len(domain.columns)) if i != self._label]
        self._cells = [np.arange(count) for count in domain.cells]
        self.shares, self.taken = shares_of(domain), 0
        self._fine: list[Floats] = []
        self._fine_noise = 0.0
        self._totals: list[tuple[Floats, float]] = []
        self._coarse: list[Codes] = []
        self._pairs: dict[tuple[int, int], tuple[Floats, float]] = {}
        self.groups: list[Codes] = []
        self.parents: tuple[int, ...] = ()
        self._cliques: list[tuple[Floats, float]] = []
        self.query = self._query([(self._label, i) for i in self._others], self._cells)

    @property
    def done(self) -> bool:
        """Whether everything was counted."""
        return self.taken == len(self.shares)

    @property
    def share(self) -> float:
        """The share of the precision for the next query."""
        return self.shares[self.taken]

    def take(self, drawn: Floats) -> None:
        """Keep the noisy counts of `query`, and decide on the next one."""
        if self.done:
            raise ConfigError("Everything was counted already.")
        tables = self.query.tables_of(drawn)
        noise = self.query.deviations(self._noise / sqrt(self.share))
        for table, std in zip(tables, noise, strict=True):
            rest = table.reshape(len(table), -1)
            self._totals.append((rest.sum(axis=1), rest.shape[1] * std**2))
        self.taken += 1
        if self.taken == 1:
            self._fine, self._fine_noise = tables, noise[0]
        elif self.taken == 2 and len(self._others) > 1:
            pairs = combinations(range(len(self._others)), 2)
            self._pairs = dict(zip(pairs, zip(tables, noise, strict=True), strict=True))
        else:
            self._cliques = list(zip(tables, noise, strict=True))
        if not self.done:
            self.query = self._pair_query() if self.taken == 1 and len(self._others) > 1 else self._tree_query()

    def _pair_query(self) -> CountQuery:
        """All pairs with the label, on few groups."""
        pairs = list(combinations(range(len(self._others)), 2))
        self._coarse = self._merged(len(pairs), ROOM[0], _MOST_PAIRED)
        tables = [(self._label, self._others[a], self._others[b]) for a, b in pairs]
        return self._query(tables, self._by_column(self._coarse))

    def _tree_query(self) -> CountQuery:
        """The cliques of the tree that the pairs lead to."""
        self.parents = best_tree(self._scores()) if len(self._others) > 1 else (-1,)
        tables: list[tuple[int, ...]] = [
            (self._label, self._others[parent], self._others[column])
            for column, parent in enumerate(self.parents)
            if parent >= 0
        ]
        tables = tables or [(self._label, self._others[0])]
        self.groups = self._merged(len(tables), ROOM[1], _MOST_GROUPS)
        return self._query(tables, self._by_column(self.groups))

    def model(self, rows: int = 1) -> TableModel:
        """Fit the tree to all noisy counts; a subject added at most `rows` rows' worth."""
        by_label = self._by_label()
        total = float(by_label.sum())
        tree = LabelTree(self.parents, self._start(by_label), by_label / total)
        tree.fit(self._clues(), total)
        label, conditionals = tree.conditionals()
        noise = self._fine_noise * sqrt(len(label))
        within = [
            within_groups(table.sum(axis=0), group, noise)
            for table, group in zip(self._fine, self.groups, strict=True)
        ]
        return TableModel(
            self._domain, self._utility, self.parents, tuple(self.groups), label, tuple(conditionals), tuple(within),
            total * rows,
        )  # fmt: skip

    def _start(self, by_label: Floats) -> list[Floats]:
        """Each column given the label and its parent: counts of single columns, and cliques that agree with them."""
        cliques = iter(self._cliques)
        tables = [next(cliques) if p >= 0 or len(self.parents) == 1 else None for p in self.parents]
        # Each column is seen in its own counts and in each of its cliques: the mean by precision.
        seen: list[list[tuple[Floats, Floats]]] = []
        for table, group in zip(self._fine, self.groups, strict=True):
            member = _members(group)
            seen.append([(table @ member.T, 1 / (member.sum(axis=1) * self._fine_noise**2))])
        for column, (parent, found) in enumerate(zip(self.parents, tables, strict=True)):
            if found is None:
                continue
            counts, std = found
            if parent < 0:
                seen[column].append((counts, np.full(counts.shape[1], std**-2)))
                continue
            for axis, place in ((1, column), (2, parent)):
                sums = counts.sum(axis=axis)
                seen[place].append((sums, np.full(sums.shape[1], 1 / (counts.shape[axis] * std**2))))
        single = []
        for parts in seen:
            precision = np.sum([weight for _, weight in parts], axis=0)
            mean = np.sum([counts * weight for counts, weight in parts], axis=0) / precision
            single.append(np.maximum(on_simplex(mean, by_label), _LEAST * by_label[:, None]))
        single = [part * (by_label / part.sum(axis=1))[:, None] for part in single]
        out = []
        for column, (parent, found) in enumerate(zip(self.parents, tables, strict=True)):
            if parent < 0 or found is None:
                counts = single[column][:, None, :]
            else:
                counts = consistent(found[0], single[parent], single[column])
            out.append(counts / counts.sum(axis=2, keepdims=True))
        return out

    def _clues(self) -> list[Clue]:
        """All noisy counts about cliques, on their own groups."""
        out = []
        widths = [int(group.max()) + 1 for group in self.groups]
        cliques = iter(self._cliques)
        for column, parent in enumerate(self.parents):
            above = widths[parent] if parent >= 0 else 1
            # Counts of single columns, merged: as many times the noise variance as cells were merged.
            member = _members(self.groups[column])
            size = member.sum(axis=1) * self._fine_noise**2
            counts = (self._fine[column] @ member.T)[:, None, :]
            out.append(
                Clue(column, np.ones((1, above)), np.eye(widths[column]), counts,
                     np.broadcast_to(1 / size, counts.shape))
            )  # fmt: skip
            if parent < 0 and len(self.parents) > 1:
                continue
            table, std = next(cliques)
            if parent < 0:
                table = table[:, None, :]
            out.append(Clue(column, np.eye(above), np.eye(widths[column]), table, np.full(table.shape, std**-2)))
            if parent >= 0:
                rough, std = self._pairs[min(parent, column), max(parent, column)]
                rough = rough if parent < column else rough.transpose(0, 2, 1)
                one, other = self._overlap(parent), self._overlap(column)
                out.append(Clue(column, one, other, rough, np.full(rough.shape, std**-2)))
        return out

    def _overlap(self, column: int) -> Floats:
        """Which part of each group lies in each rough group (rough groups, groups), by noisy counts."""
        counts = np.maximum(self._fine[column].sum(axis=0), 0.0) + 1e-9
        rough, fine = _members(self._coarse[column]), _members(self.groups[column])
        held = (rough * counts) @ fine.T
        share: Floats = held / held.sum(axis=0, keepdims=True)
        return share

    def _scores(self) -> Floats:
        n = len(self._others)
        out = np.zeros((n, n))
        single = [self._fine[i] @ _members(self._coarse[i]).T for i in range(n)]
        for (a, b), (table, std) in self._pairs.items():
            out[a, b] = out[b, a] = dependence(table, single[a], single[b], std**2)
        return out

    def _by_label(self) -> Floats:
        """The noisy count of each label, from all tables by their precision; none is below 1."""
        precision = np.array([1 / variance for _, variance in self._totals])
        found = np.array([counts for counts, _ in self._totals])
        out: Floats = np.maximum((precision[:, None] * found).sum(axis=0) / precision.sum(), 1.0)
        return out

    def _merged(self, tables: int, room: float, most: int) -> list[Codes]:
        """Groups of every column, so many that a cell of a pair of columns holds more than noise."""
        by_label = self._by_label()
        std = self._noise / sqrt(self.share * _ALL / tables)
        fits = int(sqrt(by_label.sum() / (room * std * len(by_label))))
        groups = min(max(fits, _LEAST_GROUPS), most)
        noise = self._fine_noise * sqrt(len(by_label))
        while True:
            found = [
                merge_cells(self._domain.columns[i], table.sum(axis=0), noise, groups)
                for i, table in zip(self._others, self._fine, strict=True)
            ]
            widest = max(int(group.max()) + 1 for group in found)
            # The payment is made: more cells than can be counted would waste it.
            if groups == 2 or tables * len(by_label) * widest**2 <= MOST_CELLS:
                return found
            groups -= 1

    def _by_column(self, groups: Sequence[Codes]) -> list[Codes]:
        out = list(self._cells)
        for i, group in zip(self._others, groups, strict=True):
            out[i] = group
        return out

    def _query(self, tables: Sequence[tuple[int, ...]], groups: Sequence[Codes]) -> CountQuery:
        return CountQuery(tuple(tables), tuple(groups), (_ALL / len(tables),) * len(tables))


def _members(group: Codes) -> Floats:
    """Which cells each group has (groups, cells), as 0 and 1."""
    out: Floats = (group == np.arange(group.max() + 1)[:, None]).astype(np.float64)
    return out
