"""Accuracy by how many records a class had to learn from: many, medium or few shots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError
from understudy.metrics import clopper_pearson
from understudy.types import Estimate

__all__ = ["ClassAccuracy", "accuracy_by_class", "accuracy_by_shots", "shot_group"]

Shots = Literal["many", "medium", "few"]


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """One class: its training records, the group that they put it in, and its accuracy on the test set."""

    label: Any
    records: int
    shots: Shots
    accuracy: Estimate


def shot_group(records: int) -> Shots:
    """The group of a class with so many training records: many above 100, medium from 21, few up to 20.

    >>> [shot_group(n) for n in (101, 100, 21, 20, 0)]
    ['many', 'medium', 'medium', 'few', 'few']
    """
    if records > 100:
        return "many"
    return "medium" if records > 20 else "few"


def accuracy_by_class(y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> list[ClassAccuracy]:
    """One row for each class of the test set, from the one with most training records to the rarest.

    Intervals are exact binomial ones: they cover the choice of test records, not that of training records or seeds.
    A class that training never saw has 0 records; one that the test set lacks has no row.

    >>> table = accuracy_by_class(["a", "b", "b"], ["a", "a", "b"], ["a", "b", "b"])
    >>> [(row.label, row.records, row.accuracy.value) for row in table]
    [('b', 2, 1.0), ('a', 1, 0.5)]
    """
    sizes, truth, right = _counted(y_train, y_true, y_pred)
    rows = []
    for c in np.unique(truth).tolist():
        mine = right[truth == c]
        n = sizes.get(c, 0)
        rows.append(ClassAccuracy(c, n, shot_group(n), clopper_pearson(int(mine.sum()), len(mine))))
    return sorted(rows, key=lambda row: -row.records)


def accuracy_by_shots(y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> Mapping[str, Estimate]:
    """Share of right test records: overall, then among the classes of each group that the test set has.

    Intervals as in `accuracy_by_class`. On a test set of equal classes a group's figure is also the mean over its
    classes; on another, its large classes count for more.

    >>> found = accuracy_by_shots([0] * 150 + [1] * 20, [0, 0, 1, 1], [0, 0, 0, 1])
    >>> {name: e.value for name, e in found.items()}
    {'overall': 0.75, 'many': 1.0, 'few': 0.5}
    """
    sizes, truth, right = _counted(y_train, y_true, y_pred)
    group = np.array([shot_group(sizes.get(c, 0)) for c in truth.tolist()])
    found = {"overall": clopper_pearson(int(right.sum()), len(right))}
    for name in ("many", "medium", "few"):
        mine = right[group == name]
        if len(mine):
            found[name] = clopper_pearson(int(mine.sum()), len(mine))
    return found


def _counted(
    y_train: npt.ArrayLike, y_true: npt.ArrayLike, y_pred: npt.ArrayLike
) -> tuple[dict[Any, int], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Training records by class, the true labels, and which of them were found."""
    train, truth, guess = (np.asarray(a) for a in (y_train, y_true, y_pred))
    if train.ndim != 1 or truth.ndim != 1 or truth.shape != guess.shape or not len(truth):
        raise DataError(
            f"Labels must be columns, with one prediction for each true label; got shapes {train.shape} (training), "
            f"{truth.shape} (true) and {guess.shape} (predicted)."
        )
    # Text never equals a number: all would be wrong, and no class would have a record.
    if len({a.dtype.kind in "USO" for a in (train, truth, guess)}) > 1:
        raise DataError(
            f"Labels must be of one kind; got {train.dtype} (training), {truth.dtype} (true) and {guess.dtype} "
            "(predicted)."
        )
    classes, counts = np.unique(train, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True)), truth, truth == guess
