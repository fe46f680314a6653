"""Vectors with labels, checked once where they enter the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError


@dataclass(frozen=True, slots=True)
class EmbeddingInfo:
    """Where vectors come from: enough to refuse vectors from another source.

    Parameters
    ----------
    backbone
        Name of the model that made the vectors; "unknown" for vectors without a description.
    revision
        Hash of the model's weights; empty if there is none.
    preprocessing
        How images were prepared, as the text of `locum.embed.Preprocessing`; empty if there were none.
    class_names
        Names of the classes, in the order of their codes.
    ledger
        Path of the ledger of the images, so that all vectors made from them share one budget. It stays with the
        vectors and is never released.
    reference
        Public statistics of the backbone: the name of those that ship with Locum, or the path of a file. It stays
        with the vectors and is never released.
    images
        Where the images lie that vectors were made from; the ledger notes it. It stays with the vectors and is never
        released.

    Examples
    --------
    >>> from locum.types import EmbeddingInfo
    >>> EmbeddingInfo("dinov2-small").same_source(EmbeddingInfo("resnet-50"))
    False
    >>> EmbeddingInfo("dinov2-small").same_source(EmbeddingInfo())
    True
    """

    backbone: str = "unknown"
    revision: str = ""
    preprocessing: str = ""
    class_names: tuple[str, ...] = ()
    ledger: str = ""
    reference: str = ""
    images: str = ""

    def same_source(self, other: EmbeddingInfo) -> bool:
        """False only if both sides are described and differ.

        The revision is a hash of the weights: if both sides have one, it decides, not the name.
        """
        if "unknown" in (self.backbone, other.backbone):
            return True
        if self.revision and other.revision:
            return (self.revision, self.preprocessing) == (other.revision, other.preprocessing)
        mine = (self.backbone, self.revision, self.preprocessing)
        return mine == (other.backbone, other.revision, other.preprocessing)


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingSet:
    """`n` finite vectors of `d` features with class codes; the arrays are read-only.

    `EmbeddingSet.from_arrays` takes labels of any kind.

    Parameters
    ----------
    X
        The vectors, of shape (n, d); converted to float32.
    y
        Codes into `info.class_names`, of shape (n,). A part of the data that lacks a class keeps the meaning of its
        labels.
    subject
        Which records belong together (one patient), of shape (n,): text or whole numbers. None: not known.
    attributes
        Further facts about each record (sex, scanner), by name: arrays of shape (n,) of text or whole numbers.
    info
        Where the vectors come from, and the class names; without names, they are the codes as text.

    Raises
    ------
    DataError
        If the arrays do not fit together, or the vectors are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.types import EmbeddingSet
    >>> data = EmbeddingSet.from_arrays(np.eye(4), ["cat", "dog", "cat", "dog"])
    >>> data.info.class_names, data.y.tolist()
    (('cat', 'dog'), [0, 1, 0, 1])
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None = None
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    info: EmbeddingInfo = field(default_factory=EmbeddingInfo)

    def __post_init__(self) -> None:
        X = _vectors(self.X)
        y = np.asarray(self.y)
        if y.shape != (len(X),):
            raise DataError(f"Every vector needs one label; got {len(X)} vectors and labels of shape {y.shape}.")
        if y.dtype.kind not in "iu":
            raise DataError(f"`y` must hold class codes (integers); got {y.dtype}. Use EmbeddingSet.from_arrays.")
        names = self.info.class_names or tuple(str(c) for c in range(int(y.max()) + 1))
        if int(y.min()) < 0 or int(y.max()) >= len(names):
            raise DataError(f"Class codes must lie in 0..{len(names) - 1}; got {int(y.min())}..{int(y.max())}.")
        object.__setattr__(self, "X", _frozen(X))
        object.__setattr__(self, "y", _frozen(y.astype(np.int64)))
        object.__setattr__(self, "info", replace(self.info, class_names=tuple(names)))
        if self.subject is not None:
            object.__setattr__(self, "subject", _frozen(_column("subject", self.subject, len(X))))
        columns = {k: _frozen(_column(k, v, len(X))) for k, v in self.attributes.items()}
        object.__setattr__(self, "attributes", columns)

    @classmethod
    def from_arrays(
        cls,
        X: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        subject: npt.ArrayLike | None = None,
        attributes: Mapping[str, npt.ArrayLike] | None = None,
        info: EmbeddingInfo | None = None,
    ) -> EmbeddingSet:
        """Build from labels of any kind; names are sorted, or taken from `info.class_names`."""
        info = info or EmbeddingInfo()
        y, names = encode_labels(labels, info.class_names)
        return cls(
            X=np.asarray(X),
            y=y,
            subject=None if subject is None else np.asarray(subject),
            attributes={k: np.asarray(v) for k, v in (attributes or {}).items()},
            info=replace(info, class_names=names),
        )

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dim(self) -> int:
        """Length of each vector."""
        return int(self.X.shape[1])

    @property
    def labels(self) -> npt.NDArray[np.str_]:
        """The class name of each record."""
        return np.asarray(self.info.class_names)[self.y]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Records per class code; a class may be empty."""
        return np.bincount(self.y, minlength=len(self.info.class_names))

    def take(self, index: npt.ArrayLike) -> EmbeddingSet:
        """The records at `index` (positions or a mask), with everything that belongs to them."""
        i = np.asarray(index)
        return EmbeddingSet(
            X=self.X[i],
            y=self.y[i],
            subject=None if self.subject is None else self.subject[i],
            attributes={k: v[i] for k, v in self.attributes.items()},
            info=self.info,
        )

    def with_classes(self, names: tuple[str, ...]) -> EmbeddingSet:
        """The same records with codes in the order of `names`; a label outside them is an error."""
        if names == self.info.class_names:
            return self
        y, _ = encode_labels(self.labels, names)
        return replace(self, y=y, info=replace(self.info, class_names=names))


def encode_labels(
    labels: npt.ArrayLike, names: tuple[str, ...] = ()
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Class codes and class names of labels.

    Parameters
    ----------
    labels
        One column of text, whole numbers or booleans.
    names
        Known class names in the order of their codes. Empty: the labels that occur, sorted.

    Returns
    -------
    codes : ndarray of shape (n,)
        Position of each label in `names`.
    names : tuple of str
        The class names.

    Raises
    ------
    DataError
        If a label is not among the given `names`, or labels are not classes.

    Examples
    --------
    >>> from locum.types import encode_labels
    >>> codes, names = encode_labels(["dog", "cat", "dog"])
    >>> codes.tolist(), names
    ([1, 0, 1], ('cat', 'dog'))
    """
    values = np.asarray(labels)
    if values.dtype.kind == "O":
        if not all(isinstance(v, str) for v in values.ravel()):
            raise DataError("Labels must be plain text or whole numbers; got Python objects.")
        values = values.astype(np.str_)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"Labels must be one column with at least one entry; got shape {values.shape}.")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values != np.round(values)).any():
            raise DataError("Labels must be classes, not measurements; got fractions or missing values.")
        values = values.astype(np.int64)
    if values.dtype.kind not in "iubUS":
        raise DataError(f"Labels must be plain text or whole numbers; got {values.dtype}.")
    if values.dtype.kind == "S":
        values = _decoded("Labels", values)
    found, codes = np.unique(values, return_inverse=True)
    own = tuple(str(v) for v in found)
    if not names:
        return codes.astype(np.int64), own
    place = {name: i for i, name in enumerate(names)}
    unknown = [v for v in own if v not in place]
    if unknown:
        raise DataError(
            f"Class {unknown[0]!r} is not among the known classes {_short(names)}: name it there, or leave it out."
        )
    return np.array([place[v] for v in own], dtype=np.int64)[codes], names


def _short(names: tuple[str, ...]) -> str:
    shown = ", ".join(repr(n) for n in names[:6])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > 6 else shown


def _vectors(X: Any) -> npt.NDArray[np.float32]:
    a = np.asarray(X)
    if a.dtype.kind not in "fiub":
        raise DataError(f"Vectors must be numbers; got an array of {a.dtype}. Save it as float32.")
    if a.ndim != 2 or 0 in a.shape:
        raise DataError(f"Vectors must form a table of records by features; got shape {a.shape}.")
    with np.errstate(over="ignore"):
        out = a.astype(np.float32)
    bad = ~np.isfinite(out).all(axis=1)
    if bad.any():
        raise DataError(
            f"Vectors must be finite; {int(bad.sum())} of {len(out)} records hold NaN or infinity "
            f"(the first is record {int(np.argmax(bad))}). Drop or repair them."
        )
    return out


def _column(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    a = np.asarray(values)
    if a.dtype.kind == "O":
        if not all(isinstance(v, str) for v in a.ravel()):
            raise DataError(f"`{name}` must be plain text or whole numbers; got Python objects.")
        a = a.astype(np.str_)
    if a.shape != (n,):
        raise DataError(f"`{name}` must have one entry per record ({n}); got shape {a.shape}.")
    if a.dtype.kind not in "iubUS":
        raise DataError(f"`{name}` must be plain text or whole numbers; got {a.dtype}.")
    # As text: an entry of bytes has two texts, 'p1' in an array and "b'p1'" alone, and would be two subjects.
    return _decoded(f"`{name}`", a) if a.dtype.kind == "S" else a


def _decoded(what: str, values: npt.NDArray[Any]) -> npt.NDArray[np.str_]:
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{what} must be plain text; got bytes that are not UTF-8.") from error


def _frozen(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
    a = a.view()
    a.flags.writeable = False
    return a
