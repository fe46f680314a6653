"""Safetensors files: tensors with the names of .npz arrays, text in the metadata."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from locum.data.formats.arrays import ATTRIBUTE, holds_images, split_arrays
from locum.data.formats.assemble import assemble, info_from_json, info_to_json, names_from_json
from locum.errors import DataError
from locum.io import reading_file
from locum.types import EmbeddingInfo, EmbeddingSet

_KIND = "a safetensors file"
# The limit of the format; a longer header is an attack or an accident.
_LONGEST_HEADER = 100_000_000
_READABLE = {"F16", "F32", "F64", "BOOL", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"}


def read_safetensors(path: str) -> dict[str, EmbeddingSet]:
    """All splits of a safetensors file.

    Tensors are named as the arrays of an .npz. The metadata may hold JSON: `class_names` (a list),
    `info` (backbone, revision, preprocessing) and `values` (for each text column, the list that its
    tensor of codes points into). The length of the header is checked before it is read.
    """
    check_header(path)
    from safetensors import safe_open

    with reading_file(path, _KIND), safe_open(path, framework="np") as file:
        names = list(file.keys())
        meta: dict[str, str] = file.metadata() or {}
        for name in names:
            kind = file.get_slice(name).get_dtype()
            if kind not in _READABLE:
                raise DataError(
                    f"`{name}` in {path} is stored as {kind}, which NumPy does not have: save it as float32."
                )
        tensors: dict[str, npt.NDArray[Any]] = {name: file.get_tensor(name) for name in names}
    values = text_values(meta.get("values"), path)

    def get(name: str) -> npt.NDArray[Any]:
        return _decoded(tensors[name], values[name], name, path) if name in values else tensors[name]

    raw = split_arrays(names, get, path)
    default = EmbeddingInfo(backbone="pixels") if holds_images(names) else EmbeddingInfo()
    info = info_from_json(meta["info"], path) if "info" in meta else default
    return assemble(raw, path, info, names_from_json(meta.get("class_names"), path))


def write_safetensors(stream: BinaryIO, data: EmbeddingSet) -> None:
    """Write `data` without loss; text columns as codes, with their values in the metadata."""
    from safetensors.numpy import save

    columns: dict[str, npt.NDArray[Any]] = {ATTRIBUTE + k: v for k, v in data.attributes.items()}
    if data.subject is not None:
        columns["subject"] = data.subject
    values: dict[str, list[str]] = {}
    tensors: dict[str, npt.NDArray[Any]] = {"X": data.X, "y": data.y}
    for name, column in columns.items():
        if column.dtype.kind in "US":
            found, codes = np.unique(column.astype(np.str_), return_inverse=True)
            values[name], tensors[name] = found.tolist(), codes.astype(np.int64)
        else:
            tensors[name] = column
    meta = {"class_names": json.dumps(data.info.class_names), "info": info_to_json(data.info)}
    if values:
        meta["values"] = json.dumps(values)
    stream.write(save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, meta))


def check_header(path: str) -> None:
    """Refuse a header that is longer than the file or than the format allows."""
    with reading_file(path, _KIND), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(9)
    if len(start) < 9:
        raise DataError(f"{path} is too short for {_KIND}: it was cut off, or is something else. Copy it again.")
    length = int.from_bytes(start[:8], "little")
    if length > _LONGEST_HEADER or start[8:9] != b"{":
        raise DataError(f"{path} does not start like {_KIND}: export it again.")
    if length > size - 8:
        raise DataError(f"{path} is shorter than its header says: it was cut off. Copy it again.")


def text_values(text: str | None, path: str) -> dict[str, list[str]]:
    if text is None:
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and all(isinstance(v, list) and v for v in data.values()):
        return {str(k): [str(entry) for entry in v] for k, v in data.items()}
    raise DataError(f"{path} has `values` that are not lists of text by column: export it again.")


def _decoded(codes: npt.NDArray[Any], values: list[str], name: str, path: str) -> npt.NDArray[np.str_]:
    inside = codes.dtype.kind in "iu" and codes.size > 0 and int(codes.min()) >= 0 and int(codes.max()) < len(values)
    if not inside:
        raise DataError(f"`{name}` in {path} points outside its list of values: export the file again.")
    return np.take(np.asarray(values, dtype=np.str_), codes)
