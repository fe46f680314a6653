"""Images with attributes, in memory: CelebA in its own layout, any folder with a table, or arrays in an .npz file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import RawSplit, assemble, read_frame, read_image_arrays
from locum.embed.decode import decode_image
from locum.embed.pixels import UnreadableImageError
from locum.errors import ConfigError, DataError
from locum.io import reading_file, regular_bytes
from locum.types import EmbeddingInfo

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image


Array = npt.NDArray[Any]

_LIST, _PARTITION, _IMAGES = "list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba"
# CelebA as distributed has its parts in folders of these names.
_CELEBA_FOLDERS = ("", "Anno", "Eval", "Img")
_LARGEST_SIDE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ImageTable:
    """8-bit images with named attributes of each. As private as the images.

    Parameters
    ----------
    images
        Bytes (uint8) of shape (n, height, width, colors), with 1 or 3 colors.
    attributes
        Facts about each image, by name: arrays of shape (n,) of text or whole numbers.

    Raises
    ------
    DataError
        If an array has another type or shape.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import ImageTable
    >>> table = ImageTable(np.zeros((3, 4, 4, 1), np.uint8), {"smiling": np.array([0, 1, 1])})
    >>> table.take([2, 0]).attributes["smiling"].tolist()
    [1, 0]
    """

    images: npt.NDArray[np.uint8]
    attributes: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] not in (1, 3):
            raise DataError(
                f"Images must be bytes (uint8) of shape (n, height, width, 1 or 3); got {self.images.dtype} of shape "
                f"{self.images.shape}."
            )
        for name, values in self.attributes.items():
            if values.shape != (len(self.images),) or values.dtype.kind not in "iuU":
                raise DataError(
                    f"Attribute {name!r} must be text or whole numbers, one for each of {len(self.images)} images; "
                    f"got {values.dtype} of shape {values.shape}."
                )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: npt.ArrayLike) -> ImageTable:
        """A selection of the images, by position or mask."""
        chosen = np.asarray(rows)
        return ImageTable(self.images[chosen], {name: values[chosen] for name, values in self.attributes.items()})


def read_celeba(
    folder: str | os.PathLike[str],
    *,
    side: int = 64,
    attributes: Sequence[str] | None = None,
    limit: int | None = None,
) -> ImageTable:
    """CelebA as distributed: `img_align_celeba/`, `list_attr_celeba.txt` and optionally `list_eval_partition.txt`.

    The largest centered square of each image is resized. With a list of partitions, the attribute `partition` is 0
    for training, 1 for validation and 2 for test.

    Parameters
    ----------
    folder
        The folder with CelebA's files, or with its folders `Anno`, `Eval` and `Img`.
    side
        Height and width of the result in pixels, from 1 to 4096.
    attributes
        Names of attributes to read, as 1 for yes and 0 for no. None: all.
    limit
        Read only so many images, from the first on. None: all.

    Returns
    -------
    ImageTable
        Color images in the order of the list.

    Raises
    ------
    DataError
        If a file is missing, damaged or contradicts another one. An image is named by its line in the list, not by
        its file.

    Examples
    --------
    >>> from locum.embed import read_celeba
    >>> faces = read_celeba("celeba/", side=64, attributes=["Smiling"], limit=1000)  # doctest: +SKIP
    >>> faces.images.shape  # doctest: +SKIP
    (1000, 64, 64, 3)
    """
    _check(side, limit)
    listed, images, split = (_celeba_part(folder, name) for name in (_LIST, _IMAGES, _PARTITION))
    if listed is None or images is None:
        lacking = _LIST if listed is None else _IMAGES
        raise DataError(f"{os.fspath(folder)} holds no {lacking}: give the folder with CelebA's files.")
    known, files, table = _celeba_list(listed, limit)
    chosen = list(known if attributes is None else attributes)
    if unknown := [name for name in chosen if name not in known]:
        raise ConfigError(f"{listed} has no attributes {unknown}; it has {', '.join(known)}.")
    found: dict[str, Array] = {name: table[:, known.index(name)] for name in chosen}
    if split is not None:
        found["partition"] = _celeba_partition(split, files)
    return ImageTable(_load(images, files, f"of {listed}", 3, side, channels=3), found)


def read_image_attributes(
    folder: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    side: int,
    channels: int = 3,
    attributes: Sequence[str] | None = None,
) -> ImageTable:
    """The images in `folder` with attributes from a .csv or .parquet, in the order of the table.

    The largest centered square of each image is resized.

    Parameters
    ----------
    folder
        The folder with the images.
    table
        A .csv or .parquet file. The column `file`, or else the first one, names each image relative to `folder`; the
        others are attributes: text or whole numbers, with no missing values. Booleans become 0 and 1.
    side
        Height and width of the result in pixels, from 1 to 4096.
    channels
        3 for color, 1 for gray.
    attributes
        Names of columns to read. None: all.

    Returns
    -------
    ImageTable
        One image per row of the table.

    Raises
    ------
    DataError
        If an image or an entry is missing or cannot be used. An image is named by its row, not by its file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import read_image_attributes
    >>> _ = Path("a.pgm").write_bytes(b"P2 2 2 255 0 9 9 9")
    >>> _ = Path("people.csv").write_text("file,glasses\\na.pgm,yes\\n")
    >>> table = read_image_attributes(".", "people.csv", side=2, channels=1)
    >>> table.images[0, :, :, 0].tolist(), table.attributes["glasses"].tolist()
    ([[0, 9], [9, 9]], ['yes'])
    """
    _check(side, None)
    if channels not in (1, 3):
        raise ConfigError(f"`channels` must be 1 (gray) or 3 (color); got {channels!r}.")
    if not Path(folder).is_dir():
        raise DataError(f"{os.fspath(folder)} is not a folder: give the folder with the images.")
    frame, where = read_frame(table), f"of {os.fspath(table)}"
    key = "file" if "file" in frame.columns else frame.columns[0]
    chosen = [name for name in frame.columns if name != key] if attributes is None else list(attributes)
    if unknown := [name for name in chosen if name not in frame.columns or name == key]:
        raise ConfigError(f"{os.fspath(table)} has no attributes {unknown}; it has {', '.join(frame.columns)}.")
    for name in (key, *chosen):
        if frame[name].isna().any():
            row = int(frame[name].isna().to_numpy().argmax()) + 2
            raise DataError(f"Row {row} {where} (the header is row 1) has no {name!r}: fill it in, or drop the row.")
    files = frame[key].astype(str).tolist()
    found = {name: _labels(frame[name], name, os.fspath(table)) for name in chosen}
    return ImageTable(_load(Path(folder), files, where, 2, side, channels), found)


def read_image_npz(path: str | os.PathLike[str], *, labels: str = "label") -> dict[str, ImageTable]:
    """Every split of an .npz in MedMNIST's layout (`train_images, train_labels, ...`), without resizing.

    Arrays `train_attr_NAME` become attributes, and `train_subject` the attribute `subject`.

    Parameters
    ----------
    path
        The file; its images must be bytes (uint8).
    labels
        Name of the attribute that holds the labels: whole numbers, or text if the file has text or names its classes.

    Returns
    -------
    dict of str to ImageTable
        The images by split.

    Raises
    ------
    DataError
        If the file is missing, damaged, or holds other images.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import read_image_npz
    >>> np.savez("pixels.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[3, 7])
    >>> read_image_npz("pixels.npz")["train"].attributes["label"].tolist()
    [3, 7]
    """
    place = os.fspath(path)
    if not Path(place).is_file():
        raise DataError(f"There is no file {place}: give an .npz of images.")
    raw, names = read_image_arrays(place)
    placeholders = {k: RawSplit(np.zeros((len(r.X), 1)), r.labels, r.subject, r.attributes) for k, r in raw.items()}
    found = {}
    for split, part in assemble(placeholders, place, EmbeddingInfo(), names).items():
        images = raw[split].X
        if images.dtype != np.uint8:
            raise DataError(f"{place} must hold images of bytes (uint8) in {split}; got {images.dtype}.")
        images = images[..., None] if images.ndim == 3 else images
        if labels in part.attributes:
            raise ConfigError(f"{place} has an attribute {labels!r} already: give `labels` another name.")
        values = part.labels.astype(np.str_)
        # Without class names, a label is the number in the file.
        whole = not names and raw[split].labels.dtype.kind in "iu"
        facts = {name: v.astype(np.int64) if v.dtype.kind == "b" else v for name, v in part.attributes.items()}
        if part.subject is not None:
            facts.setdefault("subject", part.subject)
        found[split] = ImageTable(images, {labels: values.astype(np.int64) if whole else values, **facts})
    return found


def _check(side: int, limit: int | None) -> None:
    if type(side) is not int or not 1 <= side <= _LARGEST_SIDE:
        raise ConfigError(f"`side` must be a whole number in 1..{_LARGEST_SIDE}; got {side!r}.")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigError(f"`limit` must be 1 or more, or None for all images; got {limit!r}.")


def _celeba_part(folder: str | os.PathLike[str], name: str) -> Path | None:
    """The place of a part of CelebA, if it is there."""
    places = (Path(folder, inner, name) for inner in _CELEBA_FOLDERS)
    return next((place for place in places if place.exists()), None)


def _celeba_list(place: Path, limit: int | None) -> tuple[list[str], list[str], Array]:
    """Attribute names, file names, and a table (files, attributes) of 0 and 1."""
    lines = _lines(place)
    names = lines[1].split() if len(lines) > 1 else []
    if not lines or not lines[0].strip().isdecimal() or not names or {"1", "-1"} & set(names):
        raise DataError(f"{place} must begin with the number of images, followed by the names of the attributes.")
    if len(set(names)) < len(names):
        raise DataError(f"{place} names an attribute twice: give each its own name.")
    if int(lines[0]) != len(lines) - 2:
        raise DataError(
            f"{place} announces {int(lines[0])} images and lists {len(lines) - 2}: it was cut off or changed."
        )
    rows = [line.split() for line in lines[2:][:limit]]
    for number, row in enumerate(rows, start=3):
        if len(row) != len(names) + 1 or not set(row[1:]) <= {"1", "-1"}:
            raise DataError(f"Row {number} of {place} must hold a file name and then {len(names)} values of 1 or -1.")
    if not rows:
        raise DataError(f"{place} lists no image: download it again.")
    return names, [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.int64).clip(0)


def _celeba_partition(place: Path, files: list[str]) -> Array:
    parts = {row[0]: row[1] for row in map(str.split, _lines(place)) if len(row) == 2 and row[1] in ("0", "1", "2")}
    for number, file in enumerate(files, start=3):
        if file not in parts:
            raise DataError(f"{place} gives no partition (0, 1 or 2) for the image in row {number} of {_LIST}.")
    return np.array([parts[file] for file in files], dtype=np.int64)


def _lines(place: Path) -> list[str]:
    with reading_file(str(place), "a list of CelebA"):
        lines = regular_bytes(place).decode("utf-8").splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _labels(series: pd.Series, name: str, table: str) -> Array:
    import pandas as pd

    types = pd.api.types
    if types.is_integer_dtype(series.dtype) or types.is_bool_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.int64))
    if types.is_float_dtype(series.dtype) or types.is_datetime64_any_dtype(series.dtype):
        raise DataError(
            f"Column {name!r} of {table} must hold text or whole numbers; got {series.dtype}: turn it into classes, "
            f"or select other columns with `attributes`."
        )
    return np.asarray(series.astype(str).to_numpy(dtype=np.str_))


def _load(folder: Path, files: Sequence[str], where: str, first: int, side: int, channels: int) -> Array:
    """The images as (n, side, side, channels); an unusable one is named by its row, counted from `first`."""
    try:
        out = np.empty((len(files), side, side, channels), dtype=np.uint8)
    except MemoryError:
        raise ConfigError(f"{len(files)} images of side {side} do not fit in memory: use fewer or smaller.") from None
    for i, file in enumerate(files):
        row = f"The image in row {i + first} {where}"
        # A list from an unknown source must not reach into other folders.
        if Path(file).is_absolute() or ".." in Path(file).parts or "\0" in file:
            raise DataError(f"{row} lies outside the folder of images: correct the row.")
        try:
            image = decode_image(regular_bytes(folder / file))
            out[i] = _square(image, side, channels)
        except OSError:
            raise DataError(f"{row} is missing or not readable: add it, or drop the row.") from None
        except UnreadableImageError as error:
            raise DataError(f"{row} cannot be used ({error}): replace it, or drop the row.") from None
    return out


def _square(image: Image, side: int, channels: int) -> Array:
    short = min(image.size)
    left, top = (image.width - short) // 2, (image.height - short) // 2
    # Pillow's number for bicubic, which smooths when it shrinks.
    small = image.crop((left, top, left + short, top + short)).resize((side, side), resample=3)
    return np.asarray(small if channels == 3 else small.convert("L"), dtype=np.uint8).reshape(side, side, channels)
