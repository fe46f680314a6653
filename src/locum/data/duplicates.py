"""Records that equal another: find them, within a split and between splits, and leave them out.

Two records are copies if their vectors hold the same float32 numbers (-0.0 counts as 0.0). Near copies are not found.

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

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.formats.npz import StreamedSplit
from locum.errors import DataError, PrivacyError
from locum.types import DP, EmbeddingSet

# Rows that are converted at a time, so that no second copy of the data is needed.
_BLOCK = 4096


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
    known = set(_contents(others.X))
    return np.array([key in known for key in _contents(data.X)], dtype=bool)


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


def list_copies(parts: Mapping[str, EmbeddingSet | StreamedSplit]) -> list[Copy]:
    """Every record that has the vector of an earlier one, with the one that it equals.

    A record that equals one of an earlier split is listed with that one. Within a split it is listed with the first
    that agrees in label and subject, else in the label, else in the vector alone.

    Parameters
    ----------
    parts
        The splits by name, members first. All have codes into the same class names. Blocks of a `StreamedSplit` are
        used up.

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
    # Place, label and subject of the first record of each kind.
    seen: dict[tuple[Any, ...], tuple[str, int, int, Any]] = {}
    out = []
    for split, part in parts.items():
        blocks = part.blocks if isinstance(part, StreamedSplit) else [part.X]
        codes = part.y.tolist()
        subjects = [None] * len(codes) if part.subject is None else part.subject.tolist()
        row = 0
        for block in blocks:
            for content in _contents(block):
                mine = (split, row, codes[row], subjects[row])
                keys = [(content,), (split, content, codes[row]), (split, content, codes[row], subjects[row])]
                first = seen.get(keys[0])
                if first is not None:
                    if first[0] == split:
                        first = seen.get(keys[2]) or seen.get(keys[1]) or first
                    out.append(_copy(mine, first))
                for key in keys:
                    seen.setdefault(key, mine)
                row += 1
    return out


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
    keys = zip(_contents(X), *codes, strict=True)
    return np.array([seen.setdefault(key, i) for i, key in enumerate(keys)], dtype=np.int64)


def _contents(X: npt.NDArray[Any]) -> Iterator[bytes]:
    """A hash of each vector. It is cryptographic: nobody can make two records that differ count as copies."""
    for start in range(0, len(X), _BLOCK):
        # Adding 0 turns -0.0 into 0.0.
        block = np.ascontiguousarray(X[start : start + _BLOCK], dtype=np.float32) + np.float32(0)
        for row in block:
            yield hashlib.blake2b(row.data, digest_size=32).digest()
