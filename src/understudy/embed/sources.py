"""Where images are: a folder with a folder a class, a table of paths, or an array in an .npz file.

A source knows its images by number and reads one at a time, so that a run over many needs no more memory than
a run over few.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from understudy.data import is_image_npz, read_image_arrays
from understudy.data.assemble import SPLITS, WHOLE
from understudy.errors import DataError, PrivacyError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "ArraySource",
    "FileSource",
    "ImageItem",
    "ImageSource",
    "holds_images",
    "open_folder",
    "open_images",
    "open_npz",
]

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


@dataclass(frozen=True, slots=True)
class ImageItem:
    """One image before it is read. `name` may be a patient's: it stays on this machine."""

    name: str
    split: str = WHOLE
    label: str | None = None
    subject: str | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageSource(ABC):
    """Images by number.

    `home` is the folder that private files of ours may go to: beside the images, not among them. `ignored` counts
    files that lay among the images and are none.
    """

    home: Path
    items: Sequence[ImageItem]
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    ignored: int = 0

    @abstractmethod
    def read(self, i: int) -> bytes:
        """The content of image `i`: what the cache knows it by. OSError where it cannot be read."""

    @abstractmethod
    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """The image that a content holds, as 8-bit colour or grey, or UnreadableImageError."""

    @abstractmethod
    def subject(self, content: bytes) -> str | None:
        """Who a content says it belongs to, in a form that does not tell who that is."""


@dataclass(frozen=True, kw_only=True)
class FileSource(ImageSource):
    """Images that are files, named from the folder `place`."""

    place: Path

    def read(self, i: int) -> bytes:
        """The bytes of the file."""
        return (self.place / self.items[i].name).read_bytes()

    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """By content, whatever the file is called."""
        from understudy.embed.decode import decode_image

        return decode_image(content, window=window, keep_grey=True)

    def subject(self, content: bytes) -> str | None:
        """The patient of a DICOM file, hidden by a key that is kept beside the images."""
        from understudy.embed.dicom import dicom_subject, is_dicom, subject_key

        if not is_dicom(content):
            return None
        try:
            key = subject_key(self.home)
        except OSError:
            raise PrivacyError(
                "The images hold patients' numbers, and the key that hides them cannot be kept beside the images: "
                "make their parent folder writable, or give a table with a column `subject`."
            ) from None
        return dicom_subject(content, key)


@dataclass(frozen=True, kw_only=True)
class ArraySource(ImageSource):
    """Images in arrays (MedMNIST's layout); the content of one carries its shape and type."""

    arrays: dict[str, npt.NDArray[Any]]
    starts: dict[str, int]

    def read(self, i: int) -> bytes:
        """Shape, type and pixels of image `i`."""
        split = self.items[i].split
        image = np.ascontiguousarray(self.arrays[split][i - self.starts[split]])
        return f"{'x'.join(map(str, image.shape))} {image.dtype.str}\n".encode() + image.tobytes()

    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """Back to an image; numbers above 8 bits are mapped as those of files are."""
        from understudy.embed.decode import image_from_array

        head, _, pixels = content.partition(b"\n")
        shape, dtype = head.decode().split(" ")
        array = np.frombuffer(pixels, dtype=dtype).reshape([int(s) for s in shape.split("x")])
        return image_from_array(array, window=window)

    def subject(self, content: bytes) -> str | None:
        """Arrays of pixels do not say."""
        return None


def holds_images(path: str | os.PathLike[str]) -> bool:
    """Whether `open_images` is the way to read `path`: a folder, a table of paths, or an .npz of images."""
    from understudy.embed.image_table import is_image_table

    place = Path(path)
    if place.is_dir():
        return not (place / "manifest.json").is_file()
    if place.suffix.lower() == ".csv":
        return is_image_table(place)
    return place.suffix.lower() == ".npz" and is_image_npz(str(place))


def open_images(path: str | os.PathLike[str]) -> ImageSource:
    """Whatever kind of images `path` holds: a folder, a .csv with a column `path`, or an .npz of images."""
    from understudy.embed.image_table import open_table

    place = Path(path)
    if place.is_dir():
        return open_folder(place)
    if place.suffix.lower() == ".csv" and place.is_file():
        return open_table(place)
    if place.suffix.lower() == ".npz" and place.is_file():
        return open_npz(place)
    if not place.exists():
        raise DataError(f"There is no {str(path)!r}: give a folder of images, a .csv of paths, or an .npz of images.")
    raise DataError(f"{str(path)!r} holds no images that can be read: give a folder, a .csv of paths, or an .npz.")


def open_folder(place: Path) -> FileSource:
    """Every image under a folder, in the order of its path.

    The first level of folders names the classes, and what lies deeper belongs to them too; where the first level
    holds `train`, `val` or `test` only, the second names the classes. Images that lie at the top have no label,
    which is enough to predict. Files without an image's suffix are ignored and counted, unless they have none and
    start as DICOM does. Hidden files and folders are passed over.
    """
    found: list[str] = []
    ignored = 0

    def unreadable(_: OSError) -> None:
        raise DataError(
            f"A folder inside {str(place)!r} cannot be opened: its images would be missing without a word."
        )

    for folder, folders, files in os.walk(place, onerror=unreadable):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for file in sorted(f for f in files if not f.startswith(".")):
            path = Path(folder) / file
            if path.suffix.lower() in SUFFIXES or (not path.suffix and _is_dicom(path)):
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
            f"{unlabelled} images of {str(place)!r} lie beside its folders of classes: put them into one, or away."
        )
    names = sorted({item.label for item in items if item.label is not None})
    return FileSource(
        place=place, home=place.resolve().parent, items=items, class_names=tuple(names), ignored=ignored
    )


def open_npz(place: Path) -> ArraySource:
    """Images of an .npz file in MedMNIST's layout; the arrays are held in memory."""
    raw, names = read_image_arrays(str(place))
    items: list[ImageItem] = []
    starts: dict[str, int] = {}
    attributes = sorted({key for part in raw.values() for key in part.attributes})
    for split, part in raw.items():
        starts[split] = len(items)
        if any(key not in part.attributes for key in attributes):
            raise DataError(f"{str(place)!r} lacks an attribute in {split!r} that another split has: add it.")
        for i, label in enumerate(np.asarray(part.labels).reshape(-1).tolist()):
            items.append(
                ImageItem(
                    name=f"{split}/{i}",
                    split=split,
                    label=names[label] if names and isinstance(label, int) else str(label),
                    subject=None if part.subject is None else str(part.subject[i]),
                    attributes=tuple(str(part.attributes[key][i]) for key in attributes),
                )
            )
    if not names:
        names = _in_order({item.label for item in items if item.label is not None})
    return ArraySource(
        home=place.resolve().parent,
        items=items,
        class_names=names,
        attribute_names=tuple(attributes),
        arrays={split: part.X for split, part in raw.items()},
        starts=starts,
    )


def _item(name: str, in_splits: bool) -> ImageItem:
    parts = name.split("/")
    if in_splits:
        return ImageItem(name, _SPLITS[parts[0].lower()], parts[1] if len(parts) > 2 else None)
    return ImageItem(name, WHOLE, parts[0] if len(parts) > 1 else None)


def _in_order(labels: set[str]) -> tuple[str, ...]:
    """Numbers by size, text by letter."""
    if all(label.lstrip("-").isdecimal() for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False
