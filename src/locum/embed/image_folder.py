"""A folder of images: one folder a class, perhaps inside one a split."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from locum.data import ALL, SPLITS
from locum.embed.sources import FileSource, ImageItem
from locum.errors import DataError

SUFFIXES = frozenset(
    (
        ".bmp",
        ".dcm",
        ".dicom",
        ".gif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    )
)
_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def open_folder(place: Path) -> FileSource:
    """Every image under a folder, in the order of its path.

    The first level of folders names the classes, and what lies deeper belongs to them too; where the first level
    holds `train`, `val` or `test` only, the second names the classes. Images that lie at the top have no label,
    which is enough to predict. Files without an image's suffix are ignored and counted, unless they start as DICOM
    does. Hidden files and folders are passed over. Links are followed; one that leads back to a folder that it lies
    in is an error.
    """
    found: list[str] = []
    ignored = 0
    for path in _files(place):
        if path.suffix.lower() in SUFFIXES or _is_dicom(path):
            found.append(path.relative_to(place).as_posix())
        else:
            ignored += 1
    if not found:
        raise DataError(f"{str(place)!r} holds no image: give a folder with one folder a class and images in those.")
    found.sort()
    tops = {name.split("/")[0] for name in found}
    in_splits = all("/" in name for name in found) and {t.lower() for t in tops} <= set(_SPLITS)
    items = [_item(name, in_splits) for name in found]
    if in_splits:
        order = {s: i for i, s in enumerate(SPLITS)}
        items.sort(key=lambda item: (order[item.split], item.name))
    unlabelled = sum(item.label is None for item in items)
    if 0 < unlabelled < len(items):
        raise DataError(
            f"{unlabelled} of {len(items)} images of {str(place)!r} lie beside its folders of classes: put them into "
            "one, or away."
        )
    names = sorted({item.label for item in items if item.label is not None})
    return FileSource(
        place=place, home=place.resolve().parent, items=items, class_names=tuple(names), ignored=ignored
    )


def _files(place: Path) -> Iterator[Path]:
    """Whatever is no folder, at any depth."""
    ahead: list[tuple[Path, frozenset[tuple[int, int]]]] = [(place, frozenset())]
    while ahead:
        folder, above = ahead.pop()
        try:
            facts = folder.stat()
            entries = [(e.name, e.is_dir()) for e in os.scandir(folder) if not e.name.startswith(".")]
        except OSError:
            raise DataError(
                f"A folder or link inside {str(place)!r} cannot be opened: images would be missing without a word."
            ) from None
        # Two links may lead to one place, and each is followed; only a circle has no end.
        mark = (facts.st_dev, facts.st_ino)
        if mark in above:
            raise DataError(f"A link inside {str(place)!r} leads back to a folder that it lies in: remove the link.")
        for name, is_folder in entries:
            if is_folder:
                ahead.append((folder / name, above | {mark}))
            else:
                yield folder / name


def _item(name: str, in_splits: bool) -> ImageItem:
    parts = name.split("/")
    if in_splits:
        return ImageItem(name, _SPLITS[parts[0].lower()], parts[1] if len(parts) > 2 else None)
    return ImageItem(name, ALL, parts[0] if len(parts) > 1 else None)


def _is_dicom(path: Path) -> bool:
    """By content: scanners name files by number, and what follows the last dot of 1.2.840.113 is no suffix."""
    try:
        # To open a pipe would be to wait for whoever writes to it.
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False
