"""Arrays on disk that are read piece by piece: a safetensors file, or an .npz that was unpacked into a folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.formats.arrays import ATTRIBUTE, split_roles
from locum.data.formats.assemble import (
    RawSplit,
    assemble,
    info_from_json,
    label_codes,
    names_from_json,
)
from locum.data.formats.npz import text_array
from locum.data.formats.safetensors import check_header, text_values
from locum.errors import DataError
from locum.io import array_files, reading_file
from locum.types import PIECE, EmbeddingInfo, EmbeddingSet, Facts, encode_labels

_KINDS = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1", "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
    "U8": "|u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Array:
    """Where an array lies in a file; `values` are the texts that its numbers stand for, if they do."""

    file: str
    offset: int
    shape: tuple[int, ...]
    kind: str
    values: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def rows(self, path: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows of it, copied into memory."""
        with reading_file(path, "a file of arrays"):
            mapped = np.memmap(self.file, np.dtype(self.kind), "r", self.offset, self.shape)
            found = np.array(mapped[start:stop] if self.shape else mapped)
        if not self.values:
            return found
        if found.dtype.kind not in "iu" or found.min(initial=0) < 0 or found.max(initial=0) >= len(self.values):
            raise DataError(f"A column of {path} points outside its list of values: export the file again.")
        return np.take(np.asarray(self.values, dtype=np.str_), found)


@dataclass(frozen=True, slots=True, eq=False)
class MappedBatches:
    """Records from arrays on disk, or of one split of them. `open_mapped` makes it."""

    path: str
    split: str
    X: _Array
    y: _Array
    subject: _Array | None
    attributes: Mapping[str, _Array]
    source: EmbeddingInfo
    names: tuple[str, ...]
    # Whether the file names its classes, so that whole numbers are codes.
    declared: bool
    start: int
    stop: int
    classes: tuple[str, ...] | None = None

    @property
    def info(self) -> EmbeddingInfo:
        """Where the vectors come from."""
        return replace(self.source, class_names=self.names if self.classes is None else self.classes)

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return self.X.shape[1]

    @property
    def has_subjects(self) -> bool:
        """Whether it is known which records belong together."""
        return self.subject is not None

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(self.attributes)

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for part in self.parts():
            yield part._read()

    def state(self) -> str:
        """Where the arrays are, and the sizes and times of their files."""
        arrays = (self.X, self.y, self.subject, *self.attributes.values())
        files = sorted({array.file for array in arrays if array is not None})
        with reading_file(self.path, "a file of arrays"):
            found = [(file, os.stat(file)) for file in files]
        return repr((self.split, self.start, self.stop, [(f, one.st_size, one.st_mtime_ns) for f, one in found]))

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors, which are not read."""
        for part in self.parts():
            yield part._facts()

    def parts(self) -> Sequence[MappedBatches]:
        """One part per piece."""
        starts = range(self.start, self.stop, PIECE)
        return [replace(self, start=start, stop=min(start + PIECE, self.stop)) for start in starts]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> MappedBatches:
        """The same records without columns that nobody asks for, which are then not read."""
        kept = {name: self.attributes[name] for name in attributes}
        return replace(self, subject=self.subject if subject else None, attributes=kept)

    def with_classes(self, names: tuple[str, ...]) -> MappedBatches:
        """The same records with codes in the order of `names`."""
        return replace(self, classes=names)

    def _rows(self, array: _Array) -> npt.NDArray[Any]:
        return array.rows(self.path, self.start, self.stop)

    def _facts(self) -> Facts:
        # A column of ones in place of the vectors: the checks of the other columns are the same.
        made = self._checked(np.ones((len(self), 1), dtype=np.float32))
        return Facts(made.y, made.subject, made.attributes)

    def _read(self) -> EmbeddingSet:
        return self._checked(self._rows(self.X))

    def _checked(self, X: npt.NDArray[Any]) -> EmbeddingSet:
        labels = label_codes(_flat(self._rows(self.y)), self.names, declared=self.declared)
        subject = None if self.subject is None else self._rows(self.subject)
        raw = RawSplit(X, labels, subject, {name: self._rows(array) for name, array in self.attributes.items()})
        made = assemble({self.split: raw}, self.path, self.source, self.names)[self.split]
        return made if self.classes is None else made.with_classes(self.classes)


def open_mapped(path: str) -> dict[str, MappedBatches]:
    """All splits of a safetensors file or of a folder of .npy files, without reading the vectors; labels are read."""
    arrays, meta = _unpacked(path) if Path(path).is_dir() else _tensors(path)
    info, names = info_from_json(meta.get("info"), path), names_from_json(meta.get("class_names"), path)
    found: dict[str, npt.NDArray[Any]] = {}
    made: dict[str, MappedBatches] = {}
    for split, roles in split_roles(arrays, path).items():
        if "vectors" not in roles or "labels" not in roles:
            raise DataError(f"{path} holds no vectors with labels for {split!r}: save `X` and `y`, or `train_x`, ...")
        held = {role: arrays[name] for role, name in roles.items()}
        X, y = held["vectors"], held["labels"]
        if len(X.shape) != 2 or 0 in X.shape:
            raise DataError(f"{path}: Vectors must form a table of records by features; got shape {X.shape}.")
        if wrong := [roles[role] for role, array in held.items() if len(array) != len(X)]:
            raise DataError(
                f"{path} has {len(X)} vectors and another number of entries in `{wrong[0]}`: each needs one."
            )
        if not names:
            found[split] = _flat(y.rows(path, 0, len(X)))
        attributes = {role.removeprefix(ATTRIBUTE): held[role] for role in roles if role.startswith(ATTRIBUTE)}
        made[split] = MappedBatches(
            path, split, X, y, held.get("subject"), attributes, info, names, bool(names), 0, len(X)
        )
    if names:
        return made
    if len({labels.dtype.kind for labels in found.values()}) > 1:
        found = {split: labels.astype(np.str_) for split, labels in found.items()}
    try:
        names = encode_labels(np.concatenate([np.unique(labels) for labels in found.values()]))[1]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return {split: replace(batches, names=names) for split, batches in made.items()}


def _flat(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _tensors(path: str) -> tuple[dict[str, _Array], dict[str, str]]:
    """The tensors of a safetensors file, and its metadata."""
    check_header(path)
    from safetensors import safe_open

    with reading_file(path, "a safetensors file"):
        # Checks that every tensor has its own bytes, as many as its shape says.
        with safe_open(path, framework="np"):
            pass
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        meta = {str(k): str(v) for k, v in header.pop("__metadata__", {}).items()}
        found = {
            str(name): (str(one["dtype"]), tuple(int(n) for n in one["shape"]), int(one["data_offsets"][0]))
            for name, one in header.items()
        }
    texts = text_values(meta.get("values"), path)
    out: dict[str, _Array] = {}
    for name, (kind, shape, offset) in found.items():
        if kind not in _KINDS:
            raise DataError(f"`{name}` in {path} is stored as {kind}, which NumPy does not have: save it as float32.")
        out[name] = _Array(
            os.path.abspath(path), 8 + length + offset, shape, _KINDS[kind], tuple(texts.get(name, ()))
        )
    return out, meta


def _unpacked(path: str) -> tuple[dict[str, _Array], dict[str, str]]:
    """The arrays of a folder, and what it says about them."""
    out: dict[str, _Array] = {}
    meta: dict[str, str] = {}
    for name, place in array_files(path).items():
        with reading_file(path, "a folder of .npy files"), open(place, "rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, kind = read(file)
            offset = file.tell()
            if (
                min(shape, default=0) < 0
                or offset + kind.itemsize * math.prod(shape) > os.fstat(file.fileno()).st_size
            ):
                raise ValueError("the header does not fit the file")
        if kind.hasobject or by_columns:
            raise DataError(f"`{name}.npy` in {path} holds Python objects or is stored by columns: save it again.")
        array = _Array(os.path.abspath(place), offset, shape, kind.str)
        if name == "info":
            meta[name] = str(text_array(array.rows(path, 0, len(array)), name, 0, path))
        elif name == "class_names":
            meta[name] = json.dumps(text_array(array.rows(path, 0, len(array)), name, 1, path).tolist())
        else:
            out[name] = array
    return out, meta
