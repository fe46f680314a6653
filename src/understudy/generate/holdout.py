"""A tenth of the records for early stopping, chosen so that no person is on both sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understudy.data import kfold
from understudy.generate.base import Records
from understudy.types import EmbeddingSet

__all__ = ["hold_out"]

FOLDS = 10


def hold_out(records: Records, rng: np.random.Generator) -> tuple[Records, Records | None]:
    """Training and held-out records; classes of fewer than ten records are left whole.

    Where nothing can be spared the second part is None.
    """
    labels = records.codes[:, 0]
    people = np.arange(len(labels)) if records.subject is None else records.subject
    if len(np.unique(people)) < FOLDS:
        return records, None
    _, test = next(iter(kfold(EmbeddingSet(records.X, labels, records.subject), FOLDS, rng)))
    held = np.zeros(len(labels), dtype=bool)
    held[test] = True
    for c in np.unique(labels):
        if (labels == c).sum() < FOLDS or held[labels == c].all():
            held &= ~np.isin(people, people[labels == c])
    return (_take(records, ~held), _take(records, held)) if held.any() else (records, None)


def _take(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    people = None if records.subject is None else records.subject[mask]
    return Records(records.X[mask], records.codes[mask], people, records.conditions)
