"""Where images are: a folder with a folder a class, a table of paths, or an array in an .npz file.

A source knows its images by number and reads one at a time, so that a run over many needs no more memory than
a run over few.
"""

from __future__ import annotations

import os
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from locum.data import ALL, is_image_npz
from locum.errors import DataError, PrivacyError

if TYPE_CHECKING:
    from PIL.Image import Image


NO_CLASSES = "The images have no classes: put them into one folder a class, or give a table with labels."
# As long as a manifest allows.
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ImageItem:
    """One image before it is read. `name` may be a patient's: it stays on this machine."""

    name: str
    split: str = ALL
    label: str | None = None
    subject: str | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageSource(ABC):
    """Images by number.

    `home` is the folder that private files of ours may go to: beside the images, not among them. `ignored` counts
    files that lay among the images and are none. Names of classes leave with a release, and are printed: one that
    holds a line break or is no text is refused.
    """

    home: Path
    items: Sequence[ImageItem]
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    ignored: int = 0

    def __post_init__(self) -> None:
        for number, name in enumerate(self.class_names, start=1):
            if why := _unfit(name):
                raise DataError(
                    f"The name of class {number} of {len(self.class_names)}, in the order of names, {why}: rename it."
                )

    @abstractmethod
    def read(self, i: int) -> bytes:
        """The content of image `i`: what the cache knows it by. OSError where it cannot be read."""

    @abstractmethod
    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """The image that a content holds, as 8-bit colour or grey, or UnreadableImageError."""

    @abstractmethod
    def subject(self, content: bytes) -> str | None:
        """Who a content says it belongs to, in a form that does not tell who that is."""

    def only(self, split: str) -> Self:
        """The images of one split; codes of classes stay those of all."""
        return replace(self, items=[item for item in self.items if item.split == split])


@dataclass(frozen=True, kw_only=True)
class FileSource(ImageSource):
    """Images that are files, named from the folder `place`."""

    place: Path

    def read(self, i: int) -> bytes:
        """The bytes of the file."""
        return (self.place / self.items[i].name).read_bytes()

    def decode(self, content: bytes, window: tuple[float, float] | None) -> Image:
        """By content, whatever the file is called."""
        from locum.embed.decode import decode_image

        return decode_image(content, window=window, keep_grey=True)

    def subject(self, content: bytes) -> str | None:
        """The patient of a DICOM file, hidden by a key that is kept beside the images."""
        from locum.embed.dicom import dicom_subject, is_dicom, subject_key

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


def holds_images(path: str | os.PathLike[str]) -> bool:
    """Whether `open_images` is the way to read `path`: a folder, a table of paths, or an .npz of images."""
    from locum.embed.image_table import is_image_table

    place = Path(path)
    if place.is_dir():
        return not (place / "manifest.json").is_file()
    if place.suffix.lower() == ".csv":
        return is_image_table(place)
    return place.suffix.lower() == ".npz" and is_image_npz(str(place))


def open_images(path: str | os.PathLike[str]) -> ImageSource:
    """Whatever kind of images `path` holds: a folder, a .csv with a column `path`, or an .npz of images."""
    from locum.embed.image_arrays import open_npz
    from locum.embed.image_folder import open_folder
    from locum.embed.image_table import open_table

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


def _unfit(name: str) -> str:
    """Why a class cannot have this name; empty where it can."""
    kinds = {unicodedata.category(ch) for ch in name}
    if "Cs" in kinds:
        return "holds bytes that are no UTF-8 text"
    # A line break inside a name could forge a line of what the program prints.
    if kinds & {"Cc", "Zl", "Zp"}:
        return "holds a line break or another control character"
    return f"has more than {_LONGEST_NAME} characters" if len(name) > _LONGEST_NAME else ""
