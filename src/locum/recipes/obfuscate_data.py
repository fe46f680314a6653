"""Reading tables and images to obfuscate, and writing the result: a table, an .npz or a folder, with its claim."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from locum.data import ALL, DIABETES_FILES, SPLITS, read_adult, read_diabetes, read_frame, write_frame
from locum.embed import ImageTable, read_celeba, read_image_attributes, read_image_npz
from locum.errors import ConfigError, DataError
from locum.io import (
    MANIFEST,
    check_output_file,
    check_output_folder,
    split_path,
    write_atomically,
    write_bytes,
    write_folder_atomically,
)
from locum.recipes.data_sets import file_digest
from locum.recipes.inputs import choose_split
from locum.release import entry_of

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
Rows = Any  # a pandas DataFrame or an ImageTable

_ADULT = {"train": "adult.data", "test": "adult.test"}
_CELEBA = "list_attr_celeba.txt"
_READABLE = (
    "a .csv or .parquet table, the folder of UCI Adult, UCI Diabetes or CelebA, an .npz of images, or a folder of "
    "images with --attributes FILE"
)
_SIDE = 64
_TABLES = (".csv", ".parquet")
_ATTRIBUTES = "attributes.csv"


def read_rows(
    path: str, *, attributes: str | None = None, side: int | None = None, channels: int = 3, limit: int | None = None
) -> dict[str, Rows]:
    """Every split of a table or of images, or the one that `PATH#train` names; "all" if there are no splits.

    UCI Adult's two files are the splits train and test; CelebA's partitions are train, val and test. `attributes` is
    a table about a folder of images. Those and CelebA's images are resized to `side` and `channels`; arrays stay as
    they are. `limit` keeps the first records of each split.
    """
    file, split = split_path(path)
    place = Path(file)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be a whole number, 1 or more; got {limit!r}.")
    if attributes is not None and not place.is_dir():
        raise ConfigError(f"--attributes describes the images in a folder, and {file!r} is not one: leave it out.")
    if not place.exists():
        raise DataError(f"There is nothing at {file}: check the spelling. Readable are {_READABLE}.")
    found = _read(file, place, attributes, side or _SIDE, channels, limit if split is None else None)
    if split is not None:
        if split not in found:
            raise DataError(f"{file!r} has no split {split!r}: it has {', '.join(found)}.")
        found = {split: found[split]}
    return (
        found
        if limit is None
        else {name: taken(rows, np.arange(min(limit, len(rows)))) for name, rows in found.items()}
    )


def joined(splits: Mapping[str, Rows]) -> Rows:
    """All splits, concatenated."""
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
    """The names of the columns."""
    return list(rows.attributes) if isinstance(rows, ImageTable) else [str(name) for name in rows.columns]


def list_columns(data: str) -> dict[str, Any]:
    """The columns of a table, or the attributes of images, for choosing what to keep and what to hide.

    No value of a record is returned, but the counts depend on all of them: do not share this.

    Parameters
    ----------
    data
        What `fit_obfuscator` reads. If the data have splits, "train" is used.

    Returns
    -------
    dict
        `kind` ("table" or "image") and `columns`; of each its `name`, the number of different `values`, whether some
        are `missing`, and whether it `identifies` records, so that an obfuscator refuses it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import list_columns
    >>> _ = Path("staff.csv").write_text("age,job\\n20,cook\\n30,nurse\\n40,nurse\\n")
    >>> [(column["name"], column["values"]) for column in list_columns("staff.csv")["columns"]]
    [('age', 3), ('job', 2)]
    """
    import pandas as pd

    rows = choose_split(read_rows(data), data, "train")
    images = isinstance(rows, ImageTable)
    found = {str(n): pd.Series(v) for n, v in (rows.attributes if images else rows).items()}
    return {
        "kind": "image" if images else "table",
        "columns": [
            {
                "name": name,
                # As text: lists and the like cannot be counted.
                "values": int(series.dropna().astype(str).nunique()),
                "missing": bool(series.isna().any()),
                "identifies": not images and identifies(series),
            }
            for name, series in found.items()
        ],
    }


def identifies(series: pd.Series) -> bool:
    """Whether a column is text with a different value for most records; numbers and times are covered by noise."""
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype) or types.is_datetime64_any_dtype(dtype):
        return False
    return bool(series.astype(str).nunique() > max(20, len(series) // 2))


def column(rows: Rows, name: str, path: str, option: str) -> Array:
    """One column, as text or integers; an error names the option that asked for it."""
    if name not in columns_of(rows):
        known = ", ".join(columns_of(rows)[:40])
        raise ConfigError(f"{path!r} has no column {name!r}, which {option} names; it has {known}.")
    if isinstance(rows, ImageTable):
        return rows.attributes[name]
    return _plain(rows[name], name, path)


def claim_path(out: Path) -> Path:
    """The path of a file's claim: beside the file.

    >>> claim_path(Path("out/patients.csv")).as_posix()
    'out/patients.claim.json'
    """
    return out.with_name(f"{out.stem}.claim.json")


def check_place(out: Path, kind: str, *, overwrite: bool) -> None:
    """Check, before any work, that records of `kind` ("table" or "image") and their claim can be written to `out`.

    Images go to an .npz, or to a folder: a name without a suffix.
    """
    if kind == "image" and out.suffix.lower() not in ("", ".npz"):
        raise ConfigError(f"Obfuscated images go to an .npz file or to a folder; got {str(out)!r}.")
    if kind == "image" and not out.suffix:
        check_output_folder(out, overwrite=overwrite)
        return
    check_output_file(out, overwrite=overwrite, suffixes=_TABLES if kind == "table" else (".npz",))
    check_output_file(claim_path(out), overwrite=overwrite)


def write_table(out: Path, frame: pd.DataFrame, about: Mapping[str, Any]) -> Path:
    """Write the table and its claim; returns the path of the claim."""
    write_frame(frame, out)
    return _claimed(out, about)


def write_images(
    out: Path, images: Array, labels: Mapping[str, Array], about: Mapping[str, Any], *, overwrite: bool
) -> Path:
    """Write images (n, h, w, channels) with their labels and their claim; returns the path of the claim.

    An .npz has MedMNIST's layout: the first utility attribute is the label. A folder has numbered PNGs, the labels in
    `attributes.csv`, and the claim in its manifest.
    """
    if out.suffix.lower() == ".npz":
        first, *_ = labels.values()
        named = {f"train_attr_{name}": values for name, values in labels.items() if name != "label"}
        # Loosely typed, because NumPy's own options share the names of arrays.
        arrays: dict[str, Any] = {"train_images": _squeezed(images), "train_labels": first, **named}

        def write(stream: BinaryIO) -> None:
            np.savez_compressed(stream, **arrays)

        write_atomically(str(out), write)
        return _claimed(out, about)
    # Readable only by its owner until it is sent.
    write_folder_atomically(out, _folder(images, labels, about), overwrite=overwrite, mode=0o700)
    return out / MANIFEST


def _plain(series: pd.Series, name: str, path: str) -> Array:
    import pandas as pd

    if series.isna().any():
        raise DataError(f"Column {name!r} of {path} has missing values: leave those records out, or fill them in.")
    types = pd.api.types
    if types.is_integer_dtype(series.dtype) or types.is_bool_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.int64))
    return np.asarray(series.to_numpy())


def _read(
    file: str, place: Path, attributes: str | None, side: int, channels: int, limit: int | None
) -> dict[str, Rows]:
    if attributes is not None:
        return {ALL: read_image_attributes(file, attributes, side=side, channels=channels)}
    if place.is_dir():
        adult = {split: place / name for split, name in _ADULT.items() if (place / name).is_file()}
        if adult:
            return {split: read_adult(part) for split, part in adult.items()}
        if any((place / name).is_file() for name in DIABETES_FILES):
            return {ALL: read_diabetes(file)}
        if any((place / inner / _CELEBA).is_file() for inner in ("", "Anno")):
            return _partitions(read_celeba(file, side=side, limit=limit))
        raise DataError(f"{file!r} is a folder with an unknown layout. Readable are {_READABLE}.")
    if place.name in _ADULT.values():
        return {ALL: read_adult(place)}
    if place.name == DIABETES_FILES[1]:
        return {ALL: read_diabetes(file)}
    if place.suffix.lower() == ".npz":
        return dict(read_image_npz(file))
    if place.suffix.lower() in (".csv", ".parquet"):
        return {ALL: read_frame(file)}
    raise DataError(f"{file!r} is in a format that cannot be read. Readable are {_READABLE}.")


def _partitions(faces: ImageTable) -> dict[str, Rows]:
    """CelebA by its own list of partitions, if it is there."""
    if "partition" not in faces.attributes:
        return {ALL: faces}
    rest = {name: values for name, values in faces.attributes.items() if name != "partition"}
    table, part = ImageTable(faces.images, rest), faces.attributes["partition"]
    return {name: table.take(part == i) for i, name in enumerate(SPLITS) if (part == i).any()}


def _folder(images: Array, labels: Mapping[str, Array], about: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    import pandas as pd
    from PIL import Image

    files, entries = [], {}
    for i, image in enumerate(_squeezed(images), start=1):
        # File names can be patients' names: here they are numbers.
        name, raw = f"{i:06d}.png", io.BytesIO()
        Image.fromarray(image).save(raw, format="PNG")
        files.append(name)
        entries[name] = entry_of(raw.getvalue()).model_dump()
        yield name, raw.getvalue()
    table = pd.DataFrame({"file": files, **labels}).to_csv(index=False, lineterminator="\n").encode()
    entries[_ATTRIBUTES] = entry_of(table).model_dump()
    yield _ATTRIBUTES, table
    yield MANIFEST, _dumped({**about, "files": entries})


def _squeezed(images: Array) -> Array:
    return images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images


def _claimed(out: Path, about: Mapping[str, Any]) -> Path:
    claim = claim_path(out)
    try:
        write_bytes(str(claim), _dumped({**about, "sha256": file_digest(out)}))
    except BaseException:
        # Leave no records without their claim.
        out.unlink(missing_ok=True)
        raise
    return claim


def _dumped(about: Mapping[str, Any]) -> bytes:
    return (json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
