"""Parquet files, here or elsewhere, read piece by piece: only one piece is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs
from pyarrow.parquet import ParquetFile

from locum.data.formats.assemble import ALL, SPLITS, RawSplit, assemble, label_codes
from locum.data.formats.parquet import Layout, check_complete, check_same, find_layout
from locum.data.formats.tables import LABELS, Source, is_text, plain_column, raw_splits
from locum.errors import DataError
from locum.io import file_system, is_remote, listed, parquet_files, reading_file, remote_errors
from locum.types import EmbeddingInfo, EmbeddingSet, Facts, encode_labels

# Bytes of a file that are read ahead; whole column chunks would be as large as the writer made them.
_AHEAD = 2**22
# Rows of a column of labels or subjects: they are short.
_LONG = 2**18
# The most numbers of a piece: what is computed from it needs several times as much memory.
_NUMBERS = 2**21


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group: its file, its number there, the number of its first record, and how many records are wanted."""

    file: int
    number: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ParquetBatches:
    """Records of a Parquet file or a folder of them, or of one split.

    `open_parquet` makes it. It holds no open file, so it can be sent to another process.
    """

    path: str
    files: tuple[str, ...]
    groups: tuple[_Group, ...]
    layout: Layout
    names: tuple[str, ...]
    dim: int
    split: str
    # Names that codes stand for, where they are not those of the file.
    classes: tuple[str, ...] | None = None

    @property
    def info(self) -> EmbeddingInfo:
        """Where the vectors come from."""
        return replace(self.layout.info, class_names=self.names if self.classes is None else self.classes)

    @property
    def has_subjects(self) -> bool:
        """Whether it is known which records belong together."""
        return self.layout.roles.subject is not None

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(self.layout.roles.attributes)

    def __len__(self) -> int:
        return sum(group.rows for group in self.groups)

    def __iter__(self) -> Iterator[EmbeddingSet]:
        wanted, rows = [*self.layout.numbers, *self.layout.worded], max(256, min(_NUMBERS // max(self.dim, 1), 2**16))
        for start, table in _tables(self.path, self.files, self.groups, wanted, rows):
            source = _source(self.path, start)
            piece = self._piece(table, self.layout.vectors(table, source), source)
            if piece is None:
                continue
            if piece.dim != self.dim:
                raise DataError(
                    f"Vectors in {self.path} must have one length; the first has {self.dim} numbers and "
                    f"{source.where(0)} has {piece.dim}."
                )
            yield piece

    def state(self) -> str:
        """The row groups, and the sizes and times of the files."""
        with _guarded(self.path):
            found = _system(self.path).get_file_info(list(self.files))
        return repr((self.split, self.groups, [(one.path, one.size, one.mtime_ns) for one in found]))

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors, which are not read."""
        for start, table in _tables(self.path, self.files, self.groups, self.layout.worded, _LONG):
            source = _source(self.path, start)
            # A column of ones in place of the vectors: the checks of the other columns are the same.
            piece = self._piece(table, np.ones((table.num_rows, 1), dtype=np.float32), source)
            if piece is not None:
                yield Facts(piece.y, piece.subject, piece.attributes)

    def parts(self) -> Sequence[ParquetBatches]:
        """One part per row group."""
        return [replace(self, groups=(group,)) for group in self.groups]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> ParquetBatches:
        """The same records without columns that nobody asks for, which are then not read."""
        roles = self.layout.roles
        kept = {name: roles.attributes[name] for name in attributes}
        roles = replace(roles, subject=roles.subject if subject else None, attributes=kept)
        return replace(self, layout=replace(self.layout, roles=roles))

    def with_classes(self, names: tuple[str, ...]) -> ParquetBatches:
        """The same records with codes in the order of `names`."""
        return replace(self, classes=names)

    def _piece(self, table: pa.Table, X: npt.NDArray[Any], source: Source) -> EmbeddingSet | None:
        """The records of a table that belong to the split; None if there are none."""
        roles = self.layout.roles
        assert roles.label is not None, "the layout settles the label"
        columns = {n: plain_column(table.column(n), n, source) for n in self.layout.worded if n != roles.label}
        columns[roles.label] = _codes(table.column(roles.label), roles.label, self, source)
        found = raw_splits(X, columns, roles, source)
        if self.split not in found:
            return None
        part: RawSplit = found[self.split]
        made = assemble({self.split: part}, self.path, self.layout.info, self.names)[self.split]
        return made if self.classes is None else made.with_classes(self.classes)


def open_parquet(path: str) -> dict[str, ParquetBatches]:
    """All splits of a Parquet file or a folder of them, as `read_parquet` has them, without reading the vectors.

    Labels are read once if the files do not name their classes, and splits if there are several.
    """
    files = tuple(_files(path))
    schemas, groups, first = [], [], 0
    for number, file in enumerate(files):
        with _opened(path, file) as opened:
            schemas.append(opened.schema_arrow)
            for group in range(opened.metadata.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                if rows:
                    groups.append(_Group(number, group, first, rows))
                first += rows
    check_same(path, schemas)
    check_complete(path, first)
    layout = find_layout(schemas[0], path)
    if not groups:
        raise DataError(f"{path} holds no records: add some.")
    source = Source(path, lambda i: f"record {i}")
    _check_label(schemas[0], layout, path)
    names = layout.names or _class_names(path, files, groups, layout, source)
    _, head = next(_tables(path, files, groups[:1], layout.numbers, 1))
    dim = int(layout.vectors(head, source).shape[1])
    splits = {ALL: groups}
    if layout.roles.split is not None:
        splits = _by_split(path, files, groups, layout.roles.split, source)
    return {
        split: ParquetBatches(path, files, tuple(held), layout, names, dim, split) for split, held in splits.items()
    }


def _files(path: str) -> list[str]:
    """The places of the files in their file system."""
    if not is_remote(path):
        found = [str(file) for file in parquet_files(path)] or [path]
        # Absolute: another process may work elsewhere.
        return [file_system(file)[1] for file in found]
    system, place = file_system(path)
    with remote_errors(path):
        at = system.get_file_info(place)
        if at.type == fs.FileType.File:
            return [place]
        listed = system.get_file_info(fs.FileSelector(place))
        if at.type == fs.FileType.NotFound and not listed:
            raise FileNotFoundError(place)
    names = sorted(
        one.path
        for one in listed
        if one.type == fs.FileType.File and one.extension.lower() == "parquet" and one.base_name[0] not in "._"
    )
    if not names:
        raise DataError(f"{path} holds no Parquet files at its top level: give a folder of them, or a file.")
    return names


def _system(path: str) -> fs.FileSystem:
    return file_system(path)[0]


def _guarded(path: str) -> AbstractContextManager[None]:
    return remote_errors(path) if is_remote(path) else reading_file(path, "a Parquet file")


@contextmanager
def _opened(path: str, file: str) -> Iterator[ParquetFile]:
    # The name of a single file can be a patient's: errors name what was asked for.
    with _guarded(path):
        stream = _system(path).open_input_file(file)
        opened = ParquetFile(stream, buffer_size=_AHEAD, pre_buffer=False)
    try:
        yield opened
    finally:
        opened.close()
        stream.close()


def _tables(
    path: str, files: Sequence[str], groups: Sequence[_Group], columns: Sequence[str], rows: int
) -> Iterator[tuple[int, pa.Table]]:
    """The number of the first record and the columns of each piece; no piece has records of two row groups."""
    held: list[list[_Group]] = []
    for group in groups:
        if not held or held[-1][0].file != group.file:
            held.append([])
        held[-1].append(group)
    for of_file in held:
        with _opened(path, files[of_file[0].file]) as opened:
            for group in of_file:
                start = group.first
                with _guarded(path):
                    reader = opened.iter_batches(rows, [group.number], list(columns), use_threads=False)
                while True:
                    with _guarded(path):
                        batch = next(reader, None)
                        if batch is not None:
                            # Arrow trusts the text and offsets of a file unless told to check.
                            batch.validate(full=True)
                    if batch is None:
                        break
                    if batch.num_rows == 0:
                        continue
                    yield start, pa.Table.from_batches([batch])
                    start += batch.num_rows
                if start - group.first != opened.metadata.row_group(group.number).num_rows:
                    raise DataError(f"{path} is damaged, or is not a Parquet file: copy or export it again.")


def _source(path: str, start: int) -> Source:
    return Source(path, lambda i: f"record {start + i}")


def _check_label(schema: pa.Schema, layout: Layout, path: str) -> None:
    """Refuse a guessed label that is a measurement, as `raw_splits` does once it has the numbers."""
    label = layout.roles.label
    if label is not None and label.lower() not in LABELS and pa.types.is_floating(schema.field(label).type):
        raise DataError(
            f"{path} has no labels: no column is called {listed(LABELS)}, and the last one, "
            f"`{label}`, holds fractions. Name the column of classes `label`."
        )


def _class_names(
    path: str, files: Sequence[str], groups: Sequence[_Group], layout: Layout, source: Source
) -> tuple[str, ...]:
    """The labels that occur, sorted: from one pass over their column."""
    label = layout.roles.label
    assert label is not None, "the layout settles the label"
    found: npt.NDArray[Any] | None = None
    for _, table in _tables(path, files, groups, [label], _LONG):
        own = np.unique(plain_column(_distinct(table.column(label)), label, source))
        found = own if found is None else np.unique(np.concatenate([found, own]))
    assert found is not None, "there are records"
    try:
        return encode_labels(found)[1]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _distinct(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column of text without repetitions, which is quicker in Arrow; others as they are."""
    return pa.chunked_array([column.unique()]) if is_text(column.type) else column


def _codes(column: pa.ChunkedArray, name: str, batches: ParquetBatches, source: Source) -> npt.NDArray[np.int64]:
    """Class codes; text is looked up once per value."""
    if not is_text(column.type) or column.null_count:
        return label_codes(plain_column(column, name, source), batches.names, declared=bool(batches.layout.names))
    encoded = column.combine_chunks().dictionary_encode()
    known, _ = encode_labels(np.asarray(encoded.dictionary.to_pylist(), dtype=np.str_), batches.names)
    codes: npt.NDArray[np.int64] = np.take(known, encoded.indices.to_numpy(zero_copy_only=False))
    return codes


def _by_split(
    path: str, files: Sequence[str], groups: Sequence[_Group], column: str, source: Source
) -> dict[str, list[_Group]]:
    """The row groups that hold records of each split, with how many."""
    out: dict[str, list[_Group]] = {}
    for group in groups:
        counts = dict.fromkeys(SPLITS, 0)
        for start, table in _tables(path, files, [group], [column], _LONG):
            named = plain_column(table.column(column), column, source).astype(np.str_)
            unknown = ~np.isin(named, SPLITS)
            if unknown.any():
                raise DataError(
                    f"Column `{column}` of {path} must say train, val or test; record "
                    f"{start + int(np.argmax(unknown))} says something else."
                )
            for split in SPLITS:
                counts[split] += int((named == split).sum())
        for split, count in counts.items():
            if count:
                out.setdefault(split, []).append(replace(group, rows=count))
    return {split: out[split] for split in SPLITS if split in out}
