"""Long-tailed sets of the studies of rare classes, the thesis' head, and accuracy by groups of classes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import read_embeddings
from locum.recipes.study import data_folder

Array = npt.NDArray[Any]
TITLES = {"lt100": "CIFAR-10 LT, ratio 100", "lt1000": "CIFAR-10 LT, ratio 1000"}
THINNED = (5000, 2320, 1077, 500, 232, 107, 50, 23, 10, 5)
# The thesis' head: on raw embeddings.
HEAD = {"batch_size": 256, "max_epochs": 10, "patience": None, "standardize": False}
GROUPS = ("overall", "many", "medium", "few", "tail")


@cache
def records(name: str, split: str) -> tuple[Array, Array]:
    """Training records, thinned by a fixed seed for ratio 1000; the test set is the same for both."""
    found = read_embeddings(data_folder() / "cifar10lt_efflite0.npz", split)
    if name == "lt100" or split == "test":
        return found.X, found.y
    rng = np.random.default_rng(0)
    keep = [rng.permutation(np.flatnonzero(found.y == c))[:n] for c, n in enumerate(THINNED)]
    rows = np.sort(np.concatenate(keep))
    return found.X[rows], found.y[rows]


def by_group(train: Array, truth: Array, guess: Array) -> dict[str, float]:
    """Mean of class accuracies in percent, over all classes and over each group; `tail` is 100 records or fewer."""
    sizes = np.bincount(train, minlength=10)
    right = np.array([(guess[truth == c] == c).mean() for c in range(10)]) * 100
    groups = {name: in_group(sizes, name) for name in GROUPS}
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
SHARE = {"lt100": 1.0, "lt1000": sum(THINNED) / 12406}


def cvae_minutes(name: str, preset: str, epochs: int) -> float:
    """About how many minutes of one core a CVAE takes on all training records of a set."""
    return SHARE[name] * CVAE_MINUTES[preset] * epochs / 500
