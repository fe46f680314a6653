"""CSV tables, also compressed, read piece by piece: only one block of the file is in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from locum.data.formats.assemble import ALL, SPLITS, RawSplit, assemble
from locum.data.formats.csv import KIND, column_text, read_header, table_pieces, tidy, worded
from locum.data.formats.tables import Roles, Source, features, find_roles, guess_label, raw_splits
from locum.errors import DataError
from locum.io import reading_file
from locum.types import EmbeddingInfo, EmbeddingSet, Facts, encode_labels

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class CsvBatches:
    """Records of a CSV table, or of one split. `open_csv` makes it."""

    path: str
    columns: tuple[str, ...]
    roles: Roles
    # For each column of words but subjects: its entries, sorted, and what `read_csv` makes of them.
    entries: Mapping[str, tuple[Array, Array]]
    names: tuple[str, ...]
    split: str
    rows: int
    classes: tuple[str, ...] | None = None

    @property
    def info(self) -> EmbeddingInfo:
        """The class names; a CSV says nothing about a backbone."""
        return EmbeddingInfo(class_names=self.names if self.classes is None else self.classes)

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return len(self.roles.rest)

    @property
    def has_subjects(self) -> bool:
        """Whether it is known which records belong together."""
        return self.roles.subject is not None

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(self.roles.attributes)

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for start, table in table_pieces(self.path, self.columns, self.roles):
            source = row_source(self.path, start)
            piece = self._piece(table, features(table, self.roles.rest, source), source)
            if piece is not None:
                yield piece

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors, whose columns are not converted."""
        for start, table in table_pieces(self.path, self.columns, self.roles, numbers=False):
            piece = self._piece(table, np.ones((table.num_rows, 1), np.float32), row_source(self.path, start))
            if piece is not None:
                yield Facts(piece.y, piece.subject, piece.attributes)

    def state(self) -> str:
        """The size and the time of the file."""
        with reading_file(self.path, KIND):
            found = os.stat(self.path)
        return repr((os.path.realpath(self.path), self.split, found.st_size, found.st_mtime_ns))

    def parts(self) -> Sequence[CsvBatches]:
        """One part: rows of a table have to be read in order."""
        return [self]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> CsvBatches:
        """The same records without columns that nobody asks for."""
        kept = {name: self.roles.attributes[name] for name in attributes}
        roles = replace(self.roles, subject=self.roles.subject if subject else None, attributes=kept)
        return replace(self, roles=roles)

    def with_classes(self, names: tuple[str, ...]) -> CsvBatches:
        """The same records with codes in the order of `names`."""
        return replace(self, classes=names)

    def _piece(self, table: pa.Table, X: Array, source: Source) -> EmbeddingSet | None:
        plain: dict[str, Array] = {}
        for name in worded(self.roles):
            text = column_text(table, name, self.roles, source)
            if name in self.entries:
                known, meant = self.entries[name]
                text = meant[np.searchsorted(known, text)]
            plain[name] = text
        assert self.roles.label is not None, "a label was guessed"
        plain[self.roles.label] = encode_labels(plain[self.roles.label], self.names)[0]
        splits = raw_splits(X, plain, self.roles, source)
        if self.split not in splits:
            return None
        raw: RawSplit = splits[self.split]
        made = assemble({self.split: raw}, self.path, EmbeddingInfo(), self.names)[self.split]
        return made if self.classes is None else made.with_classes(self.classes)


def row_source(path: str, start: int) -> Source:
    """How errors name a row; `start` rows came before."""
    return Source(path, lambda i: f"row {start + i + 2} (the header is row 1)")


def open_csv(path: str) -> dict[str, CsvBatches]:
    """All splits of a CSV table, as `read_csv` has them, after one pass over its words."""
    columns = tuple(read_header(path))
    roles = guess_label(find_roles(columns, path), columns, path)
    found: dict[str, set[str]] = {name: set() for name in worded(roles) if name != roles.subject}
    counts: dict[str, int] = {}
    for start, table in table_pieces(path, columns, roles, numbers=False):
        source = row_source(path, start)
        for name in found:
            texts = column_text(table, name, roles, source)
            found[name].update(np.unique(texts).tolist())
            if name == roles.split:
                for split, count in zip(*np.unique(texts, return_counts=True), strict=True):
                    counts[str(split)] = counts.get(str(split), 0) + int(count)
        if roles.split is None:
            counts[ALL] = counts.get(ALL, 0) + table.num_rows
    if not counts:
        raise DataError(f"{path} has a header but no records: add rows.")
    if roles.split is not None and not set(counts) <= set(SPLITS):
        raise DataError(f"Column `{roles.split}` of {path} must say train, val or test; a row says something else.")
    assert roles.label is not None, "a label was guessed"
    entries: dict[str, tuple[Array, Array]] = {}
    for name, values in found.items():
        known = np.array(sorted(values))
        entries[name] = known, tidy(known, truth=name in roles.attributes.values())
    labels = entries[roles.label][1]
    held = {split: counts[split] for split in (*SPLITS, ALL) if split in counts}
    # Checks what a whole table would be checked for.
    bare = replace(roles, split=None, subject=None, attributes={})
    raw_splits(np.ones((1, 1)), {roles.label: labels[:1]}, bare, row_source(path, 0))
    try:
        names = encode_labels(labels)[1]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return {split: CsvBatches(path, columns, roles, entries, names, split, rows) for split, rows in held.items()}
