"""Which public set a folder holds, by files that no other folder has."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from locum.embed.layouts import binary, medical, photos
from locum.embed.sources import ImageSource


@dataclass(frozen=True, slots=True)
class Layout:
    """How one public set is distributed.

    Parameters
    ----------
    name
        What the set is called.
    markers
        Files, relative to the folder, that are all there if the folder holds this set.
    open
        Lists its images.
    columns, folder
        Columns that the first marker, a table, must have, and a folder that must be there: other sets have files of
        this name, too.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed.layouts import LAYOUTS
    >>> [layout.name for layout in LAYOUTS if layout.fits(Path("."))]
    []
    """

    name: str
    markers: tuple[str, ...]
    open: Callable[[Path], ImageSource]
    columns: Collection[str] = ()
    folder: str = ""

    def fits_names(self, names: Collection[str]) -> bool:
        """Whether a folder with these files, by their paths in it, seems to hold this set; no file is read."""
        inside = not self.folder or any(name.startswith(f"{self.folder}/") for name in names)
        return inside and set(self.markers) <= set(names)

    def fits(self, place: Path) -> bool:
        """Whether a folder holds this set."""
        if not all((place / marker).is_file() for marker in self.markers) or not (place / self.folder).is_dir():
            return False
        return not self.columns or set(self.columns) <= _header(place / self.markers[0])


LAYOUTS = (
    Layout("CIFAR-10", ("batches.meta.txt", "test_batch.bin"), binary.open_cifar10),
    Layout("CIFAR-100", ("fine_label_names.txt", "coarse_label_names.txt", "train.bin"), binary.open_cifar100),
    Layout("CIFAR-10, Python version", ("batches.meta", "data_batch_1"), binary.refuse_pickled_cifar),
    Layout("CIFAR-100, Python version", ("meta", "train", "test"), binary.refuse_pickled_cifar),
    Layout("STL-10", ("train_X.bin", "train_y.bin"), binary.open_stl10),
    Layout(
        "Camelyon17 (WILDS)",
        ("metadata.csv",),
        medical.open_camelyon17,
        columns=("patient", "node", "x_coord", "y_coord", "tumor", "center"),
        folder="patches",
    ),
    *(Layout("ChestX-ray14", (table,), medical.open_chest14) for table in medical.CHEST_TABLES),
    Layout("OCTDL", ("OCTDL_labels.csv",), medical.open_octdl),
    Layout("MedIMeta", ("info.yaml", "splits/train.txt"), medical.open_medimeta),
    Layout("Oxford-IIIT Pets", ("annotations/trainval.txt", "annotations/test.txt"), photos.open_pets),
    Layout("FGVC Aircraft", ("images_variant_train.txt",), photos.open_aircraft),
    Layout("FGVC Aircraft", ("data/images_variant_train.txt",), photos.open_aircraft),
    Layout("DTD", ("labels/train1.txt", "labels/val1.txt", "labels/test1.txt"), photos.open_textures),
)


def find_layout(place: Path) -> Layout | None:
    """The public set that a folder holds.

    Parameters
    ----------
    place
        A folder.

    Returns
    -------
    Layout or None
        None if the folder is none that Locum knows, and so has one folder per class.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.embed.layouts import find_layout
    >>> Path("dtd/labels").mkdir(parents=True)
    >>> for part in ("train", "val", "test"):
    ...     _ = Path(f"dtd/labels/{part}1.txt").write_text(f"banded/{part}.jpg")
    >>> layout = find_layout(Path("dtd"))
    >>> layout.name, [item.label for item in layout.open(Path("dtd")).items]
    ('DTD', ['banded', 'banded', 'banded'])
    """
    return next((layout for layout in LAYOUTS if layout.fits(place)), None)


def _header(file: Path) -> set[str]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return {name.strip() for name in next(csv.reader(stream), [])}
    except (OSError, UnicodeDecodeError, csv.Error):
        return set()
