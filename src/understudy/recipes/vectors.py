"""What a receiver wants predicted: vectors, with labels where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from understudy.data.assemble import WHOLE
from understudy.embed import holds_images
from understudy.errors import DataError
from understudy.recipes.common import check_source, pick_split
from understudy.recipes.images import Progress, embedded, parted
from understudy.types import EmbeddingInfo

__all__ = ["Vectors", "read_vectors"]


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Rows to predict.

    `y` holds codes into the class names that were asked for, -1 for a label outside them, and is None where no
    label is known. `names` tell the rows apart: their numbers, or the paths of images. `problems` are the names of
    images that could not be read, each with a reason.
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64] | None
    names: Sequence[str]
    problems: tuple[tuple[str, str], ...] = ()


def read_vectors(
    data: str, info: EmbeddingInfo, *, backbone: str | None = None, progress: Progress | None = None
) -> Vectors:
    """Vectors of the test split of `data`, else val, else all of it; images are embedded as `info` demands.

    Vectors of another backbone are refused. Images need no labels, and those that cannot be read are left out.
    """
    file, split = parted(data)
    if holds_images(file):
        return _from_images(file, split, info, backbone, progress)
    given = pick_split(data, "test", "val")
    check_source(info, given.info, "given")
    return Vectors(given.X, _codes(given.info, info)[given.y], [str(i) for i in range(len(given))])


def _from_images(
    file: str, split: str | None, info: EmbeddingInfo, backbone: str | None, progress: Progress | None
) -> Vectors:
    with embedded(file, split=split, like=info, backbone=backbone, progress=progress) as done:
        found = [item.split for item in done.items]
        # Splits that are there, readable or not: train must never stand in for a test split that is damaged.
        there = {item.split for item in done.source_items}
        wanted = split or next(s for s in ("test", "val", "train", WHOLE) if s in there)
        rows = [i for i, name in enumerate(found) if name == wanted]
        if not rows:
            raise DataError(
                f"{file!r} has no image that can be read in {wanted!r}: it has some in {sorted(set(found))}."
            )
        X = done.store.get([done.contents[i] for i in rows])
        y = None
        if done.labelled:
            place = {name: code for code, name in enumerate(done.info.class_names)}
            own = np.array([place[str(done.items[i].label)] for i in rows])
            y = _codes(done.info, info)[own]
        return Vectors(X, y, [done.items[i].name for i in rows], done.problems)


def _codes(given: EmbeddingInfo, wanted: EmbeddingInfo) -> npt.NDArray[np.int64]:
    """For each class that is given, its code among those that are wanted; -1 where it has none."""
    place = {name: code for code, name in enumerate(wanted.class_names)}
    return np.array([place.get(name, -1) for name in given.class_names], dtype=np.int64)
