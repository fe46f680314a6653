"""The .npz format: read without pickle, written at once or in blocks.

`write_npz_stream` writes vectors that do not fit in memory; `read_image_arrays` reads MedMNIST's layout.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from locum.data.formats.arrays import ATTRIBUTE, holds_images, split_arrays
from locum.data.formats.assemble import ALL, RawSplit, assemble, info_from_json, info_to_json
from locum.errors import DataError
from locum.io import reading_file
from locum.types import EmbeddingInfo, EmbeddingSet

_KIND = "an .npz file"


@dataclass(frozen=True, slots=True)
class StreamedSplit:
    """One split: `y` and the other columns in memory, vectors as an iterable of blocks of rows.

    Parameters
    ----------
    shape
        Number of records, and number of features.
    blocks
        Vectors in blocks of rows, together as many rows as `shape` says.
    y
        Class codes.
    subject
        A subject per record; None if not known.
    attributes
        Further facts per record, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import StreamedSplit
    >>> blocks = (np.full((2, 3), i, dtype=np.float32) for i in range(2))
    >>> StreamedSplit((4, 3), blocks, y=np.array([0, 0, 1, 1])).shape
    (4, 3)
    """

    shape: tuple[int, int]
    blocks: Iterable[npt.NDArray[np.float32]]
    y: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None = None
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def read_npz(path: str) -> dict[str, EmbeddingSet]:
    """All splits of an .npz file; pickle is never loaded, so the file cannot run code.

    Arrays: `X, y`, or `train_x, train_y, ...`, or MedMNIST's `train_images, train_labels, ...`;
    optional `subject`, `attr_NAME`, `class_names`, and `info` (JSON text with backbone, revision
    and preprocessing). Images come back as rows of pixels in 0..1 with the backbone "pixels";
    embedding them with a vision model first gives far better vectors.
    """
    raw, names, info = _contents(path, flat=True)
    return assemble(raw, path, info, names)


def is_image_npz(path: str) -> bool:
    """Whether a file is an .npz of images, in MedMNIST's layout.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    bool
        False also for a file that cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import is_image_npz
    >>> np.savez("scans.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> is_image_npz("scans.npz")
    True
    """
    if not os.path.isfile(path):
        return False
    try:
        with np.load(path, allow_pickle=False) as archive:
            return isinstance(archive, np.lib.npyio.NpzFile) and holds_images(list(archive.keys()))
    except Exception:  # reading a damaged file reports it
        return False


def read_image_arrays(path: str) -> tuple[dict[str, RawSplit], tuple[str, ...]]:
    """The arrays of an .npz of images, by split, not resized.

    Parameters
    ----------
    path
        A file in MedMNIST's layout: `train_images, train_labels, ...`.

    Returns
    -------
    raw : dict of str to RawSplit
        Images of shape (records, height, width[, colors]) and labels, by split.
    names : tuple of str
        Class names; empty if the file has none.

    Raises
    ------
    DataError
        If the file is damaged, or holds something else.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import read_image_arrays
    >>> np.savez("xrays.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> raw, names = read_image_arrays("xrays.npz")
    >>> raw["train"].X.shape, names
    ((2, 8, 8), ())
    """
    raw, names, _ = _contents(path, flat=False)
    for split, part in raw.items():
        if part.X.ndim not in (3, 4) or 0 in part.X.shape or part.X.dtype.kind not in "uif":
            raise DataError(
                f"{path} must hold images (records, height, width[, colors]) in {split}; got {part.X.dtype} of "
                f"shape {part.X.shape}."
            )
    # Labels are checked as those of vectors are, with placeholders for the images.
    placeholders = {k: RawSplit(np.zeros((len(r.X), 1)), r.labels, r.subject, r.attributes) for k, r in raw.items()}
    assemble(placeholders, path, EmbeddingInfo(), names)
    return raw, names


def write_npz(stream: BinaryIO, data: EmbeddingSet) -> None:
    """Write `data` without loss; `y` as codes into `class_names`."""
    # Typed loosely because `np.savez` mixes its own options with the names of arrays.
    columns: dict[str, Any] = {
        "X": data.X,
        "y": data.y,
        "class_names": np.asarray(data.info.class_names, dtype=np.str_),
        "info": np.asarray(info_to_json(data.info)),
    }
    if data.subject is not None:
        columns["subject"] = data.subject
    columns.update({ATTRIBUTE + k: v for k, v in data.attributes.items()})
    np.savez(stream, **columns)


def write_npz_stream(stream: BinaryIO, splits: Mapping[str, StreamedSplit], info: EmbeddingInfo) -> None:
    """Write vectors that do not fit in memory, in blocks, as an .npz that `read_splits` reads.

    Parameters
    ----------
    stream
        An open binary file.
    splits
        What to write: several splits, or one called "all".
    info
        Where the vectors come from, and the class names.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import StreamedSplit, read_embeddings, write_npz_stream
    >>> from locum.types import EmbeddingInfo
    >>> part = StreamedSplit((2, 3), [np.zeros((1, 3)), np.ones((1, 3))], y=np.array([0, 1]))
    >>> with open("blocks.npz", "wb") as stream:
    ...     write_npz_stream(stream, {"all": part}, EmbeddingInfo(class_names=("cat", "dog")))
    >>> read_embeddings("blocks.npz").X.tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for split, part in splits.items():
            prefix = "" if split == ALL else f"{split}_"
            _vectors(archive, "X" if split == ALL else f"{prefix}x", part)
            _column(archive, f"{prefix}y", part.y)
            if part.subject is not None:
                _column(archive, f"{prefix}subject", part.subject)
            for name, values in part.attributes.items():
                _column(archive, f"{prefix}{ATTRIBUTE}{name}", values)
        _column(archive, "class_names", np.asarray(info.class_names, dtype=np.str_))
        _column(archive, "info", np.asarray(info_to_json(info)))


def _contents(path: str, *, flat: bool) -> tuple[dict[str, RawSplit], tuple[str, ...], EmbeddingInfo]:
    # Opened here because NumPy leaves the file open if it is not an archive.
    with ExitStack() as stack:
        with reading_file(path, _KIND):
            archive = np.load(stack.enter_context(open(path, "rb")), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} holds one bare array without names: save it with np.savez(file, X=..., y=...).")
        stack.enter_context(archive)
        keys = list(archive.keys())

        def get(name: str) -> npt.NDArray[Any]:
            return _array(archive, name, path)

        raw = split_arrays(keys, get, path, flat=flat)
        names: tuple[str, ...] = ()
        if "class_names" in keys:
            names = tuple(str(v) for v in text_array(get("class_names"), "class_names", 1, path))
        info = EmbeddingInfo(backbone="pixels") if holds_images(keys) else EmbeddingInfo()
        if "info" in keys:
            info = info_from_json(str(text_array(get("info"), "info", 0, path)), path)
    return raw, names, info


def _array(archive: np.lib.npyio.NpzFile, name: str, path: str) -> npt.NDArray[Any]:
    with reading_file(path, _KIND):
        try:
            value = archive[name]
        except ValueError as error:
            if "pickle" not in str(error):
                raise
            raise DataError(
                f"`{name}` in {path} is an array of Python objects, which is never loaded because it can run code: "
                f"save it again as numbers or as text, for example with .astype(str)."
            ) from None
    # A member that is not an array comes back as bytes.
    if not isinstance(value, np.ndarray):
        raise DataError(f"`{name}` in {path} is not an array: save the file again with np.savez.")
    return value


def text_array(value: npt.NDArray[Any], name: str, ndim: int, path: str) -> npt.NDArray[np.str_]:
    """An array of text with so many axes, or an error."""
    if value.dtype.kind not in "USiu" or value.ndim != ndim:
        form = "one piece of JSON text" if ndim == 0 else "a list of text"
        raise DataError(f"`{name}` in {path} must be {form}; got {value.dtype} of shape {value.shape}.")
    return value.astype(np.str_)


def _vectors(archive: zipfile.ZipFile, name: str, part: StreamedSplit) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": part.shape}
    written = 0
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        npy.write_array_header_1_0(member, header)
        for block in part.blocks:
            member.write(np.ascontiguousarray(block, dtype="<f4").tobytes())
            written += len(block)
    assert written == part.shape[0], "the header and the blocks disagree on the number of rows"


def _column(archive: zipfile.ZipFile, name: str, values: npt.NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w") as member:
        npy.write_array(member, values, allow_pickle=False)
