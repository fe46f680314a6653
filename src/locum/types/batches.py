"""Records in pieces: the same as an `EmbeddingSet`, for data that do not fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from locum.types.embeddings import EmbeddingInfo, EmbeddingSet

# Rows of a piece: enough that the work on it outweighs the overhead, few enough to stay small beside a program.
PIECE = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known about some records beside their vectors.

    Parameters
    ----------
    y
        Class codes.
    subject
        A subject per record; None if not known.
    attributes
        Further facts per record, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.types import Facts
    >>> Facts(np.array([0, 1])).subject is None
    True
    """

    y: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None = None
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@runtime_checkable
class Batches(Protocol):
    """Records that are read piece by piece; every pass gives the same pieces in the same order.

    `locum.data.open_batches` opens files as such; `SetBatches` gives records in memory in pieces.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.types import Batches, EmbeddingSet, SetBatches
    >>> def largest(batches: Batches) -> float:
    ...     return max(float(piece.X.max()) for piece in batches)
    >>> largest(SetBatches(EmbeddingSet.from_arrays(np.eye(4), [0, 1, 0, 1]), rows=2))
    1.0
    """

    @property
    def info(self) -> EmbeddingInfo:
        """Where the vectors come from, and the names of all classes in all pieces."""

    @property
    def dim(self) -> int:
        """Length of each vector."""

    @property
    def has_subjects(self) -> bool:
        """Whether every piece says which records belong together."""

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes that every piece has."""

    def __len__(self) -> int:
        """The number of records."""

    def __iter__(self) -> Iterator[EmbeddingSet]:
        """The pieces, each with one record or more."""

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors, which are not read, in pieces of any size."""

    def state(self) -> str:
        """A text that changes when the records change, such as the sizes and times of files. It stays local."""

    def parts(self) -> Sequence[Batches]:
        """The smallest parts that can be read alone, in order; each can be sent to another process."""

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> Batches:
        """The same records without columns that nobody asks for, which are then not read."""

    def with_classes(self, names: tuple[str, ...]) -> Batches:
        """The same records with codes in the order of `names`; a label outside them is an error when it is read."""


@dataclass(frozen=True, slots=True, eq=False)
class SetBatches:
    """Records in memory, piece by piece.

    Parameters
    ----------
    data
        The records.
    rows
        The most records of a piece.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.types import EmbeddingSet, SetBatches
    >>> batches = SetBatches(EmbeddingSet.from_arrays(np.eye(5), [0, 1, 0, 1, 0]), rows=2)
    >>> len(batches), [len(piece) for piece in batches]
    (5, [2, 2, 1])
    """

    data: EmbeddingSet
    rows: int = PIECE

    @property
    def info(self) -> EmbeddingInfo:
        """Where the vectors come from."""
        return self.data.info

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return self.data.dim

    @property
    def has_subjects(self) -> bool:
        """Whether it is known which records belong together."""
        return self.data.subject is not None

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(self.data.attributes)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for start in range(0, len(self.data), self.rows):
            yield self.data.take(range(start, min(start + self.rows, len(self.data))))

    def state(self) -> str:
        """A hash of all columns."""
        digest = hashlib.sha256()
        subject = () if self.data.subject is None else (self.data.subject,)
        for column in (self.data.X, self.data.y, *subject, *self.data.attributes.values()):
            digest.update(str((column.dtype, column.shape)).encode() + column.tobytes())
        return digest.hexdigest()

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors."""
        yield Facts(self.data.y, self.data.subject, self.data.attributes)

    def parts(self) -> Sequence[SetBatches]:
        """One part per piece."""
        return [SetBatches(piece, self.rows) for piece in self]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> SetBatches:
        """The same records without columns that nobody asks for."""
        kept = {name: self.data.attributes[name] for name in attributes}
        return SetBatches(
            replace(self.data, subject=self.data.subject if subject else None, attributes=kept), self.rows
        )

    def with_classes(self, names: tuple[str, ...]) -> SetBatches:
        """The same records with codes in the order of `names`."""
        return SetBatches(self.data.with_classes(names), self.rows)
