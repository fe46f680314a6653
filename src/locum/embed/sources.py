"""Image sources: images by number, in files or in arrays.

A source reads one image at a time, so a run over many images needs no more memory than a run over a few.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from locum.data import ALL
from locum.embed.decode import decode_image, may_have_alpha
from locum.embed.dicom import dicom_subject, is_dicom, subject_key
from locum.embed.pixels import Alpha, image_from_array
from locum.errors import DataError, PrivacyError
from locum.io import file_system, regular_bytes

if TYPE_CHECKING:
    from PIL.Image import Image
    from pyarrow.fs import FileSystem


NO_CLASSES = "The images have no classes: put them into one folder per class, or give a table with labels."
# The limit of a manifest.
_LONGEST_NAME = 200
# What a store says went wrong; the rest of its text can hold the name of an image.
_STORE_ERROR = re.compile(r"AWS Error \w+(?: \(HTTP status \d+\))?(?: during \w+ operation)?")


@dataclass(frozen=True, slots=True)
class ImageItem:
    """One image before it is read.

    Parameters
    ----------
    name
        Path of the file, or split and row of an array. It can be a patient's name: it stays on this machine.
    split
        "train", "val", "test", or "all" if there are no splits.
    label
        Name of its class; None if it has none.
    subject
        Whom it shows; None if not known.
    attributes
        Values of the source's attributes, in the order of `ImageSource.attribute_names`.

    Examples
    --------
    >>> from locum.embed import ImageItem
    >>> ImageItem("cat/1.png", label="cat").split
    'all'
    """

    name: str
    split: str = ALL
    label: str | None = None
    subject: str | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImageSource(ABC):
    """Images by number, read one at a time; `open_images` makes one.

    Class names leave with a release and are printed, so a name that is not valid text, holds a line break or is
    longer than 200 characters is refused.

    Parameters
    ----------
    home
        The folder for private files: beside the images, not among them. None if the images are in a store.
    items
        The images, in order.
    class_names
        Names of the classes, in the order of their codes; empty if there are none.
    attribute_names
        Names of the attributes of each item.
    ignored
        How many files among the images are not images.
    ignored_kinds
        Their suffixes, such as ".txt". Their names can be patients' names.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import open_images
    >>> np.savez("slides.npz", train_images=np.zeros((3, 8, 8), np.uint8), train_labels=[0, 1, 1])
    >>> source = open_images("slides.npz")
    >>> [item.label for item in source.only("train").items]
    ['0', '1', '1']
    """

    home: Path | None
    items: Sequence[ImageItem]
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    ignored: int = 0
    ignored_kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for number, name in enumerate(self.class_names, start=1):
            if why := _unfit(name):
                raise DataError(
                    f"The name of class {number} of {len(self.class_names)}, in the order of names, {why}: rename it."
                )

    @abstractmethod
    def read(self, i: int) -> bytes:
        """The content of image `i`, by which the cache identifies it. OSError if it cannot be read."""

    @abstractmethod
    def decode(self, content: bytes, window: tuple[float, float] | None, alpha: Alpha = "white") -> Image:
        """The image that a content holds, as 8-bit color or gray, or UnreadableImageError."""

    @abstractmethod
    def may_have_alpha(self, content: bytes) -> bool:
        """Whether a content can hold transparency."""

    @abstractmethod
    def subject(self, content: bytes) -> str | None:
        """A pseudonym of the subject that a content names, if it names one."""

    def only(self, split: str) -> Self:
        """The images of one split; class codes stay those of all images."""
        return replace(self, items=[item for item in self.items if item.split == split])


@dataclass(frozen=True, kw_only=True)
class FileSource(ImageSource):
    """Images that are files, with names relative to the folder `place`."""

    place: Path
    home: Path

    def read(self, i: int) -> bytes:
        """The bytes of the file."""
        return regular_bytes(self.place / self.items[i].name)

    def decode(self, content: bytes, window: tuple[float, float] | None, alpha: Alpha = "white") -> Image:
        """By content, whatever the file's name."""
        return decode_image(content, window=window, keep_gray=True, alpha=alpha)

    def may_have_alpha(self, content: bytes) -> bool:
        """By content too."""
        return may_have_alpha(content)

    def subject(self, content: bytes) -> str | None:
        """The patient of a DICOM file, replaced by a pseudonym whose key is kept beside the images."""
        if not is_dicom(content):
            return None
        try:
            key = subject_key(self.home)
        except OSError:
            raise PrivacyError(
                "The images hold patient numbers, and the key that replaces them cannot be kept next to the images: "
                "make their parent folder writable, or give a table with a column `subject`."
            ) from None
        return dicom_subject(content, key)


@contextmanager
def image_errors(address: str) -> Iterator[None]:
    """Turn a store's failure to give an image into one sentence, without the name of the image."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        found = _STORE_ERROR.search(str(error))
        reason = found.group() if found else "the connection failed"
        # Not chained: the store's own error names the image.
        raise DataError(
            f"An image in {address!r} cannot be read: {reason}. Check the network and the credentials, then run the "
            "same command again."
        ) from None


@dataclass(frozen=True, kw_only=True)
class RemoteSource(ImageSource):
    """Images in a store, with names relative to an address such as `s3://bucket/scans`; nothing is copied to disk."""

    address: str
    home: Path | None = None

    @cached_property
    def _store(self) -> tuple[FileSystem, str]:
        return file_system(self.address)

    def read(self, i: int) -> bytes:
        """The bytes of the object. A store that fails stops the run: the image is there, and must not be left out."""
        system, place = self._store
        file = f"{place}/{self.items[i].name}"
        with image_errors(self.address), system.open_input_stream(file, compression=None) as stream:
            return bytes(stream.read())

    def decode(self, content: bytes, window: tuple[float, float] | None, alpha: Alpha = "white") -> Image:
        """By content, as of a file."""
        return decode_image(content, window=window, keep_gray=True, alpha=alpha)

    def may_have_alpha(self, content: bytes) -> bool:
        """By content too."""
        return may_have_alpha(content)

    def subject(self, content: bytes) -> str | None:
        """None; a DICOM file is refused, because the key that replaces its patient's number has no place to stay."""
        if is_dicom(content):
            raise PrivacyError(
                "The images hold patient numbers, and the key that replaces them cannot be kept next to images in "
                "a store: copy the images to a folder of this machine, and embed that."
            )
        return None


@dataclass(frozen=True, kw_only=True)
class ArraySource(ImageSource):
    """Images in arrays, one array per split; an image's name is its split and its row."""

    arrays: dict[str, npt.NDArray[Any]]

    def read(self, i: int) -> bytes:
        """Shape, type and pixels of image `i`: the same pixels in another shape are another content."""
        split, _, row = self.items[i].name.partition("/")
        image = np.ascontiguousarray(self.arrays[split][int(row)])
        return f"{'x'.join(map(str, image.shape))} {image.dtype.str}\n".encode() + image.tobytes()

    def decode(self, content: bytes, window: tuple[float, float] | None, alpha: Alpha = "white") -> Image:
        """The image again; values above 8 bits are mapped like those of files."""
        header, _, pixels = content.partition(b"\n")
        shape, dtype = header.decode().split(" ")
        array = np.frombuffer(pixels, dtype=dtype).reshape([int(s) for s in shape.split("x")])
        return image_from_array(array, window=window, alpha=alpha)

    def may_have_alpha(self, content: bytes) -> bool:
        """Whether there is a fourth color."""
        return content.partition(b" ")[0].endswith(b"x4") and content.partition(b" ")[0].count(b"x") == 2

    def subject(self, content: bytes) -> str | None:
        """None: arrays of pixels name no subject."""
        return None


def _unfit(name: str) -> str:
    """Why a class cannot have this name; empty if it can."""
    kinds = {unicodedata.category(ch) for ch in name}
    if "Cs" in kinds:
        return "holds bytes that are not UTF-8 text"
    # A line break inside a name could forge a line of the program's output.
    if kinds & {"Cc", "Zl", "Zp"}:
        return "holds a line break or another control character"
    return f"has more than {_LONGEST_NAME} characters" if len(name) > _LONGEST_NAME else ""
