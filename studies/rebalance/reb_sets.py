"""Long-tailed sets of the studies of rare classes, the thesis' head, and accuracy by groups of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.recipes import study_set, study_splits

Array = npt.NDArray[Any]
# The thesis' head: on raw embeddings.
HEAD = {"batch_size": 256, "max_epochs": 10, "patience": None, "standardize": False}
GROUPS = ("overall", "many", "medium", "few", "tail")


def records(name: str, split: str) -> tuple[Array, Array]:
    """Vectors and labels of one split."""
    found = study_splits(name)[split]
    return found.X, found.y


def by_group(train: Array, truth: Array, guess: Array) -> dict[str, float]:
    """Mean of class accuracies in percent, over all classes and over each group; `tail` is 100 records or fewer."""
    sizes = np.bincount(train, minlength=int(truth.max()) + 1)
    tested = np.bincount(truth, minlength=len(sizes)) > 0
    right = np.array([(guess[truth == c] == c).mean() if tested[c] else 0.0 for c in range(len(sizes))]) * 100
    groups = {name: in_group(sizes, name) & tested for name in GROUPS}
    return {name: float(right[mine].mean()) for name, mine in groups.items() if mine.any()}


def in_group(sizes: Array, group: str) -> Array:
    """Which classes belong to a group, by their training records."""
    low, high = {
        "overall": (0, np.inf),
        "many": (100, np.inf),
        "medium": (20, 100),
        "few": (0, 20),
        "tail": (0, 100),
    }[group]
    return (sizes > low) & (sizes <= high)


# Minutes of one core: 500 epochs of each CVAE on all records of ratio 100, and ten epochs of a head on them.
CVAE_MINUTES = {"small": 14.5, "large": 27.0}
HEAD_MINUTES = 0.05
WHOLE = 12406


def share(name: str) -> float:
    """How many records a set has, as a share of those that the minutes are for."""
    return (study_set(name).records or len(records(name, "train")[1])) / WHOLE


def groups_of(figures: Mapping[str, Any], wanted: Sequence[str] = GROUPS) -> list[str]:
    """The groups that have classes in a set, by the figures of one of its cells."""
    return [group for group in wanted if group in figures]


def cvae_minutes(name: str, preset: str, epochs: int) -> float:
    """About how many minutes of one core a CVAE takes on all training records of a set."""
    return share(name) * CVAE_MINUTES[preset] * epochs / 500
