"""Lists and tables that come with an image set, and what is made of them: images by file name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from locum.data import ALL, SPLITS
from locum.embed.sources import FileSource, ImageItem
from locum.errors import DataError
from locum.io import reading_file, regular_bytes

_ORDER = {name: i for i, name in enumerate((*SPLITS, ALL))}


def read_list(file: Path) -> list[str]:
    """The lines of a text file, without blank ones."""
    with reading_file(str(file), "a list in UTF-8 text"):
        text = regular_bytes(file).decode("utf-8-sig")
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_rows(file: Path, needed: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table with a header, each by column; `needed` must be there and filled in, others need not.

    A row may be shorter than the header after the last needed column: published tables end lines with commas or not.
    """
    kind = "a comma-separated table in UTF-8"
    with reading_file(str(file), kind):
        text = regular_bytes(file).decode("utf-8-sig")
    lines = enumerate(csv.reader(io.StringIO(text, newline="")), start=1)
    header: list[str] = []
    rows = 0
    try:
        for number, line in lines:
            if number == 1:
                header = [name.strip() for name in line]
                _check_header(header, needed, file)
            elif line:
                row = {name: cell.strip() for name, cell in zip(header, line, strict=False)}
                for name in needed:
                    if not row.get(name) or "\0" in row[name]:
                        raise DataError(
                            f"Row {number} of {str(file)!r} has no {name!r}: use the table as it was published."
                        )
                rows += 1
                yield row
    except csv.Error:
        raise DataError(f"{str(file)!r} is damaged, or is not {kind}: copy or export it again.") from None
    if not rows:
        raise DataError(f"{str(file)!r} has no rows: use the table as it was published.")


def _check_header(header: Sequence[str], needed: Sequence[str], file: Path) -> None:
    for name in needed:
        if header.count(name) != 1:
            raise DataError(f"{str(file)!r} must have one column {name!r}: use the table as it was published.")


def file_source(place: Path, items: Iterable[ImageItem], attributes: Sequence[str] = ()) -> FileSource:
    """Images by their names in a folder, ordered by split; classes are sorted by name."""
    found = sorted(items, key=lambda item: _ORDER[item.split])
    if not found:
        raise DataError(f"{str(place)!r} lists no image: unpack the set again.")
    for item in found:
        # A list from an unknown source must not reach into other folders.
        if item.name.startswith("/") or ".." in item.name.split("/") or "\0" in item.name:
            raise DataError(f"A list in {str(place)!r} names an image outside the folder: unpack the set again.")
    return FileSource(
        place=place,
        home=place.resolve().parent,
        items=found,
        class_names=tuple(sorted({item.label for item in found if item.label is not None})),
        attribute_names=tuple(attributes),
    )


def check_once(names: Sequence[str], place: Path) -> None:
    """Refuse lists that name an image twice: it would be on both sides of a split."""
    if len(set(names)) < len(names):
        raise DataError(f"The lists in {str(place)!r} name an image twice: unpack the set again.")
