"""A table that is learned privately: noisy counts of columns, of pairs, and of a tree of columns with the label."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from locum.accounting import QueryPlan, plan_query
from locum.errors import ConfigError, DataError, NotFittedError, PrivacyError
from locum.generate.private.guarantee import Guarantee
from locum.generate.private.paid_sums import PaidSums, identity_of
from locum.generate.table.columns import CategoryColumn, Codes
from locum.generate.table.counts import CountQuery, row_weights
from locum.generate.table.domain import TableDomain
from locum.generate.table.groups import merge_cells, within_groups
from locum.generate.table.model import TableModel
from locum.generate.table.tree import Clue, LabelTree, best_tree, dependence
from locum.io import hold_folder
from locum.types import DP, PrivacyClaim

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
# Shares of the precision: each column with the label, all pairs with the label, the tree.
SHARES = (0.15, 0.25, 0.6)
# A table alone, without pairs to choose from.
_LONE = (0.5, 0.5)
# Records that a cell should hold on average, in standard deviations of its noise: of pairs, and of the tree.
ROOM = (6.0, 2.0)
# Groups of a column, at most.
_MOST_PAIRED, _MOST_GROUPS = 12, 40
# Values of a label: every clique has it.
MOST_LABELS = 50
# Tables of a draw share a little less than all of it, so that rounding cannot exceed it.
_ALL = 1 - 2.0**-20
NOT_COVERED = (
    "that the table passed the checks before the fit: two records or more, only values that the domain declares, a "
    "subject for every record where subjects are the unit, at most 1 / (10 delta) units and 16 million records",
    "the domain (columns, categories, ranges), epsilon, delta and `rows_per_subject`: chosen by the holder, not "
    "hidden",
)


class PrivateTable(Guarantee, BaseEstimator):
    """A table whose sampled rows carry a guarantee of differential privacy.

    It learns the distribution of a label and, given it, of all other columns, from noisy counts that a ledger pays
    for: first of each column with the label, then of all pairs, roughly, then of a tree of columns that is chosen by
    those. Each draw is charged to one payment. Everything else is computed from the noisy counts.

    Rows from `sample` carry the claim. Rows from `transform` do not: there is one for each real record, with its true
    label.

    Parameters
    ----------
    domain
        The declared columns, the utility among them.
    utility
        The label: a declared column of categories. It is part of every count.
    privacy
        The budget. With the unit "subject" all records of a subject are hidden together.
    rows_per_subject
        With the unit "subject": how many rows' worth a subject may add. 1: each subject counts once, with the mean of
        its rows. More keeps subjects with many rows closer to their weight, and needs as many times the noise.
    ledger
        The ledger that pays, such as `locum.ledger_for(path)`.
    holding
        The name of the data in the ledger.
    insecure_seed
        A seed for the noise, for tests: nothing is paid and nothing claimed.
    checkpoint
        A private file from which a killed fit goes on without paying again; `remove_checkpoint` deletes it.

    Attributes
    ----------
    model_
        What was learned, a `TableModel`.
    claim_
        What rows from `sample` may claim.
    transcript_
        All noisy counts.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from locum.generate.table import PrivateTable, TableDomain
    >>> from locum.types import DP
    >>> rng = np.random.default_rng(0)
    >>> staff = pd.DataFrame({"age": rng.integers(20, 70, 4000), "job": rng.choice(["cook", "nurse"], 4000)})
    >>> staff["smokes"] = np.where(rng.random(4000) < np.where(staff["job"] == "cook", 0.8, 0.2), "yes", "no")
    >>> domain = TableDomain.from_dict({"columns": {
    ...     "age": {"low": 18, "high": 80, "whole": True},
    ...     "job": {"values": ["cook", "nurse"]},
    ...     "smokes": {"values": ["no", "yes"]},
    ... }})
    >>> private = PrivateTable(domain, "smokes", DP(1.0, 1e-6), ledger="table-ledger.sqlite").fit(staff)
    >>> drawn = private.sample(4000, random_state=0)
    >>> private.claim_.kind, 0.7 < (drawn["smokes"][drawn["job"] == "cook"] == "yes").mean() < 0.9
    ('dp', True)
    """

    def __init__(
        self,
        domain: TableDomain,
        utility: str,
        privacy: DP,
        rows_per_subject: int = 1,
        ledger: str | Path | None = None,
        holding: str = "default",
        insecure_seed: int | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.domain = domain
        self.utility = utility
        self.privacy = privacy
        self.rows_per_subject = rows_per_subject
        self.ledger = ledger
        self.holding = holding
        self.insecure_seed = insecure_seed
        self.checkpoint = checkpoint

    _SUPPORTS_DP = True
    _NEEDS_SIZE = False
    model_: TableModel
    claim_: PrivacyClaim
    transcript_: npt.NDArray[np.float32]

    @property
    def classes(self) -> Sequence[Any]:  # type: ignore[override]
        """The declared values of the utility."""
        return self._label().values

    def plan(self) -> QueryPlan:
        """What a fit will do and cost, from the settings alone."""
        return plan_query(self._budget(), sums=len(self._shares()))

    def fit(self, frame: pd.DataFrame, subject: Any = None) -> Self:
        """Learn from a table, and pay for it.

        Parameters
        ----------
        frame
            The declared columns, in any order. A column's type must not depend on single records: read a file as
            text, or with types that are set beforehand.
        subject
            The subject of each row, with the unit "subject".

        Returns
        -------
        PrivateTable
            Itself.
        """
        self._label()
        self._check_privacy(subject)
        codes = self.domain.codes(frame)
        if len(codes) < 2:
            raise DataError("A fit needs two records or more; the data hold fewer.")
        owners = self._subjects(subject)
        if owners is not None and owners.shape != (len(codes),):
            raise DataError(f"`subject` needs one entry per record ({len(codes)}); got shape {owners.shape}.")
        self._check_size(len(codes), len(codes) if owners is None else int(owners.max()) + 1)
        weights = row_weights(len(codes), owners, self.rows_per_subject if owners is not None else 1)
        checkpoint = None if self.checkpoint is None else Path(self.checkpoint)
        # Two processes with one checkpoint would overwrite each other's payment.
        alone = nullcontext() if checkpoint is None else hold_folder(checkpoint)
        with alone, self._open_ledger() as ledger:
            paid = PaidSums(
                self.plan(),
                ledger,
                self.holding,
                type(self).__name__,
                insecure_seed=self.insecure_seed,
                checkpoint=checkpoint,
                identity=identity_of(self._identity(), codes, owners),
            )
            learner = _Learner(self.domain, self.domain.names.index(self.utility), paid.plan.noise_multiplier)
            for share in self._shares():
                query = learner.next_query(share)
                learner.take(query, paid.draw(partial(query.sums, codes, weights), share), share)
            self.transcript_ = paid.finish()
        # Post-processing from here on: no record is used, so it costs nothing, and anyone can repeat it.
        rows = self.rows_per_subject if owners is not None else 1
        self.model_ = learner.model(self.utility, rows)
        self.claim_ = self._dp_claim(paid.charge, *NOT_COVERED)
        return self

    def sample(self, n: int | None = None, *, random_state: int | None = None) -> pd.DataFrame:
        """Rows drawn from what was learned; they carry `claim_`. See `TableModel.sample`."""
        return self._fitted().sample(n, random_state=random_state)

    def transform(self, frame: pd.DataFrame, *, random_state: int | None = None) -> pd.DataFrame:
        """One row for each record of `frame`, drawn given its true label. No guarantee covers these rows.

        Their number and their labels are those of the records. See `TableModel.given`.
        """
        return self._fitted().given(frame[self.utility], random_state=random_state)

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint, once the folder is saved: its noisy counts are there."""
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)

    def _fitted(self) -> TableModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("This PrivateTable is not fitted yet; call `fit` first.")
        return self.model_

    def _shares(self) -> tuple[float, ...]:
        return SHARES if len(self.domain.columns) > 2 else _LONE

    def _label(self) -> CategoryColumn:
        if not isinstance(self.domain, TableDomain):
            raise PrivacyError(
                "Under differential privacy the values that occur are private too: declare them with "
                "`domain=TableDomain(...)` (--domain FILE)."
            )
        found = [column for column in self.domain.columns if column.name == self.utility]
        if not found or not isinstance(found[0], CategoryColumn) or not 2 <= found[0].cells <= MOST_LABELS:
            raise ConfigError(
                f"The utility {self.utility!r} must be a declared column with 2 to {MOST_LABELS} categories."
            )
        return found[0]

    def _identity(self) -> dict[str, Any]:
        """What makes a fit this fit, besides the records. It stays local."""
        settings = {k: str(v) for k, v in self.get_params(deep=False).items() if k not in ("checkpoint", "domain")}
        return {**settings, "domain": self.domain.to_dict()}


class _Learner:
    """Decides from noisy counts what is counted next, and fits a tree to all of them. It never sees a record."""

    def __init__(self, domain: TableDomain, label: int, noise: float) -> None:
        self._domain, self._label, self._noise = domain, label, noise
        self._others = [i for i in range(len(domain.columns)) if i != label]
        self._cells = [np.arange(count) for count in domain.cells]
        self._taken = 0
        self._fine: list[Floats] = []
        self._fine_noise = 0.0
        self._totals: list[tuple[Floats, float]] = []
        self._coarse: list[Codes] = []
        self._pairs: dict[tuple[int, int], tuple[Floats, float]] = {}
        self.groups: list[Codes] = []
        self.parents: tuple[int, ...] = ()
        self._cliques: list[tuple[Floats, float]] = []

    def next_query(self, share: float) -> CountQuery:
        """The next tables: columns, then pairs, then the tree."""
        if self._taken == 0:
            return self._query([(self._label, i) for i in self._others], self._cells)
        if self._taken == 1 and len(self._others) > 1:
            pairs = list(combinations(range(len(self._others)), 2))
            self._coarse = self._merged(len(pairs), share, ROOM[0], _MOST_PAIRED)
            paired = [(self._label, self._others[a], self._others[b]) for a, b in pairs]
            return self._query(paired, self._by_column(self._coarse))
        if len(self._others) > 1:
            self.parents = best_tree(self._scores())
        else:
            self.parents = (-1,)
        tables: list[tuple[int, ...]] = [
            (self._label, self._others[parent], self._others[column])
            for column, parent in enumerate(self.parents)
            if parent >= 0
        ] or [(self._label, self._others[0])]
        self.groups = self._merged(len(tables), share, ROOM[1], _MOST_GROUPS)
        return self._query(tables, self._by_column(self.groups))

    def take(self, query: CountQuery, drawn: Floats, share: float) -> None:
        """Keep the noisy counts of the last query."""
        tables, noise = query.tables_of(drawn), query.deviations(self._noise / sqrt(share))
        for table, std in zip(tables, noise, strict=True):
            rest = table.reshape(len(table), -1)
            self._totals.append((rest.sum(axis=1), rest.shape[1] * std**2))
        if self._taken == 0:
            self._fine, self._fine_noise = tables, noise[0]
        elif query.tables and len(query.tables[0]) == 3 and not self.groups:
            pairs = combinations(range(len(self._others)), 2)
            self._pairs = dict(zip(pairs, zip(tables, noise, strict=True), strict=True))
        else:
            self._cliques = list(zip(tables, noise, strict=True))
        self._taken += 1

    def model(self, utility: str, rows: int) -> TableModel:
        """Fit the tree to all noisy counts."""
        by_label = self._by_label()
        total = float(by_label.sum())
        starts = []
        for table, group in zip(self._fine, self.groups, strict=True):
            counts = np.maximum(_members(group) @ table.T, 0.5).T
            starts.append(counts / counts.sum(axis=1, keepdims=True))
        tree = LabelTree(self.parents, starts, by_label / total)
        tree.fit(self._clues(), total)
        label, conditionals = tree.conditionals()
        noise = self._fine_noise * sqrt(len(label))
        within = [
            within_groups(table.sum(axis=0), group, noise)
            for table, group in zip(self._fine, self.groups, strict=True)
        ]
        return TableModel(
            self._domain, utility, self.parents, tuple(self.groups), label, tuple(conditionals), tuple(within),
            total * rows,
        )  # fmt: skip

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

    def _merged(self, tables: int, share: float, room: float, most: int) -> list[Codes]:
        """Groups of every column, so many that a cell of a pair of columns holds more than noise."""
        by_label = self._by_label()
        std = self._noise / sqrt(share * _ALL / tables)
        fits = int(sqrt(by_label.sum() / (room * std * len(by_label))))
        groups = min(max(fits, 3), most)
        noise = self._fine_noise * sqrt(len(by_label))
        return [
            merge_cells(self._domain.columns[i], table.sum(axis=0), noise, groups)
            for i, table in zip(self._others, self._fine, strict=True)
        ]

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
