"""Data that are images: embedded on the way in, so that every verb takes a folder where it takes a file."""

from __future__ import annotations

from collections.abc import Callable

from understudy.data import read_splits
from understudy.data.assemble import SPLITS
from understudy.embed import (
    DEFAULT_BACKBONE,
    Embedded,
    ImageSource,
    backbone_for,
    embed_images,
    holds_images,
    load_backbone,
    open_images,
)
from understudy.embed.sources import NO_CLASSES
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
    With `PATH#train` only that split is read. An image that cannot be read is an error here: only `embed` goes on
    without it, and lists it.
    """
    file, split = parted(path)
    if not holds_images(file):
        if backbone is not None and like is None:
            raise ConfigError(f"{path!r} holds vectors, not images: leave --backbone out.")
        return read_splits(path)
    source = _opened(file, split)
    if not source.class_names:
        raise DataError(NO_CLASSES)
    with _embedded(source, like, backbone, progress) as done:
        if done.problems:
            raise DataError(
                f"{len(done.problems)} of {len(done.problems) + len(done.items)} images of {file!r} cannot be read: "
                f"run `understudy embed {file} -o FILE`, which lists them and goes on without them, and use FILE."
            )
        return done.sets()


def embedded(
    file: str,
    *,
    split: str | None = None,
    like: EmbeddingInfo | None = None,
    backbone: str | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Images as vectors, all or one split of them; the cache is kept beside them where it can be."""
    return _embedded(_opened(file, split), like, backbone, progress)


def _opened(file: str, split: str | None) -> ImageSource:
    source = open_images(file)
    if split is None:
        return source
    there = list(dict.fromkeys(item.split for item in source.items))
    if split not in there:
        raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(there)}.")
    return source.only(split)


def _embedded(
    source: ImageSource, like: EmbeddingInfo | None, backbone: str | None, progress: Progress | None
) -> Embedded:
    model = load_backbone(backbone or DEFAULT_BACKBONE) if like is None else backbone_for(like, backbone)
    return embed_images(source, model, cache=can_keep(source.home), progress=progress)
