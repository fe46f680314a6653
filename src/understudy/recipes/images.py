"""Data that are images: embedded on the way in, so that every verb takes a folder where it takes a file."""

from __future__ import annotations

from collections.abc import Callable

from understudy.data import read_splits
from understudy.data.assemble import SPLITS
from understudy.embed import (
    DEFAULT_BACKBONE,
    Embedded,
    backbone_for,
    embed_images,
    holds_images,
    load_backbone,
    open_images,
)
from understudy.embed.store import can_keep
from understudy.errors import ConfigError, DataError
from understudy.types import EmbeddingInfo, EmbeddingSet

__all__ = ["embedded", "parted", "read_sets"]

Progress = Callable[[int, int, str], None]


def parted(path: str) -> tuple[str, str | None]:
    """Path and split of `PATH#train`; of a path without a split, the path."""
    file, mark, split = path.rpartition("#")
    return (file, split) if mark and split in SPLITS else (path, None)


def read_sets(
    path: str,
    *,
    like: EmbeddingInfo | None = None,
    backbone: str | None = None,
    progress: Progress | None = None,
) -> dict[str, EmbeddingSet]:
    """Every split of a file of vectors or of images; images are embedded as the vectors `like` were.

    Without `like` the backbone is `backbone` or the default; with it, `backbone` says where a model of one's own is.
    An image that cannot be read is an error here: only `embed` goes on without it, and lists it.
    """
    file, split = parted(path)
    if not holds_images(file):
        if backbone is not None and like is None:
            raise ConfigError(f"{path!r} holds vectors, not images: leave --backbone out.")
        return read_splits(path)
    with embedded(file, like=like, backbone=backbone, progress=progress) as done:
        if done.problems:
            raise DataError(
                f"{len(done.problems)} of {len(done.problems) + len(done.items)} images of {file!r} cannot be read: "
                f"run `understudy embed {file} -o FILE`, which lists them and goes on without them, and use FILE."
            )
        sets = done.sets()
    if split is None:
        return sets
    if split not in sets:
        raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(sets)}.")
    return {split: sets[split]}


def embedded(
    file: str,
    *,
    like: EmbeddingInfo | None = None,
    backbone: str | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Images as vectors; the cache is kept beside them where it can be."""
    source = open_images(file)
    model = load_backbone(backbone or DEFAULT_BACKBONE) if like is None else backbone_for(like, backbone)
    return embed_images(source, model, cache=can_keep(source.home), progress=progress)
