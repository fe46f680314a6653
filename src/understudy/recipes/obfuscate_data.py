"""Data for obfuscation: tables, and images with what is known of each. One reader for all of their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from understudy.data import read_adult, read_frame
from understudy.data.assemble import SPLITS, WHOLE
from understudy.embed.image_attributes import ImageTable, read_celeba, read_image_attributes, read_image_npz
from understudy.errors import ConfigError, DataError
from understudy.recipes.images import parted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rows", "column", "columns_of", "joined", "read_rows", "taken"]

Array = npt.NDArray[Any]
Rows = Any  # a pandas DataFrame or an ImageTable

_ADULT = {"train": "adult.data", "test": "adult.test"}
_CELEBA = "list_attr_celeba.txt"
_READABLE = (
    "a .csv or .parquet table, UCI Adult's folder, CelebA's folder, an .npz of images, or a folder of images with "
    "--attributes FILE"
)
_SIDE = 64


def read_rows(
    path: str, *, attributes: str | None = None, side: int | None = None, channels: int = 3, limit: int | None = None
) -> dict[str, Rows]:
    """Every split of a table or of images, or the one that `PATH#train` names; "all" where there are none.

    UCI Adult's two files are the splits train and test; CelebA's partitions are train, val and test. `attributes` is
    a table about a folder of images; `side` and `channels` say what those and CelebA's become, arrays stay as they
    are. `limit` takes the first records of each split.
    """
    file, split = parted(path)
    place = Path(file)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit takes a whole number, 1 or more; got {limit!r}.")
    if attributes is not None and not place.is_dir():
        raise ConfigError(f"--attributes tells of the images in a folder, and {file!r} is none: leave it out.")
    if not place.exists():
        raise DataError(f"There is nothing at {file}: check the spelling. Readable are {_READABLE}.")
    found = _read(file, place, attributes, side or _SIDE, channels, limit if split is None else None)
    if split is not None:
        if split not in found:
            raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(found)}.")
        found = {split: found[split]}
    return (
        found
        if limit is None
        else {name: taken(rows, np.arange(min(limit, len(rows)))) for name, rows in found.items()}
    )


def joined(splits: Mapping[str, Rows]) -> Rows:
    """All splits, one after the other."""
    parts = list(splits.values())
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], ImageTable):
        names = set.intersection(*(set(part.attributes) for part in parts))
        return ImageTable(
            np.concatenate([part.images for part in parts]),
            {name: np.concatenate([part.attributes[name] for part in parts]) for name in sorted(names)},
        )
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def taken(rows: Rows, chosen: Array) -> Rows:
    """Some of the records, by position."""
    return rows.take(chosen) if isinstance(rows, ImageTable) else rows.iloc[chosen].reset_index(drop=True)


def columns_of(rows: Rows) -> list[str]:
    """Names that a column can be asked for by."""
    return list(rows.attributes) if isinstance(rows, ImageTable) else [str(name) for name in rows.columns]


def column(rows: Rows, name: str, path: str, option: str) -> Array:
    """One fact of each record, text or whole numbers, or a sentence that names the option it was asked for by."""
    if name not in columns_of(rows):
        known = ", ".join(columns_of(rows)[:40])
        raise ConfigError(f"{path!r} has no column {name!r}, which {option} names; it has {known}.")
    if isinstance(rows, ImageTable):
        return rows.attributes[name]
    return _plain(rows[name], name, path)


def _plain(series: pd.Series, name: str, path: str) -> Array:
    import pandas as pd

    if series.isna().any():
        raise DataError(f"Column {name!r} of {path} misses values: leave those records out, or fill them in.")
    types = pd.api.types
    if types.is_integer_dtype(series.dtype) or types.is_bool_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.int64))
    return np.asarray(series.to_numpy())


def _read(
    file: str, place: Path, attributes: str | None, side: int, channels: int, limit: int | None
) -> dict[str, Rows]:
    if attributes is not None:
        return {WHOLE: read_image_attributes(file, attributes, side=side, channels=channels)}
    if place.is_dir():
        adult = {split: place / name for split, name in _ADULT.items() if (place / name).is_file()}
        if adult:
            return {split: read_adult(part) for split, part in adult.items()}
        if any((place / inner / _CELEBA).is_file() for inner in ("", "Anno")):
            return _partitions(read_celeba(file, side=side, limit=limit))
        raise DataError(f"{file!r} is a folder of no known layout. Readable are {_READABLE}.")
    if place.name in _ADULT.values():
        return {WHOLE: read_adult(place)}
    if place.suffix.lower() == ".npz":
        return dict(read_image_npz(file))
    if place.suffix.lower() in (".csv", ".parquet"):
        return {WHOLE: read_frame(file)}
    raise DataError(f"{file!r} is of a kind that cannot be read. Readable are {_READABLE}.")


def _partitions(faces: ImageTable) -> dict[str, Rows]:
    """CelebA by its own list of partitions, where it came along."""
    if "partition" not in faces.attributes:
        return {WHOLE: faces}
    rest = {name: values for name, values in faces.attributes.items() if name != "partition"}
    whole, part = ImageTable(faces.images, rest), faces.attributes["partition"]
    return {name: whole.take(part == i) for i, name in enumerate(SPLITS) if (part == i).any()}
