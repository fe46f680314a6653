"""k-Same: every record is replaced by the mean of a group of k. The rival of the replica seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError, DataError
from understudy.generate.base import BaseGenerator, Learnt, Records
from understudy.generate.grouping import k_groups
from understudy.release import RowsSpec, to_space
from understudy.types import PrivacyClaim

__all__ = ["KSame"]


class KSame(BaseGenerator):
    """Groups of at least `k` records, each replaced by its group's mean; every record keeps its own label.

    Groups are formed over all classes, as the authors do, or within each with `per_class=True`. Nothing is
    dropped: the last group takes the rest. With `subject` a group holds at least `k` different people.
    A release has exactly as many rows as there are records, given without replacement.
    """

    def __init__(
        self,
        k: int = 5,
        per_class: bool = False,
        space: str = "raw",
        privacy: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.k = k
        self.per_class = per_class
        self.space = space
        self.privacy = privacy
        self.random_state = random_state

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learnt:
        if isinstance(self.k, bool) or not isinstance(self.k, (int, np.integer)) or self.k < 2:
            raise ConfigError(f"`k` must be a whole number, 2 or more; got {self.k!r}.")
        X, labels = records.X, records.codes[:, 0]
        means = np.empty_like(X)
        parts = [np.flatnonzero(labels == c) for c in np.unique(labels)] if self.per_class else [np.arange(len(X))]
        for rows in parts:
            people = None if records.subject is None else records.subject[rows]
            size = len(rows) if people is None else len(np.unique(people))
            if size < self.k:
                what = f"class {self.classes_[labels[rows[0]]]!r}" if self.per_class else "the data"
                unit = "records" if people is None else "subjects"
                remedy = "group over all classes (per_class=False)" if self.per_class else "choose a smaller k"
                raise DataError(f"k-Same needs at least k={self.k} {unit}; {what} has {size}: {remedy}.")
            means[rows] = _group_means(X[rows], k_groups(X[rows], int(self.k), people))
        # A mean of equal vectors is that vector, up to rounding.
        copied = (np.abs(means - X) <= 1e-6 * np.abs(X)).all(axis=1).any()
        means = to_space(means, self.space)
        # In the order of the data a row's place would tell whose group it is; sorted, no seed can bring it back.
        order = np.lexsort((labels, *means.T[:8]))
        claim = PrivacyClaim(
            kind="k-anonymity",
            k=int(self.k),
            unit="record" if records.subject is None else "subject",
            not_covered=(
                "labels: each record's own label is released beside its group's mean",
                "the number of records: the release has as many rows",
                "attackers who know other members of a group: they can subtract them from the mean",
                "a person with most of the records of a group: its mean is nearly theirs",
                "membership: a record lies closer to its group's mean than a stranger does",
            ),
        )
        settings = self._public_settings()
        refusal = (
            "A group of identical records would be released as it is. Drop repeated records, or give `subject`."
            if copied
            else None
        )
        tensors: dict[str, npt.NDArray[Any]] = {"X": means[order], "codes": records.codes[order][:, :1]}
        return Learnt(RowsSpec(), tensors, claim, settings, refusal)


def _group_means(X: npt.NDArray[np.float32], groups: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    sums = np.zeros((int(groups.max()) + 1, X.shape[1]))
    np.add.at(sums, groups, X)
    means: npt.NDArray[np.float32] = (sums / np.bincount(groups)[:, None]).astype(np.float32)
    return means[groups]
