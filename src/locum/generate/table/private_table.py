"""A table that is learned privately: noisy counts of columns, of pairs, and of a tree of columns with the label."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from locum.accounting import QueryPlan, plan_query
from locum.errors import ConfigError, DataError, NotFittedError, PrivacyError
from locum.generate.private.guarantee import Guarantee
from locum.generate.private.paid_sums import PaidSums, identity_of
from locum.generate.table.columns import CategoryColumn
from locum.generate.table.counts import row_weights
from locum.generate.table.domain import MOST_LABELS, TableDomain
from locum.generate.table.learner import TableLearner, shares_of
from locum.generate.table.model import TableModel
from locum.io import hold_folder
from locum.types import DP, PrivacyClaim

if TYPE_CHECKING:
    import pandas as pd

NOT_COVERED = (
    "the fact that the table passed the checks before the fit: two records or more, only values that the domain "
    "declares, a subject for every record where subjects are the unit, at most 1 / (10 delta) units and 16 million "
    "records",
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
    >>> private.claim_.kind, bool(0.7 < (drawn["smokes"][drawn["job"] == "cook"] == "yes").mean() < 0.9)
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
        return plan_query(self._budget(), sums=len(shares_of(self.domain)))

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
            learner = TableLearner(self.domain, self.utility, paid.plan.noise_multiplier)
            while not learner.done:
                query, share = learner.query, learner.share
                learner.take(paid.draw(partial(query.sums, codes, weights), share))
            self.transcript_ = paid.finish()
        # Post-processing from here on: no record is used, so it costs nothing, and anyone can repeat it.
        self.plan_, self.rows_per_subject_ = paid.plan, self.rows_per_subject if owners is not None else 1
        self.model_ = learner.model(self.rows_per_subject_)
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
