"""Photographs: Oxford-IIIT Pets, FGVC Aircraft and the Describable Textures Dataset."""

from __future__ import annotations

from pathlib import Path

from locum.embed.layouts.lists import check_once, file_source, read_list
from locum.embed.sources import FileSource, ImageItem
from locum.errors import DataError

_SPECIES = {"1": "cat", "2": "dog"}
_SPLITS = ("train", "val", "test")


def open_pets(place: Path) -> FileSource:
    """`images/` and `annotations/trainval.txt` and `test.txt`: breeds, with the attribute `species`."""
    items = []
    for split, name in (("train", "trainval.txt"), ("test", "test.txt")):
        for number, line in enumerate(read_list(place / "annotations" / name), start=1):
            if line.startswith("#"):
                continue
            cells = line.split()
            breed = cells[0].rpartition("_")[0]
            if len(cells) != 4 or not breed or cells[2] not in _SPECIES:
                raise DataError(
                    f"Row {number} of annotations/{name} in {str(place)!r} must be an image, its class, 1 for a cat "
                    "or 2 for a dog, and its breed."
                )
            items.append(ImageItem(f"images/{cells[0]}.jpg", split, breed, attributes=(_SPECIES[cells[2]],)))
    check_once([item.name for item in items], place)
    return file_source(place, items, ("species",))


def open_aircraft(place: Path) -> FileSource:
    """`images/` and `images_variant_train.txt` and so on, in `place` or its folder `data`: 100 variants.

    `family` and `manufacturer` are attributes where their lists are there.
    """
    data = place if (place / "images_variant_train.txt").is_file() else place / "data"
    inner = "" if data == place else "data/"
    wider = [kind for kind in ("family", "manufacturer") if (data / f"images_{kind}_train.txt").is_file()]
    items = []
    for split in _SPLITS:
        variants = _aircraft_list(data, "variant", split)
        facts = [_aircraft_list(data, kind, split) for kind in wider]
        for image, variant in variants.items():
            if any(image not in fact for fact in facts):
                raise DataError(f"A list of {split} images in {str(data)!r} lacks an image that another one has.")
            items.append(
                ImageItem(f"{inner}images/{image}.jpg", split, variant, attributes=tuple(f[image] for f in facts))
            )
    check_once([item.name for item in items], place)
    return file_source(place, items, wider)


def open_textures(place: Path) -> FileSource:
    """DTD: `images/CLASS/` and `labels/train1.txt`, `val1.txt`, `test1.txt`, the first of its ten splits."""
    items = []
    for split in _SPLITS:
        for number, line in enumerate(read_list(place / "labels" / f"{split}1.txt"), start=1):
            label, slash, _ = line.partition("/")
            if not slash or not label:
                raise DataError(f"Row {number} of labels/{split}1.txt in {str(place)!r} must be CLASS/IMAGE.")
            items.append(ImageItem(f"images/{line}", split, label))
    check_once([item.name for item in items], place)
    return file_source(place, items)


def _aircraft_list(data: Path, kind: str, split: str) -> dict[str, str]:
    """Image to class."""
    found = {}
    name = f"images_{kind}_{split}.txt"
    for number, line in enumerate(read_list(data / name), start=1):
        # The name of a class may hold blanks.
        image, _, label = line.partition(" ")
        if not label.strip():
            raise DataError(f"Row {number} of {name} in {str(data)!r} must be an image and its {kind}.")
        found[image] = label.strip()
    return found
