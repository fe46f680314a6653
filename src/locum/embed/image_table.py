"""A table of images: a .csv with a column `path`, and labels, subjects and splits beside it."""

from __future__ import annotations

import csv
from pathlib import Path

from locum.data import ALL, SPLITS
from locum.embed.sources import FileSource, ImageItem
from locum.errors import DataError

_PATH = ("path", "file", "filename", "image")
_LABEL = ("label", "y", "target", "class")
_SUBJECT = ("subject", "patient", "patient_id")
_ATTRIBUTE = "attr_"


def is_image_table(place: Path) -> bool:
    """True for a .csv whose header has a column of paths."""
    try:
        return _column(_header(place), _PATH) is not None
    except DataError:
        return False


def open_table(place: Path) -> FileSource:
    """Images listed in a .csv: `path` (from the table's folder), and perhaps `label`, `subject`, `split`, `attr_...`.

    Rows keep their order. Labels must be in every row or in none; so must subjects. A file that is not there is found
    missing when it is read, like any other that cannot be read. A column of another name is an error: a `subjects`
    that is overlooked would put one person on both sides of a split.
    """
    header = _header(place)
    path, label, subject = (_column(header, names) for names in (_PATH, _LABEL, _SUBJECT))
    if path is None:
        raise DataError(f"{str(place)!r} has no column `path`: name the column of image files so.")
    split = _column(header, ("split",))
    attributes = [name for name in header if name.lower().startswith(_ATTRIBUTE)]
    if unknown := [n for n in header if n not in (path, label, subject, split, *attributes)]:
        raise DataError(
            f"{str(place)!r} has a column {unknown[0]!r} that means nothing here; known are path, label, subject, "
            "split and attr_...: rename it, or leave it out."
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
                # No file can have it in its name, and text columns would lose it at their end.
                if any("\0" in cell for cell in row):
                    raise DataError(f"Row {number} of {str(place)!r} holds a NUL character: export the table again.")
                cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
                items.append(_item(cells, path, label, subject, split, attributes, number, place))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"{str(place)!r} cannot be read as a table in UTF-8 text with commas: export it again."
        ) from None
    if not items:
        raise DataError(f"{str(place)!r} has a header but no rows: add images.")
    splits = {item.split for item in items}
    if ALL in splits and len(splits) > 1:
        raise DataError(f"{str(place)!r} names a split in some rows only: name it in all or in none.")
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


def _item(
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
            f"{str(place)!r} cannot be read as a table in UTF-8 text with commas: export it again."
        ) from None
    if len(set(header)) != len(header):
        raise DataError(f"{str(place)!r} names a column twice: each needs a name of its own.")
    return header


def _column(header: list[str], names: tuple[str, ...]) -> str | None:
    """The one column with a name among `names`."""
    found = [name for name in header if name.lower() in names]
    if len(found) > 1:
        raise DataError(f"The columns {found[0]!r} and {found[1]!r} mean the same: keep one.")
    return found[0] if found else None
