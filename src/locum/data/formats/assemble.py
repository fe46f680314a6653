"""Raw columns of a file to checked sets whose class codes agree between splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.types import EmbeddingInfo, EmbeddingSet, encode_labels

SPLITS = ("train", "val", "test")
ALL = "all"


@dataclass(frozen=True, slots=True)
class RawSplit:
    """Columns of one split as the file holds them, not yet checked.

    Parameters
    ----------
    X
        Vectors or images; the first axis is the records.
    labels
        A label per record.
    subject
        A subject per record; None if not known.
    attributes
        Further facts per record, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import RawSplit
    >>> RawSplit(np.eye(2), np.array(["cat", "dog"])).labels.tolist()
    ['cat', 'dog']
    """

    X: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    subject: npt.NDArray[Any] | None = None
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def assemble(
    raw: Mapping[str, RawSplit], path: str, info: EmbeddingInfo, names: tuple[str, ...] = ()
) -> dict[str, EmbeddingSet]:
    """Checked sets, one per split; class names are the union over all splits, so codes agree.

    Parameters
    ----------
    raw
        Columns of each split, by its name.
    path
        The file, as errors name it.
    info
        Where the vectors come from; its class names are replaced.
    names
        Class names that the file gives: whole numbers are codes into them. Empty: labels are the names.

    Returns
    -------
    dict of str to EmbeddingSet
        The sets by split.

    Raises
    ------
    DataError
        If the columns do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import RawSplit, assemble
    >>> from locum.types import EmbeddingInfo
    >>> raw = {"train": RawSplit(np.eye(2), np.array([1, 0]))}
    >>> assemble(raw, "pets.npz", EmbeddingInfo(), names=("cat", "dog"))["train"].labels.tolist()
    ['dog', 'cat']
    """
    if len(set(names)) != len(names):
        raise DataError(f"{path} names a class twice in `class_names`: class names must differ.")
    labels = {k: _whole(k, r.labels, path) for k, r in raw.items()}
    if names:
        coded = {k: _codes(k, v, names, path) for k, v in labels.items()}
    else:
        if len({v.dtype.kind for v in labels.values()}) > 1:
            labels = {k: v.astype(np.str_) for k, v in labels.items()}
        _, names = encode_labels(np.concatenate(list(labels.values())))
        coded = {k: encode_labels(v, names)[0] for k, v in labels.items()}
    full = replace(info, class_names=names)
    sets: dict[str, EmbeddingSet] = {}
    for split, part in raw.items():
        try:
            sets[split] = EmbeddingSet(part.X, coded[split], part.subject, part.attributes, full)
        except DataError as error:
            raise DataError(f"{_place(path, split)}: {error}") from None
    widths = {k: s.dim for k, s in sets.items()}
    if len(set(widths.values())) > 1:
        lengths = ", ".join(f"{k} {d}" for k, d in widths.items())
        raise DataError(f"{path} has vectors of different lengths in its splits ({lengths}): embed all the same way.")
    return sets


def label_codes(labels: npt.NDArray[Any], names: tuple[str, ...], *, declared: bool) -> npt.NDArray[np.int64]:
    """Codes of some of the labels of a file: whole numbers are codes if the file itself declares its `names`."""
    if declared and labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    return encode_labels(labels, names)[0]


def info_from_json(text: str | None, path: str) -> EmbeddingInfo:
    """Where the vectors come from; "unknown" if the file does not say."""
    if text is None:
        return EmbeddingInfo()
    data = _json(text)
    if not isinstance(data, dict):
        raise DataError(f"{path} has an `info` that is not a JSON object: write backbone, revision, preprocessing.")
    fields = {
        k: data[k] for k in ("backbone", "revision", "preprocessing", "ledger", "reference", "images") if k in data
    }
    wrong = [k for k, v in fields.items() if not isinstance(v, str)]
    if wrong:
        raise DataError(f"{path} has an `info` whose `{wrong[0]}` is not text: write it as text.")
    return EmbeddingInfo(**fields)


def info_to_json(info: EmbeddingInfo) -> str:
    """Undo `info_from_json`; class names are stored separately."""
    out = {"backbone": info.backbone, "revision": info.revision, "preprocessing": info.preprocessing}
    kept = {"ledger": info.ledger, "reference": info.reference, "images": info.images}
    return json.dumps({**out, **{name: value for name, value in kept.items() if value}})


def names_from_json(text: str | None, path: str) -> tuple[str, ...]:
    """Class names from a JSON list of text; empty if the file has none."""
    if text is None:
        return ()
    data = _json(text)
    if not isinstance(data, list) or not all(isinstance(v, str) for v in data):
        raise DataError(f"{path} has `class_names` that are not a JSON list of text: write them as one.")
    return tuple(data)


def _json(text: str) -> Any:
    """The parsed text, or None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _place(path: str, split: str) -> str:
    return path if split == ALL else f"{path}#{split}"


def _whole(split: str, labels: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
    """One column of labels, with whole numbers as int64 and text as text."""
    try:
        encode_labels(labels)
    except DataError as error:
        raise DataError(f"{_place(path, split)}: {error}") from None
    column = labels[:, 0] if labels.ndim == 2 else labels
    if column.dtype.kind in "fiu":
        return column.astype(np.int64)
    return column if column.dtype.kind == "b" else column.astype(np.str_)


def _codes(split: str, labels: npt.NDArray[Any], names: tuple[str, ...], path: str) -> npt.NDArray[np.int64]:
    if labels.dtype.kind in "ib":
        return labels.astype(np.int64)
    try:
        return encode_labels(labels, names)[0]
    except DataError as error:
        raise DataError(f"{_place(path, split)}: {error}") from None
