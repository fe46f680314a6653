"""CIFAR-10, CIFAR-100 and STL-10 in their binary versions: files of records of fixed length, read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.embed.layouts.lists import read_list
from locum.embed.sources import ArraySource, ImageItem
from locum.errors import DataError

_CIFAR10 = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
_CIFAR100 = {"train": ["train.bin"], "test": ["test.bin"]}
_STL10 = {"train": ("train_X.bin", "train_y.bin"), "test": ("test_X.bin", "test_y.bin")}
_STL10_NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]

Array = npt.NDArray[Any]


def open_cifar10(place: Path) -> ArraySource:
    """`data_batch_1.bin` to `data_batch_5.bin` (those that are there), `test_batch.bin`, `batches.meta.txt`."""
    return _open_cifar(place, _CIFAR10, ("label",), read_list(place / "batches.meta.txt"))


def open_cifar100(place: Path) -> ArraySource:
    """`train.bin`, `test.bin` and the two lists of names; the label is the fine one, `superclass` an attribute."""
    names = read_list(place / "fine_label_names.txt")
    return _open_cifar(
        place, _CIFAR100, ("coarse", "label"), names, superclasses=read_list(place / "coarse_label_names.txt")
    )


def refuse_pickled_cifar(place: Path) -> ArraySource:
    """CIFAR's Python version: pickles, which can run code when they are opened."""
    raise DataError(
        f"{str(place)!r} holds CIFAR's Python version. Its files are pickles, which can run code: none is opened. "
        "Give the folder of the binary version (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz)."
    )


def open_stl10(place: Path) -> ArraySource:
    """`train_X.bin`, `train_y.bin`, the same of test, and `class_names.txt`; images without labels are left out."""
    listed = place / "class_names.txt"
    names = read_list(listed) if listed.is_file() else _STL10_NAMES
    arrays: dict[str, Array] = {}
    items: list[ImageItem] = []
    for split, (images, labels) in _STL10.items():
        if not (place / images).is_file():
            continue
        # A plane is stored column by column, so width comes before height.
        pixels = _records(place / images, np.dtype((np.uint8, (3, 96, 96))))
        codes = _records(place / labels, np.dtype(np.uint8))
        if len(codes) != len(pixels):
            raise DataError(
                f"{images} in {str(place)!r} holds {len(pixels)} images, and {labels} {len(codes)} labels."
            )
        arrays[split] = pixels.transpose(0, 3, 2, 1)
        items += _items(split, split, codes.astype(np.int64) - 1, names, place)
    return _source(place, arrays, items, names)


def _open_cifar(
    place: Path,
    files: dict[str, list[str]],
    labels: tuple[str, ...],
    names: list[str],
    superclasses: Sequence[str] = (),
) -> ArraySource:
    record = np.dtype([*((name, np.uint8) for name in labels), ("pixels", np.uint8, (3, 32, 32))])
    arrays: dict[str, Array] = {}
    items: list[ImageItem] = []
    for split, parts in files.items():
        for part in parts:
            if not (place / part).is_file():
                continue
            rows = _records(place / part, record)
            arrays[part] = rows["pixels"].transpose(0, 2, 3, 1)
            coarse = rows["coarse"] if superclasses else None
            items += _items(part, split, rows["label"], names, place, coarse, superclasses)
    return _source(place, arrays, items, names, ("superclass",) if superclasses else ())


def _records(file: Path, record: np.dtype[Any]) -> Array:
    """A file as an array of records, without reading it."""
    if not file.is_file():
        raise DataError(f"There is no {file.name} in {str(file.parent)!r}: unpack the set again.")
    size = file.stat().st_size
    if size == 0 or size % record.itemsize:
        raise DataError(
            f"{file.name} in {str(file.parent)!r} has {size} bytes, not a multiple of the {record.itemsize} of a "
            "record: it was cut off, or belongs to another set."
        )
    # Of an array as record numpy takes the length along: shape (n, 3, 96, 96).
    return np.memmap(file, dtype=record.base, mode="r", shape=(size // record.itemsize, *record.shape))


def _items(
    array: str,
    split: str,
    codes: Array,
    names: Sequence[str],
    place: Path,
    coarse: Array | None = None,
    superclasses: Sequence[str] = (),
) -> list[ImageItem]:
    if codes.min() < 0 or codes.max() >= len(names) or (coarse is not None and coarse.max() >= len(superclasses)):
        raise DataError(
            f"{array} of {str(place)!r} holds a label that the list of names lacks: unpack the set again."
        )
    above = [()] * len(codes) if coarse is None else [(superclasses[c],) for c in coarse.tolist()]
    return [
        ImageItem(f"{array}/{i}", split, names[code], attributes=facts)
        for i, (code, facts) in enumerate(zip(codes.tolist(), above, strict=True))
    ]


def _source(
    place: Path,
    arrays: dict[str, Array],
    items: list[ImageItem],
    names: Sequence[str],
    attributes: tuple[str, ...] = (),
) -> ArraySource:
    return ArraySource(
        home=place.resolve().parent,
        items=items,
        class_names=tuple(names),
        attribute_names=attributes,
        arrays=arrays,
    )
