"""Meaning of array names in .npz and .safetensors files.

::

    X, y                  [subject] [attr_NAME ...]                one set, no splits
    train_x, train_y      [train_subject] [train_attr_NAME ...]    and the same for val and test
    train_images, train_labels   ...                               MedMNIST: images, read as pixels

An array with any other name is an error: if a `subjects` were ignored silently, one subject could end
up on both sides of a split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data.formats.assemble import ALL, SPLITS, RawSplit
from locum.errors import DataError

ATTRIBUTE = "attr_"
META = ("class_names", "info")
_ROLES = {
    "x": "vectors",
    "images": "images",
    "y": "labels",
    "labels": "labels",
    "subject": "subject",
    "patient": "subject",
    "patient_id": "subject",
}
_LAYOUT = "`X` and `y`, or `train_x`, `train_y`, `test_x`, ..., or `train_images`, `train_labels`, ..."

Array = npt.NDArray[Any]


def split_arrays(
    names: Collection[str], get: Callable[[str], Array], path: str, *, flat: bool = True
) -> dict[str, RawSplit]:
    """Columns by split, from arrays that `get` fetches by name; images become rows of pixels if `flat`."""
    return {split: _columns(split, roles, get, path, flat) for split, roles in split_roles(names, path).items()}


def split_roles(names: Collection[str], path: str) -> dict[str, dict[str, str]]:
    """The name of the array in each role (vectors, images, labels, subject, attr_NAME), by split."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        if name in META:
            continue
        split, role = _meaning(name, path)
        roles = found.setdefault(split, {})
        if role in roles:
            raise DataError(f"{path} holds both `{roles[role]}` and `{name}`, which mean the same: keep one.")
        roles[role] = name
    if not found:
        raise DataError(f"{path} holds no vectors: save {_LAYOUT}.")
    if ALL in found and len(found) > 1:
        extra = next(iter(found[ALL].values()))
        split = next(k for k in found if k != ALL)
        raise DataError(f"{path} mixes splits with `{extra}`, which has none: name it `{split}_{extra}`, or drop it.")
    return {split: found[split] for split in (*SPLITS, ALL) if split in found}


def holds_images(names: Collection[str]) -> bool:
    """True for MedMNIST's layout."""
    return any(name == f"{split}_images" for name in names for split in SPLITS)


def pixels(images: Array, name: str, path: str) -> npt.NDArray[np.float32]:
    """Each image as one row of values in 0..1.

    Pixels describe an image poorly: shift it by one and every value changes. Embeddings of a vision
    model are far better if the images are large enough for one.
    """
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise DataError(
            f"`{name}` in {path} must hold images (records, height, width[, colors]); got shape {images.shape}."
        )
    flat = images.reshape(len(images), -1)
    if images.dtype == np.uint8:
        return flat.astype(np.float32) / np.float32(255)
    # The scale of a whitened or 16-bit image cannot be guessed.
    if images.dtype.kind == "f" and bool(((flat >= 0) & (flat <= 1)).all()):
        return flat.astype(np.float32)
    raise DataError(f"`{name}` in {path} must hold bytes (uint8) or fractions in 0..1; got other {images.dtype}.")


def _meaning(name: str, path: str) -> tuple[str, str]:
    """Split and role of an array, from its name."""
    split, rest = ALL, name
    for candidate in SPLITS:
        if name.startswith(f"{candidate}_"):
            split, rest = candidate, name[len(candidate) + 1 :]
    role = _ROLES.get(rest.lower())
    if rest.startswith(ATTRIBUTE) and len(rest) > len(ATTRIBUTE):
        return split, rest
    if role is None or (split == ALL and rest in ("images", "labels")):
        raise DataError(
            f"{path} holds an array `{name}` that has no known meaning. Expected are {_LAYOUT}; "
            f"name it `subject` if it says whom a record belongs to, `attr_...` if it is another attribute of each "
            f"record, or leave it out."
        )
    return split, role


def _columns(split: str, roles: dict[str, str], get: Callable[[str], Array], path: str, flat: bool) -> RawSplit:
    prefix = "" if split == ALL else f"{split}_"
    vectors = "X" if split == ALL else f"{split}_x"
    if "vectors" in roles and "images" in roles:
        raise DataError(f"{path} holds both `{roles['vectors']}` and `{roles['images']}`: keep one.")
    if "labels" not in roles:
        given = roles.get("vectors") or roles.get("images") or next(iter(roles.values()))
        raise DataError(f"{path} holds `{given}` but no labels: add `{prefix}y`, one class per record.")
    if "vectors" in roles:
        X = get(roles["vectors"])
    elif "images" in roles:
        X = get(roles["images"])
        X = pixels(X, roles["images"], path) if flat else X
    else:
        raise DataError(f"{path} holds labels (`{roles['labels']}`) but no vectors: add `{vectors}`.")
    return RawSplit(
        X=X,
        labels=get(roles["labels"]),
        subject=get(roles["subject"]) if "subject" in roles else None,
        attributes={k.removeprefix(ATTRIBUTE): get(v) for k, v in roles.items() if k.startswith(ATTRIBUTE)},
    )
