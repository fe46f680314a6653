"""Lists the images of a folder, of a .csv table of paths, or of an .npz file, as an `ImageSource`."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from locum.data import ALL, SPLITS, RawSplit, assemble, is_image_npz, read_image_arrays
from locum.embed.layouts import LAYOUTS, find_layout
from locum.embed.sources import ArraySource, FileSource, ImageItem, ImageSource, RemoteSource, image_errors
from locum.errors import DataError
from locum.io import array_files, file_system, is_remote, parquet_files, remote_errors
from locum.types import SUBJECT_COLUMNS, EmbeddingInfo

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_SUFFIXES = frozenset((
    ".bmp", ".dcm", ".dicom", ".gif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff",
    ".webp",
))  # fmt: skip
_DICOM_SUFFIXES = frozenset((".dcm", ".dicom"))
_SPLIT_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
# Names of the columns of a table.
_PATH = ("path", "file", "filename", "image")
_LABEL = ("label", "y", "target", "class")
_ATTRIBUTE = "attr_"


def holds_images(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is something that `open_images` reads; no image is looked at.

    Parameters
    ----------
    path
        A file or folder; it need not exist.

    Returns
    -------
    bool
        True for a folder without a manifest, Parquet files or .npy files (even an empty one), a .csv with a column of
        image paths, or an .npz of images.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.embed import holds_images
    >>> np.savez("faces.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    >>> np.savez("vectors.npz", X=np.eye(2), y=[0, 1])
    >>> holds_images("faces.npz"), holds_images("vectors.npz")
    (True, False)
    """
    if is_remote(path):
        return _holds_remote_images(os.fspath(path))
    place = Path(path)
    if place.is_dir():
        return not ((place / "manifest.json").is_file() or parquet_files(place) or array_files(place))
    # Opening a pipe would block until something writes to it.
    if not place.is_file():
        return False
    if place.suffix.lower() == ".csv":
        return _is_image_table(place)
    return place.suffix.lower() == ".npz" and is_image_npz(str(place))


def open_images(path: str | os.PathLike[str]) -> ImageSource:
    """The images at `path`, listed but not yet read.

    Parameters
    ----------
    path
        A folder of images (one folder per class, or `train`, `val` and `test` with one folder per class in each), a
        public set as it is distributed (`locum.embed.layouts.LAYOUTS`), a .csv with a column `path` and optionally
        `label`, `subject`, `split` and `attr_...`, or an .npz in MedMNIST's layout. A folder per class may also be in
        a store: `s3://bucket/scans`.

    Returns
    -------
    ImageSource
        The images by number. Their names can be patients' names.

    Raises
    ------
    DataError
        If there is no image, or the listing contradicts itself.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed import open_images
    >>> for name in ("pets/cat", "pets/dog"):
    ...     Path(name).mkdir(parents=True)
    ...     _ = Path(name, "1.pgm").write_bytes(b"P2 1 1 255 9")
    >>> source = open_images("pets")
    >>> source.class_names, len(source.items)
    (('cat', 'dog'), 2)
    """
    if is_remote(path):
        return _open_remote(os.fspath(path))
    place = Path(path)
    if place.is_dir():
        layout = find_layout(place)
        return _open_folder(place) if layout is None else layout.open(place)
    if place.suffix.lower() == ".csv" and place.is_file():
        return _open_table(place)
    if place.suffix.lower() == ".npz" and place.is_file():
        return _open_npz(place)
    if not place.exists():
        raise DataError(f"There is no {str(path)!r}: give a folder of images, a .csv of paths, or an .npz of images.")
    raise DataError(f"{str(path)!r} holds no images that can be read: give a folder, a .csv of paths, or an .npz.")


def _open_folder(place: Path) -> FileSource:
    """Every image in a folder, ordered by path.

    The first level of folders names the classes, and everything below belongs to them; if the first level holds only
    `train`, `val` or `test`, the second level names the classes. Images at the top have no label, which is enough to
    predict. Files without an image suffix are ignored and counted, unless they start like a DICOM file. Hidden files
    and folders are skipped. Links are followed; a link to a folder that contains it is an error.
    """
    found: list[str] = []
    ignored: list[str] = []
    for path in _files(place):
        if path.suffix.lower() in _SUFFIXES or _file_is_dicom(path):
            found.append(path.relative_to(place).as_posix())
        else:
            ignored.append(path.name)
    items, names = _folder_items(found, str(place))
    return FileSource(
        place=place,
        home=place.resolve().parent,
        items=items,
        class_names=names,
        ignored=len(ignored),
        ignored_kinds=_kinds(ignored),
    )


def _kinds(names: list[str]) -> tuple[str, ...]:
    """Suffixes of files; what has none, or one that may be part of a name or a number, is "other"."""
    suffixes = (PurePosixPath(name).suffix.lower() for name in names)
    return tuple(sorted({s if re.fullmatch(r"\.[a-z]{1,5}", s) else "other" for s in suffixes}))


def _open_remote(address: str) -> RemoteSource:
    """The same in a store: the same names in the same order as in a copy of the folder on this machine."""
    from pyarrow import fs

    found: list[str] = []
    ignored: list[str] = []
    seen: set[str] = set()
    with remote_errors(address):
        system, place = file_system(address)
        for info in system.get_file_info(fs.FileSelector(place, recursive=True)):
            name = info.path[len(place) :].lstrip("/")
            if info.type != fs.FileType.File or any(part.startswith(".") for part in name.split("/")):
                continue
            seen.add(name)
            if PurePosixPath(name).suffix.lower() in _SUFFIXES or _object_is_dicom(system, info, address):
                found.append(name)
            else:
                ignored.append(name)
    for layout in LAYOUTS:
        # Folders would be taken for classes, and patients would be overlooked.
        if layout.fits_names(seen):
            raise DataError(f"{address!r} holds {layout.name}, which is read from a folder of this machine: copy it.")
    items, names = _folder_items(found, address)
    return RemoteSource(
        address=address, items=items, class_names=names, ignored=len(ignored), ignored_kinds=_kinds(ignored)
    )


def _object_is_dicom(system: FileSystem, info: FileInfo, address: str) -> bool:
    """By content, as `_file_is_dicom`: the start of the object is enough."""
    if info.size < 132:
        return False
    with image_errors(address), system.open_input_file(info.path) as stream:
        return bytes(stream.read_at(132, 0))[128:] == b"DICM"


def _holds_remote_images(address: str) -> bool:
    from pyarrow import fs

    with remote_errors(address):
        system, place = file_system(address)
        if system.get_file_info(place).type != fs.FileType.Directory:
            return False
        tops = [PurePosixPath(info.path).name for info in system.get_file_info(fs.FileSelector(place))]
    return "manifest.json" not in tops and not any(
        name.lower().endswith(".parquet") and not name.startswith((".", "_")) for name in tops
    )


def _folder_items(found: list[str], place: str) -> tuple[list[ImageItem], tuple[str, ...]]:
    """The images of a folder from their paths in it, in order, and the names of the classes."""
    if not found:
        raise DataError(
            f"{place!r} holds no image: give a folder of images, one folder per class (`predict` needs no classes)."
        )
    found = sorted(found)
    tops = {name.split("/")[0] for name in found}
    in_splits = all("/" in name for name in found) and {t.lower() for t in tops} <= set(_SPLIT_FOLDERS)
    items = [_folder_item(name, in_splits) for name in found]
    if in_splits:
        order = {s: i for i, s in enumerate(SPLITS)}
        items.sort(key=lambda item: (order[item.split], item.name))
    unlabeled = sum(item.label is None for item in items)
    if 0 < unlabeled < len(items):
        raise DataError(
            f"{unlabeled} of {len(items)} images of {place!r} are outside its class folders: move them into one, "
            "or remove them."
        )
    return items, tuple(sorted({item.label for item in items if item.label is not None}))


def may_name_subjects(source: ImageSource) -> bool:
    """Whether images of `source` may have subjects, as far as the listing tells: by a table, or as DICOM files."""
    if any(item.subject for item in source.items):
        return True
    if not isinstance(source, FileSource | RemoteSource):
        return False
    suffixes = {PurePosixPath(item.name).suffix.lower() for item in source.items}
    return bool(suffixes & _DICOM_SUFFIXES or suffixes - _SUFFIXES)


def _files(place: Path) -> Iterator[Path]:
    """Every file, at any depth."""
    ahead: list[tuple[Path, frozenset[tuple[int, int]]]] = [(place, frozenset())]
    while ahead:
        folder, above = ahead.pop()
        try:
            facts = folder.stat()
            entries = [(e.name, e.is_dir()) for e in os.scandir(folder) if not e.name.startswith(".")]
        except OSError:
            raise DataError(
                f"A folder or link inside {str(place)!r} cannot be opened, so images would be missing: fix it."
            ) from None
        # Two links may lead to the same folder, and both are followed; only a cycle would never end.
        mark = (facts.st_dev, facts.st_ino)
        if mark in above:
            raise DataError(f"A link inside {str(place)!r} leads back to a folder that contains it: remove the link.")
        for name, is_folder in entries:
            if is_folder:
                ahead.append((folder / name, above | {mark}))
            else:
                yield folder / name


def _folder_item(name: str, in_splits: bool) -> ImageItem:
    parts = name.split("/")
    if in_splits:
        return ImageItem(name, _SPLIT_FOLDERS[parts[0].lower()], parts[1] if len(parts) > 2 else None)
    return ImageItem(name, ALL, parts[0] if len(parts) > 1 else None)


def _file_is_dicom(path: Path) -> bool:
    """By content: scanners name files by number, and 1.2.840.113 has no meaningful suffix."""
    try:
        # Opening a pipe would block until something writes to it.
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def _is_image_table(place: Path) -> bool:
    """Whether the header of a .csv has a column of paths."""
    try:
        return _column(_header(place), _PATH) is not None
    except DataError:
        return False


def _open_table(place: Path) -> FileSource:
    """Images listed in a .csv: `path` (relative to the table), optionally `label`, `subject`, `split`, `attr_...`.

    Rows keep their order. Labels must be in every row or in none; so must subjects. A missing file is noticed when it
    is read, like any other unreadable file. A column with another name is an error: an overlooked `subjects` would
    put one subject on both sides of a split.
    """
    header = _header(place)
    path, label, subject = (_column(header, names) for names in (_PATH, _LABEL, SUBJECT_COLUMNS))
    if path is None:
        raise DataError(f"{str(place)!r} has no column `path`: rename the column of image files to it.")
    split = _column(header, ("split",))
    attributes = [name for name in header if name.lower().startswith(_ATTRIBUTE)]
    if unknown := [n for n in header if n not in (path, label, subject, split, *attributes)]:
        raise DataError(
            f"{str(place)!r} has an unknown column {unknown[0]!r}; known are path, label, subject, split and "
            "attr_...: rename it, or leave it out."
        )
    items = []
    try:
        with place.open(encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(csv.reader(stream), start=1):
                if number == 1 or not row:
                    continue
                if len(row) != len(header):
                    raise DataError(
                        f"Row {number} of {str(place)!r} has {len(row)} fields where the header has {len(header)}."
                    )
                # No file name can hold it, and numpy's text arrays drop it at the end.
                if any("\0" in cell for cell in row):
                    raise DataError(f"Row {number} of {str(place)!r} holds a NUL character: export the table again.")
                cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
                items.append(_table_item(cells, path, label, subject, split, attributes, number, place))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{str(place)!r} cannot be read as a comma-separated table in UTF-8: export it again."
        ) from None
    if not items:
        raise DataError(f"{str(place)!r} has a header but no rows: add images.")
    splits = {item.split for item in items}
    if ALL in splits and len(splits) > 1:
        raise DataError(f"{str(place)!r} names a split in only some rows: name it in all or in none.")
    order = {name: i for i, name in enumerate((*SPLITS, ALL))}
    items.sort(key=lambda item: order[item.split])
    names = sorted({item.label for item in items if item.label is not None})
    shown = tuple(name[len(_ATTRIBUTE) :] for name in attributes)
    return FileSource(
        place=place.parent,
        home=place.resolve().parent,
        items=items,
        class_names=tuple(names),
        attribute_names=shown,
    )


def _table_item(
    cells: dict[str, str],
    path: str,
    label: str | None,
    subject: str | None,
    split: str | None,
    attributes: list[str],
    number: int,
    place: Path,
) -> ImageItem:
    for name in (path, label, subject):
        if name is not None and not cells[name]:
            raise DataError(f"Row {number} of {str(place)!r} has no {name!r}: fill it in, or leave the row out.")
    part = cells[split].lower() if split is not None and cells[split] else ALL
    part = "val" if part in ("valid", "validation") else part
    if part not in (*SPLITS, ALL):
        raise DataError(f"Row {number} of {str(place)!r} has a split that is not train, val or test: correct it.")
    return ImageItem(
        name=cells[path],
        split=part,
        label=None if label is None else cells[label],
        subject=None if subject is None else cells[subject],
        attributes=tuple(cells[name] for name in attributes),
    )


def _header(place: Path) -> list[str]:
    try:
        with place.open(encoding="utf-8-sig", newline="") as stream:
            header = [cell.strip() for cell in next(csv.reader(stream), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{str(place)!r} cannot be read as a comma-separated table in UTF-8: export it again."
        ) from None
    if len(set(header)) != len(header):
        raise DataError(f"{str(place)!r} names a column twice: give each its own name.")
    return header


def _column(header: list[str], names: tuple[str, ...]) -> str | None:
    """The one column with a name among `names`."""
    found = [name for name in header if name.lower() in names]
    if len(found) > 1:
        raise DataError(f"The columns {found[0]!r} and {found[1]!r} mean the same: keep one.")
    return found[0] if found else None


def _open_npz(place: Path) -> ArraySource:
    """The images of an .npz file in MedMNIST's layout, held in memory. Labels are read as in a file of vectors."""
    try:
        raw, names = read_image_arrays(str(place))
        empty = {k: RawSplit(np.zeros((len(r.X), 1)), r.labels, r.subject, r.attributes) for k, r in raw.items()}
        sets = assemble(empty, str(place), EmbeddingInfo(), names)
        columns = {
            split: {key: part.attributes[key].astype(np.str_).tolist() for key in sorted(part.attributes)}
            for split, part in sets.items()
        }
        subjects = {k: None if s.subject is None else s.subject.astype(np.str_).tolist() for k, s in sets.items()}
    except UnicodeDecodeError:
        raise DataError(
            f"{str(place)!r} holds bytes that are not plain text in its labels or other columns: save them as text."
        ) from None
    attributes = sorted({key for part in columns.values() for key in part})
    items: list[ImageItem] = []
    for split, part in sets.items():
        if any(key not in columns[split] for key in attributes):
            raise DataError(f"{str(place)!r} lacks an attribute in {split!r} that another split has: add it.")
        who = subjects[split]
        for i, label in enumerate(part.labels.tolist()):
            items.append(
                ImageItem(
                    name=f"{split}/{i}",
                    split=split,
                    label=label,
                    subject=None if who is None else who[i],
                    attributes=tuple(columns[split][key][i] for key in attributes),
                )
            )
    return ArraySource(
        home=place.resolve().parent,
        items=items,
        class_names=next(iter(sets.values())).info.class_names,
        attribute_names=tuple(attributes),
        arrays={split: part.X for split, part in raw.items()},
    )
