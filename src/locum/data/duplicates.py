"""Records that equal another: find them, within a split and between splits, and leave them out.

Two records are copies if their vectors hold the same float32 numbers (-0.0 counts as 0.0). Near copies are not found.
Records that do not fit in memory (`Batches`) are compared by hashes of their contents.

What may be dropped under differential privacy follows from one question: can a unit that comes or goes move the
records of others? Call a record what a private fit reads of it: vector, label, and the subject if that is the unit.
Dropping all but one of several equal records turns the data D into the set of D.

- Unit `record`, add-or-remove. Let D' be D and one more record r. If D holds r, both have the same set; if not, the
  sets differ by r alone. Neighbors stay neighbors or become equal, so every guarantee for the set is one for D.
- Unit `record`, replace-one. Let D' be D with s in place of r. If r has a copy in D and s has none, the set of D'
  has one record more than the set of D. A guarantee about data of equal size says nothing about these two. Refused.
- Unit `subject`, both relations. Copies are dropped among the records of one subject. What is left of a subject
  depends on that subject alone and is never empty: whoever comes, goes or changes leaves all others as they were.
- Unit `subject`: copies of different subjects are never dropped. A subject who holds copies of the records of m
  others would take m records from them, which moves a sum by about m times the bound that the noise was made for.

The order of the records carries nothing: no private fit depends on it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.contents import IN_MEMORY, HashStore, contents, known, repeated, short_hashes
from locum.data.formats.npz import StreamedSplit
from locum.errors import DataError, PrivacyError
from locum.types import DP, Batches, EmbeddingSet, SetBatches


def find_duplicates(
    X: npt.ArrayLike, y: npt.ArrayLike | None = None, subject: npt.ArrayLike | None = None
) -> npt.NDArray[np.int64]:
    """For each record the position of the first one that equals it: its own position if no earlier one does.

    Parameters
    ----------
    X
        Vectors (n, d). They are compared as float32, and -0.0 equals 0.0.
    y
        Labels; if given, copies must agree in them too.
    subject
        Subjects; if given, copies must agree in them too.

    Returns
    -------
    ndarray of shape (n,)
        Positions. Keep `first == np.arange(n)` to keep one of each.

    Raises
    ------
    DataError
        If the vectors are no table, or a column has another length.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import find_duplicates
    >>> X = np.array([[1.0, 0.0], [2.0, 5.0], [1.0, -0.0], [1.0, 0.0]])
    >>> find_duplicates(X).tolist()
    [0, 1, 0, 0]
    >>> find_duplicates(X, y=["cat", "cat", "dog", "cat"]).tolist()
    [0, 1, 2, 0]
    """
    a = np.asarray(X)
    if a.ndim != 2:
        raise DataError(f"Vectors must form a table of records by features; got shape {a.shape}.")
    columns = {"y": y, "subject": subject}
    return _firsts(a, {name: np.asarray(column) for name, column in columns.items() if column is not None})


def drop_duplicates(data: EmbeddingSet, privacy: DP | None = None) -> EmbeddingSet:
    """`data` without records that equal an earlier one in vector and label.

    Copies with different labels are all kept: nothing says which label is right. For the unit `subject` copies must
    be of one subject: then whoever comes or goes leaves the records of others as they were, and the guarantee holds
    for `data` as given. For the unit `record` subjects do not count, since a fit does not read them. Attributes never
    count. Vectors that are left hold 0.0 in place of -0.0.

    Parameters
    ----------
    data
        The records.
    privacy
        Budget of the fit that will use them; None: no guarantee.

    Returns
    -------
    EmbeddingSet
        The records that are left, in their order.

    Raises
    ------
    PrivacyError
        For the unit `record` under the relation `replace-one`, where the number of records that are left would depend
        on a record's values; and for the unit `subject` without subjects.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import drop_duplicates
    >>> from locum.types import DP, EmbeddingSet
    >>> data = EmbeddingSet(np.ones((3, 2)), np.array([0, 0, 0]), subject=["ann", "bob", "ann"])
    >>> len(drop_duplicates(data)), len(drop_duplicates(data, DP(1.0, 1e-6, unit="subject", n_public=100)))
    (1, 2)
    """
    columns: dict[str, npt.NDArray[Any]] = {"y": data.y}
    if privacy is not None:
        check_droppable(privacy)
        if privacy.unit == "subject" and data.subject is None:
            raise PrivacyError("The unit `subject` needs `subject`: say which records belong together.")
        if privacy.unit == "subject":
            columns["subject"] = np.asarray(data.subject)
    left = data.take(_firsts(data.X, columns) == np.arange(len(data)))
    # Which of two spellings of zero is left must not depend on the order of the copies.
    return replace(left, X=left.X + np.float32(0))


def check_droppable(privacy: DP | None) -> None:
    """Raise `PrivacyError` if no duplicates can be dropped under a budget without breaking its guarantee.

    Parameters
    ----------
    privacy
        Budget of the fit; None: no guarantee, and nothing to break.

    Raises
    ------
    PrivacyError
        For the unit `record` under the relation `replace-one`.

    Examples
    --------
    >>> from locum.data import check_droppable
    >>> from locum.types import DP
    >>> check_droppable(DP(1.0, 1e-6, n_public=100))
    """
    if privacy is not None and (privacy.unit, privacy.relation) == ("record", "replace-one"):
        raise PrivacyError(
            "Duplicates cannot be dropped for the unit `record` under `replace-one`: how many records are left would "
            "depend on one record's values. Use `add-or-remove`, or leave --drop-duplicates out."
        )


def copies_of(data: EmbeddingSet, others: EmbeddingSet) -> npt.NDArray[np.bool_]:
    """Which records of `data` have the vector of a record of `others`, whatever their labels.

    Parameters
    ----------
    data
        The records in question, such as non-members or test records.
    others
        The records to compare with, such as members.

    Returns
    -------
    ndarray of shape (len(data),)
        True for copies.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import copies_of
    >>> from locum.types import EmbeddingSet
    >>> members = EmbeddingSet(np.array([[1.0], [2.0]]), np.array([0, 1]))
    >>> test = EmbeddingSet(np.array([[2.0], [3.0]]), np.array([0, 1]))
    >>> clean = test.take(~copies_of(test, members))
    >>> clean.X.tolist()
    [[3.0]]
    """
    theirs = set(contents(others.X))
    return np.array([key in theirs for key in contents(data.X)], dtype=bool)


def count_duplicates(batches: Batches, *, scratch: Path | None = None, in_memory: int = IN_MEMORY) -> int:
    """How many records equal an earlier one in vector and label, whatever their number.

    The same as counting with `find_duplicates(X, y)`, without the records in memory: 16 bytes are kept of each, in
    memory or, if there are many, in private files that are removed at the end.

    Parameters
    ----------
    batches
        The records. They are read once.
    scratch
        Folder for the files; None: that of the system for temporary files.
    in_memory
        How many records are kept track of without files; the default takes up to 400 MB.

    Returns
    -------
    int
        Private, like the records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import count_duplicates
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> data = EmbeddingSet(np.array([[1.0], [2.0], [1.0], [1.0]]), np.array([0, 0, 0, 1]))
    >>> count_duplicates(SetBatches(data, rows=2))
    1
    """
    key = secrets.token_bytes(16)
    with HashStore(scratch, in_memory) as store:
        for piece in batches:
            store.add(short_hashes(piece.X, piece.y, key))
        return sum(repeated(group)[1] for group in store.groups())


def count_copies_of(
    data: Batches, others: Batches, *, scratch: Path | None = None, in_memory: int = IN_MEMORY
) -> int:
    """How many records of `data` have the vector of a record of `others`, whatever their labels and their number.

    The same as counting with `copies_of`, without the records in memory; see `count_duplicates`.

    Parameters
    ----------
    data
        The records in question, such as non-members or test records. They are read once.
    others
        The records to compare with, such as members. They are read once.
    scratch
        Folder for private files; None: that of the system for temporary files.
    in_memory
        How many records of each are kept track of without files.

    Returns
    -------
    int
        Private, like the records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import count_copies_of
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> members = SetBatches(EmbeddingSet(np.array([[1.0], [2.0]]), np.array([0, 1])))
    >>> test = SetBatches(EmbeddingSet(np.array([[2.0], [3.0]]), np.array([0, 1])))
    >>> count_copies_of(test, members)
    1
    """
    key = secrets.token_bytes(16)
    with ExitStack() as stack:
        mine, theirs = (stack.enter_context(HashStore(scratch, in_memory)) for _ in range(2))
        for store, batches in ((mine, data), (theirs, others)):
            for piece in batches:
                store.add(short_hashes(piece.X, None, key))
        if mine.has_files or theirs.has_files:
            mine.spread()
            theirs.spread()
        return sum(int(known(a, b).sum()) for a, b in zip(mine.groups(), theirs.groups(), strict=True))


@dataclass(frozen=True, slots=True)
class Copy:
    """A record that has the vector of an earlier record. Private, like the records.

    Attributes
    ----------
    split, row
        Which record it is.
    first_split, first_row
        Which record it equals.
    label
        Whether both have the same label: "same" or "other".
    subject
        Whether both belong to one subject: "same", "other" or, where that is not known, "unknown".

    Examples
    --------
    >>> from locum.data import Copy
    >>> Copy("test", 3, "train", 7, label="same", subject="unknown").is_shared
    True
    """

    split: str
    row: int
    first_split: str
    first_row: int
    label: str
    subject: str

    @property
    def is_shared(self) -> bool:
        """Whether the two records are in different splits."""
        return self.split != self.first_split


def list_copies(
    parts: Mapping[str, EmbeddingSet | StreamedSplit | Batches],
    *,
    scratch: Path | None = None,
    in_memory: int = IN_MEMORY,
) -> list[Copy]:
    """Every record that has the vector of an earlier one, with the one that it equals.

    A record that equals one of an earlier split is listed with that one. Within a split it is listed with the first
    that agrees in label and subject, else in the label, else in the vector alone.

    `Batches` are read twice, and only their copies are held in memory, unless a part is a `StreamedSplit`.

    Parameters
    ----------
    parts
        The splits by name, members first. All have codes into the same class names. Blocks of a `StreamedSplit` are
        used up.
    scratch
        Folder for the private files of `Batches` with many records; None: that of the system for temporary files.
    in_memory
        How many records of `Batches` are kept track of without files.

    Returns
    -------
    list of Copy
        In the order of the records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import list_copies
    >>> from locum.types import EmbeddingSet
    >>> train = EmbeddingSet(np.array([[1.0], [2.0], [1.0]]), np.array([0, 1, 1]))
    >>> test = EmbeddingSet(np.array([[5.0], [2.0]]), np.array([0, 1]))
    >>> for copy in list_copies({"train": train, "test": test}):
    ...     print(copy.split, copy.row, "equals", copy.first_split, copy.first_row, "label:", copy.label)
    train 2 equals train 0 label: other
    test 1 equals train 1 label: same
    """
    wanted = None
    in_pieces = [SetBatches(p) if isinstance(p, EmbeddingSet) else p for p in parts.values()]
    several_passes = [p for p in in_pieces if not isinstance(p, StreamedSplit)]
    if len(several_passes) == len(parts) and not all(isinstance(p, EmbeddingSet) for p in parts.values()):
        parts = dict(zip(parts, several_passes, strict=True))
        wanted = _repeated_vectors(several_passes, scratch, in_memory)
    # Place, label and subject of the first record of each kind.
    seen: dict[tuple[Any, ...], tuple[str, int, int, Any]] = {}
    out = []
    for split, part in parts.items():
        for row, content, code, subject in _rows(part, wanted):
            mine = (split, row, code, subject)
            keys = [(content,), (split, content, code), (split, content, code, subject)]
            first = seen.get(keys[0])
            if first is not None:
                if first[0] == split:
                    first = seen.get(keys[2]) or seen.get(keys[1]) or first
                out.append(_copy(mine, first))
            for key in keys:
                seen.setdefault(key, mine)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """Hashes of vectors that occur more than once, and the key that they were made with."""

    key: bytes
    hashes: npt.NDArray[np.uint64]


def _repeated_vectors(parts: Sequence[Batches], scratch: Path | None, in_memory: int) -> _Wanted:
    key = secrets.token_bytes(16)
    with HashStore(scratch, in_memory) as store:
        for batches in parts:
            for piece in batches:
                store.add(short_hashes(piece.X, None, key))
        return _Wanted(key, np.concatenate([repeated(group)[0] for group in store.groups()]))


def _rows(
    part: EmbeddingSet | StreamedSplit | Batches, wanted: _Wanted | None
) -> Iterator[tuple[int, bytes, int, Any]]:
    """Row, content, class code and subject of each record; only those with a wanted content, if given."""
    if isinstance(part, StreamedSplit):
        row = 0
        for block in part.blocks:
            here = slice(row, row + len(block))
            yield from _records(block, part.y[here], None if part.subject is None else part.subject[here], row)
            row += len(block)
    elif isinstance(part, EmbeddingSet):
        yield from _records(part.X, part.y, part.subject, 0)
    else:
        row = 0
        for piece in part:
            if wanted is None:
                yield from _records(piece.X, piece.y, piece.subject, row)
            else:
                hashes = short_hashes(piece.X, None, wanted.key)
                for i in np.flatnonzero(known(hashes, wanted.hashes)).tolist():
                    subject = None if piece.subject is None else piece.subject[i].item()
                    yield row + i, hashes[i].tobytes(), int(piece.y[i]), subject
            row += len(piece)


def _records(
    X: npt.NDArray[Any], y: npt.NDArray[Any], subject: npt.NDArray[Any] | None, start: int
) -> Iterator[tuple[int, bytes, int, Any]]:
    subjects = [None] * len(X) if subject is None else subject.tolist()
    yield from zip(range(start, start + len(X)), contents(X), y.tolist(), subjects, strict=True)


def _copy(mine: tuple[str, int, int, Any], first: tuple[str, int, int, Any]) -> Copy:
    known = mine[3] is not None and first[3] is not None
    return Copy(
        *mine[:2],
        *first[:2],
        label="same" if mine[2] == first[2] else "other",
        subject=("same" if mine[3] == first[3] else "other") if known else "unknown",
    )


def _firsts(X: npt.NDArray[Any], columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Position of the first record with the same content and the same entry in each column."""
    codes = []
    for name, column in columns.items():
        if column.shape != (len(X),):
            raise DataError(f"`{name}` must have one entry per record ({len(X)}); got shape {column.shape}.")
        codes.append(np.unique(column, return_inverse=True)[1].tolist())
    seen: dict[tuple[Any, ...], int] = {}
    keys = zip(contents(X), *codes, strict=True)
    return np.array([seen.setdefault(key, i) for i, key in enumerate(keys)], dtype=np.int64)
