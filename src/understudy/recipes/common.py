"""Steps that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from understudy.data import read_splits
from understudy.errors import ConfigError, DataError
from understudy.release import Release
from understudy.types import EmbeddingSet

__all__ = ["aligned", "choose_split", "pick_split"]


def pick_split(path: str, *preferred: str) -> EmbeddingSet:
    """The part of a file that a verb wants: what `FILE#split` names, else the first of `preferred` it has."""
    return choose_split(read_splits(path), path, *preferred)


def choose_split(splits: Mapping[str, EmbeddingSet], path: str, *preferred: str) -> EmbeddingSet:
    """The same for a file that has been read; `path` is for the error."""
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
    if not release.info.same_source(data.info):
        raise DataError(
            f"The release was made from {release.info.backbone!r} vectors "
            f"(preprocessing {release.info.preprocessing or 'not given'!r}); the {what} data hold "
            f"{data.info.backbone!r} ({data.info.preprocessing or 'not given'!r}). Embed them as the release says."
        )
    return release.transform(data.X), data.with_classes(release.info.class_names).y
