"""An .npz file written piece by piece, for vectors that need not fit in memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from understudy.data.arrays import ATTRIBUTE
from understudy.data.assemble import WHOLE, info_to_json
from understudy.types import EmbeddingInfo

__all__ = ["StreamedSplit", "write_npz_stream"]


@dataclass(frozen=True, slots=True)
class StreamedSplit:
    """One split: `y` and the other columns in memory, vectors as blocks of rows that come when asked for."""

    shape: tuple[int, int]
    blocks: Iterable[npt.NDArray[np.float32]]
    y: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None = None
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def write_npz_stream(stream: BinaryIO, splits: Mapping[str, StreamedSplit], info: EmbeddingInfo) -> None:
    """What `write_npz` writes, and what `read_splits` reads: several splits, or one called "all"."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for split, part in splits.items():
            prefix = "" if split == WHOLE else f"{split}_"
            _vectors(archive, "X" if split == WHOLE else f"{prefix}x", part)
            _column(archive, f"{prefix}y", part.y)
            if part.subject is not None:
                _column(archive, f"{prefix}subject", part.subject)
            for name, values in part.attributes.items():
                _column(archive, f"{prefix}{ATTRIBUTE}{name}", values)
        _column(archive, "class_names", np.asarray(info.class_names, dtype=np.str_))
        _column(archive, "info", np.asarray(info_to_json(info)))


def _vectors(archive: zipfile.ZipFile, name: str, part: StreamedSplit) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": part.shape}
    written = 0
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        npy.write_array_header_1_0(member, header)
        for block in part.blocks:
            member.write(np.ascontiguousarray(block, dtype="<f4").tobytes())
            written += len(block)
    assert written == part.shape[0], "the header promises as many rows as there are"


def _column(archive: zipfile.ZipFile, name: str, values: npt.NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w") as member:
        npy.write_array(member, values, allow_pickle=False)
