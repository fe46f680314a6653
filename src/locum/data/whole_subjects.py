"""Records in pieces that hold whole subjects, which a guarantee per subject needs.

Data whose subjects are together already are read as they are. Others are copied once into files sorted by groups of
subjects, in runs of bounded size; a copy that was interrupted goes on with the next run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.data.formats.parquet import write_parquet_stream
from locum.errors import DataError
from locum.io import private_folder, write_atomically
from locum.types import Batches, EmbeddingInfo, EmbeddingSet, Facts

# Numbers of a run, which is held in memory: 256 MB as vectors.
_RUN = 2**26
# Records of a group of subjects, which is held in memory: as many as make some 64 MB.
_GROUP = 2**24
_MOST_GROUPS = 1024
# What a copy was made from.
_NOTE = "_sorted.json"


class Distinct:
    """How many distinct texts there are in columns that are added one by one, at 8 bytes each.

    Two texts count as one by accident with a probability of about n squared over 2**65.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import Distinct
    >>> seen = Distinct()
    >>> seen.add(np.array(["a", "b"]))
    >>> seen.add(np.array(["b", "c"]))
    >>> len(seen)
    3
    """

    def __init__(self) -> None:
        self._known: npt.NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._new: list[npt.NDArray[np.uint64]] = []

    def add(self, column: npt.NDArray[Any]) -> None:
        """Add a column of text or whole numbers."""
        self._new.append(np.unique(hashed(column)))
        if sum(map(len, self._new)) > max(len(self._known), 2**20):
            self._merge()

    def __len__(self) -> int:
        self._merge()
        return len(self._known)

    def _merge(self) -> None:
        self._known = np.unique(np.concatenate([self._known, *self._new]))
        self._new = []


def hashed(column: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each entry's text, the same in every process and for every type of number."""
    texts, inverse = np.unique(_texts(column), return_inverse=True)
    try:
        own = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts.tolist())
    except UnicodeEncodeError:
        raise DataError(
            "A subject is not valid text: it holds half of a character. Write it again in UTF-8."
        ) from None
    out: npt.NDArray[np.uint64] = np.frombuffer(own, dtype="<u8")[inverse]
    return out


def _texts(column: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    """Each entry as text. A whole number has one text: a table that gets a gap often comes back with 1.0 for 1."""
    out = column.astype(np.str_)
    if column.dtype.kind == "f":
        whole = np.isfinite(column) & (column == np.floor(column))
        # Python's integers: beyond 2**63 numpy's would overflow.
        out = out.astype(f"<U{max(out.dtype.itemsize // 4, 310)}")
        out[whole] = [str(int(value)) for value in column[whole].tolist()]
    return out


def by_subject(batches: Batches, folder: Path | None) -> Batches:
    """The same records in pieces that hold all records of each of their subjects, in their order.

    Parameters
    ----------
    batches
        Records with subjects.
    folder
        A private folder for a sorted copy, if subjects are spread over the data. It is as large as the data, holds
        records, and can be removed afterward; with the same data it is used again. None: spread subjects are
        refused.

    Returns
    -------
    Batches
        Whole subjects in every piece.

    Raises
    ------
    DataError
        If subjects are spread over the data and there is no room for a copy.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from locum.data import by_subject
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> data = EmbeddingSet.from_arrays(np.eye(4), [0, 1, 0, 1], subject=["b", "a", "b", "a"])
    >>> pieces = by_subject(SetBatches(data, rows=1), Path("sorted"))
    >>> sorted(subject for piece in pieces for subject in set(piece.subject.tolist()))
    ['a', 'b']
    """
    if not batches.has_subjects:
        raise DataError("The data do not say which records belong to whom: add a column `subject`.")
    if _together(batches):
        return _Together(batches)
    if folder is None:
        raise DataError(
            "The records of a subject are spread over the data, and there is no place for a sorted copy: sort the "
            "data by subject, or give a folder on this machine."
        )
    return _sorted(batches, folder)


def _together(batches: Batches) -> bool:
    """Whether all records of a subject follow each other, from a pass that reads no vectors."""
    begun, last, runs = Distinct(), None, 0
    for facts in batches.only(subject=True).facts():
        assert facts.subject is not None, "asked for"
        texts = facts.subject.astype(np.str_)
        new = np.ones(len(texts), dtype=bool)
        new[1:] = texts[1:] != texts[:-1]
        new[0] = last is None or texts[0] != last
        last = texts[-1]
        begun.add(texts[new])
        runs += int(new.sum())
    # A subject that begins twice has one hash; an accident makes a copy that was not needed, never the other way.
    return len(begun) == runs


@dataclass(frozen=True, slots=True, eq=False)
class OtherPieces:
    """What does not change when records come in other pieces."""

    batches: Batches

    @property
    def info(self) -> EmbeddingInfo:
        """Where the vectors come from."""
        return self.batches.info

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return self.batches.dim

    @property
    def has_subjects(self) -> bool:
        """Whether it is known which records belong together."""
        return self.batches.has_subjects

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return self.batches.attribute_names

    def __len__(self) -> int:
        return len(self.batches)

    def state(self) -> str:
        """A text that changes when the records change."""
        return self.batches.state()

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors."""
        return self.batches.facts()


@dataclass(frozen=True, slots=True, eq=False)
class _Together(OtherPieces):
    """Records whose subjects follow each other; a subject on the border of two pieces goes into the second."""

    def __iter__(self) -> Iterator[EmbeddingSet]:
        held: list[EmbeddingSet] = []
        for piece in self.batches:
            assert piece.subject is not None, "the data have subjects"
            texts = piece.subject.astype(np.str_)
            if held:
                before = held[0].subject
                assert before is not None, "the data have subjects"
                # The same conversion on both sides: what is equal in one array must be equal here.
                if texts[0] != before[:1].astype(np.str_)[0]:
                    yield joined(held)
                    held = []
            # Everything up to the last subject is complete.
            other = np.flatnonzero(texts != texts[-1])
            cut = int(other[-1]) + 1 if len(other) else 0
            if cut:
                yield joined([*held, piece.take(range(cut))])
                held = []
            held.append(piece.take(range(cut, len(piece))))
        if held:
            yield joined(held)

    def parts(self) -> Sequence[Batches]:
        """One part: a subject may lie on the border of two parts of the data."""
        return [self]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> Batches:
        """The same records without columns that nobody asks for."""
        return _Together(self.batches.only(subject=True, attributes=attributes))

    def with_classes(self, names: tuple[str, ...]) -> Batches:
        """The same records with codes in the order of `names`."""
        return _Together(self.batches.with_classes(names))


def joined(pieces: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Pieces of one data set as one."""
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0]
    subject = [piece.subject for piece in pieces if piece.subject is not None]
    return EmbeddingSet(
        np.concatenate([piece.X for piece in pieces]),
        np.concatenate([piece.y for piece in pieces]),
        np.concatenate(subject) if subject else None,
        {name: np.concatenate([piece.attributes[name] for piece in pieces]) for name in first.attributes},
        first.info,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Groups(OtherPieces):
    """A sorted copy, by groups of subjects; `original` is the state of the data that it was made from."""

    groups: Sequence[Batches]
    original: str

    def state(self) -> str:
        """That of the data themselves: a copy that was made anew is the same."""
        return self.original

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for group in self.groups:
            yield joined(list(group))

    def parts(self) -> Sequence[Batches]:
        """One part per group of subjects."""
        return [_Groups(group, [group], self.original) for group in self.groups]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> Batches:
        """The same records without columns that nobody asks for."""
        lean = [group.only(subject=True, attributes=attributes) for group in self.groups]
        return _Groups(self.batches.only(subject=True, attributes=attributes), lean, self.original)

    def with_classes(self, names: tuple[str, ...]) -> Batches:
        """The same records with codes in the order of `names`."""
        named = [group.with_classes(names) for group in self.groups]
        return _Groups(self.batches.with_classes(names), named, self.original)


def _sorted(batches: Batches, folder: Path) -> Batches:
    """Copy the records into runs whose row groups are groups of subjects."""
    from locum.data.formats.parquet_batches import ParquetBatches, open_parquet

    n, d = len(batches), batches.dim
    count = min(max(1, -(-n * d // _GROUP)), _MOST_GROUPS)
    needed = 4 * n * d + 64 * n
    private_folder(folder)
    if any(not file.name.startswith(("run-", _NOTE, ".locum-")) for file in folder.iterdir()):
        # It is emptied below.
        raise DataError(f"{str(folder)!r} holds other files: give a folder that is empty or new for the sorted copy.")
    # The state of the data is in it, so that a copy of other data is not taken for this one.
    settings = {
        "rows": n,
        "dim": d,
        "groups": count,
        "state": batches.state(),
        "version": __version__,
        "attributes": list(batches.attribute_names),
        # Their order too: records are written with codes into it.
        "classes": list(batches.info.class_names),
    }
    note = folder / _NOTE
    if not note.exists() or json.loads(note.read_bytes()) != settings:
        shutil.rmtree(folder)
        private_folder(folder)
        if shutil.disk_usage(folder).free < 1.1 * needed:
            raise DataError(
                f"The records of a subject are spread over the data, and a sorted copy needs {needed / 1e9:.1f} GB, "
                f"which is not free in {str(folder)!r}: make room, or sort the data by subject."
            )
        write_atomically(note, lambda stream: stream.write(json.dumps(settings).encode()))
    run, held, size = 0, [], 0
    most = max(1, _RUN // d)
    for piece in batches:
        held.append(piece)
        size += len(piece)
        if size >= most:
            _write_run(folder / f"run-{run:06d}.parquet", held, count)
            run, held, size = run + 1, [], 0
    if held:
        _write_run(folder / f"run-{run:06d}.parquet", held, count)
    runs = open_parquet(str(folder))["all"]
    assert isinstance(runs, ParquetBatches)
    if len(runs) != n:
        raise DataError(
            f"The sorted copy in {str(folder)!r} has {len(runs)} of {n} records, because another process uses the "
            "folder or the data changed meanwhile: run the same command again."
        )
    # Group g has a place in every run, also where it is empty: then the run has no row group for it.
    of_group: dict[int, list[Any]] = {}
    for place, number in zip(runs.groups, _numbers(folder), strict=True):
        of_group.setdefault(number, []).append(place)
    groups = [replace(runs, groups=tuple(of_group[g])) for g in sorted(of_group)]
    return _Groups(runs, groups, batches.state())


def _write_run(file: Path, pieces: Sequence[EmbeddingSet], count: int) -> None:
    """Write one run as a whole, with a list of the groups in it; a run that is there was written as a whole."""
    if file.exists():
        return
    data = joined(pieces)
    assert data.subject is not None, "the data have subjects"
    group = (hashed(data.subject) % np.uint64(count)).astype(np.int64)
    order, present = np.argsort(group, kind="stable"), np.unique(group)
    edges = np.searchsorted(group[order], [*present.tolist(), count])
    numbers = file.with_suffix(".json")
    write_atomically(numbers, lambda stream: stream.write(json.dumps(present.tolist()).encode()))
    write_atomically(
        file,
        lambda stream: write_parquet_stream(stream, (data.take(order[a:b]) for a, b in pairwise(edges))),
    )


def _numbers(folder: Path) -> list[int]:
    """The group of each row group of each run, in order."""
    return [number for file in sorted(folder.glob("run-*.json")) for number in json.loads(file.read_bytes())]
