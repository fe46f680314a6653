"""Steps that several verbs share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError, DataError
from understudy.metrics import accuracy, clopper_pearson, score_all
from understudy.recipes.images import read_sets
from understudy.release import Release
from understudy.types import EmbeddingInfo, EmbeddingSet, Estimate

__all__ = [
    "GENERATED",
    "aligned",
    "check_new_file",
    "check_source",
    "choose_split",
    "only_real",
    "pick_split",
    "scored",
]

Part = TypeVar("Part")
# The attribute by which `rebalance` marks its rows.
GENERATED = "generated"


def pick_split(
    path: str, *preferred: str, like: EmbeddingInfo | None = None, backbone: str | None = None
) -> EmbeddingSet:
    """The part of a file that a verb wants: what `FILE#split` names, else the first of `preferred` it has.

    Images are embedded as the vectors `like` were, or by the default backbone; see `read_sets`.
    """
    return choose_split(read_sets(path, like=like, backbone=backbone), path, *preferred)


def choose_split(splits: Mapping[str, Part], path: str, *preferred: str) -> Part:
    """The same for whatever has been read from a file in splits; `path` is for the error."""
    if len(splits) == 1:
        return next(iter(splits.values()))
    for name in preferred:
        if name in splits:
            return splits[name]
    raise ConfigError(f"{path!r} has the splits {', '.join(splits)}; say which with {path}#{next(iter(splits))}.")


def aligned(release: Release, data: EmbeddingSet, what: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Real vectors in the release's space, with class codes in the release's order.

    Vectors of another backbone, of another width or of classes that the release does not know are refused:
    a figure computed on them would mean nothing.
    """
    check_source(release.info, data.info, what)
    return release.transform(data.X), data.with_classes(release.info.class_names).y


def check_source(expected: EmbeddingInfo, given: EmbeddingInfo, what: str) -> None:
    """Refuse vectors that another backbone made, or another preparation of images; `what` says whose they are.

    Vectors that nobody described pass: then only their width can be checked.
    """
    if not expected.same_source(given):
        raise DataError(
            f"The {what} data hold {_source(given)}, but {_source(expected)} are needed: vectors of two models, or "
            "of images prepared in two ways, cannot be mixed. Embed them in the same way."
        )


def _source(info: EmbeddingInfo) -> str:
    revision = f"revision {info.revision!r}, " if info.revision else ""
    return f"{info.backbone!r} vectors ({revision}preprocessing {info.preprocessing or 'not given'!r})"


def scored(y: npt.NDArray[np.int64], proba: npt.NDArray[np.float64]) -> dict[str, Estimate]:
    """Accuracy, balanced accuracy, AUC and macro F1 of one classifier, with intervals over the records.

    `y` holds columns of `proba`. Accuracy has its exact interval. The others draw records anew within each class,
    which is too narrow under about 30 records a class; where no draw differs, the exact interval of the smallest
    class stands in, because a perfect score is no certainty. Records of a single class have an accuracy and
    nothing else.
    """
    n, classes = len(y), np.arange(proba.shape[1])
    right = round(accuracy(y, proba.argmax(axis=1)) * n)
    out = {"accuracy": clopper_pearson(right, n)}
    members = [np.flatnonzero(y == c) for c in np.unique(y)]
    if len(members) < 2:
        return out
    rng = np.random.default_rng(0)
    draws = []
    # As many as a second or two allows: large sets need few.
    for _ in range(min(500, max(100, 1_000_000 // n))):
        pick = np.concatenate([rows[rng.integers(len(rows), size=len(rows))] for rows in members])
        draws.append(score_all(y[pick], proba[pick], classes))
    smallest = min(len(rows) for rows in members)
    slack = 1 - clopper_pearson(smallest, smallest).low
    for name, value in score_all(y, proba, classes).items():
        if name in ("balanced_accuracy", "auc", "f1_macro"):
            low, high = np.quantile([draw[name] for draw in draws], [0.025, 0.975]).tolist()
            if low == high:
                low, high = value - slack, value + slack
            out[name] = Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)), n)
    return out


def only_real(data: EmbeddingSet, what: str) -> EmbeddingSet:
    """`data`, if all of it is real, as far as it says; `what` says whose they are."""
    if GENERATED in data.attributes and (data.attributes[GENERATED].astype(np.str_) != "no").any():
        raise DataError(
            f'The {what} data hold generated records: their attribute `{GENERATED}` is not all "no". Give the real '
            "ones alone."
        )
    return data


def check_new_file(path: Path, *, overwrite: bool) -> None:
    """A file can be written there: what would fail at the end is said before the work."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder: give the name of a file in it.")
    if path.exists() and not overwrite:
        raise ConfigError(f"{str(path)!r} exists already. Choose another file, or overwrite it with --force.")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"{str(path)!r} cannot be written: its folder does not exist. Create it first.")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{str(path)!r} cannot be written: check the permissions of its folder.")
