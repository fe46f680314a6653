"""Medical images with patients: Camelyon17 of WILDS, ChestX-ray14, OCTDL, and sets of MedIMeta."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

from locum.embed.layouts.lists import check_once, file_source, read_list, read_rows
from locum.embed.sources import FileSource, ImageItem
from locum.errors import DataError
from locum.io import reading_file
from locum.types import seems_subject

# Hospitals that WILDS keeps for validation and test.
_HELD_OUT = {"1": "val", "2": "test"}
_NO_FINDING = "No Finding"
_FINDINGS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema", "Fibrosis", "Hernia",
    "Infiltration", "Mass", "Nodule", "Pleural_Thickening", "Pneumonia", "Pneumothorax",
)  # fmt: skip
CHEST_TABLES = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")


def open_camelyon17(place: Path) -> FileSource:
    """`metadata.csv` and `patches/`: tumor or normal, patients as subjects, the hospital as the attribute `site`.

    Splits are WILDS' own: hospital 1 is val, hospital 2 is test. Patches that WILDS sets aside from the hospitals of
    train (`id_val`) are of the same patients, so they are in train; the attribute `part` tells them apart.
    """
    table = place / "metadata.csv"
    needed = ("patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
    items = []
    for number, row in enumerate(read_rows(table, needed), start=2):
        if row["tumor"] not in ("0", "1") or row["split"] not in ("0", "1"):
            raise DataError(f"Row {number} of {str(table)!r} must have 0 or 1 as `tumor` and as `split`.")
        part = _HELD_OUT.get(row["center"], ("train", "id_val")[int(row["split"])])
        # Tables that went through a spreadsheet lose the zeros.
        patient = sys.intern(row["patient"].zfill(3))
        stem = f"patient_{patient}_node_{row['node']}"
        items.append(
            ImageItem(
                f"patches/{stem}/patch_{stem}_x_{row['x_coord']}_y_{row['y_coord']}.png",
                "train" if part == "id_val" else part,
                ("normal", "tumor")[int(row["tumor"])],
                patient,
                (sys.intern(row["center"]), sys.intern(row["slide"]), part),
            )
        )
    check_once([item.name for item in items], place)
    return file_source(place, items, ("site", "slide", "part"))


def open_chest14(place: Path) -> FileSource:
    """`Data_Entry_2017.csv` and folders `images...`: any finding or none, patients as subjects.

    An image may show several findings: each is an attribute of yes and no, beside sex, age and view. With
    `train_val_list.txt` and `test_list.txt` there are the splits train and test, else none.
    """
    table = next(place / name for name in CHEST_TABLES if (place / name).is_file())
    rows = list(read_rows(table, ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "View Position")))
    sex = next((name for name in ("Patient Gender", "Patient Sex") if name in rows[0]), None)
    if sex is None:
        raise DataError(f"{str(table)!r} must have a column 'Patient Gender' or 'Patient Sex'.")
    lists = {"train": place / "train_val_list.txt", "test": place / "test_list.txt"}
    there = [split for split, file in lists.items() if file.is_file()]
    if len(there) == 1:
        raise DataError(f"{str(place)!r} has one of {' and '.join(f.name for f in lists.values())}: add the other.")
    splits = {name: split for split in there for name in read_list(lists[split])}
    folders = _chest_folders(place)
    items = []
    for number, row in enumerate(rows, start=2):
        name = row["Image Index"]
        if splits and name not in splits:
            raise DataError(f"The image in row {number} of {str(table)!r} is in neither list: use them as published.")
        found = set(row["Finding Labels"].split("|"))
        if unknown := found - {_NO_FINDING, *_FINDINGS}:
            raise DataError(f"Row {number} of {str(table)!r} has {len(unknown)} findings that are not of the 14.")
        facts = (row[sex], _years(row["Patient Age"]), row["View Position"])
        items.append(
            ImageItem(
                f"{folders.get(name, 'images')}/{name}",
                splits.get(name, "all"),
                "no finding" if found == {_NO_FINDING} else "finding",
                row["Patient ID"],
                (*facts, *("yes" if finding in found else "no" for finding in _FINDINGS)),
            )
        )
    check_once([item.name for item in items], place)
    return file_source(place, items, ("sex", "age", "view", *(finding.lower() for finding in _FINDINGS)))


def open_octdl(place: Path) -> FileSource:
    """`OCTDL_labels.csv` beside one folder per disease, or beside their folder `OCTDL`: patients as subjects."""
    table = place / "OCTDL_labels.csv"
    inner = "OCTDL/" if (place / "OCTDL").is_dir() else ""
    items = []
    for row in read_rows(table, ("file_name", "disease", "patient_id")):
        name = row["file_name"] if Path(row["file_name"]).suffix else f"{row['file_name']}.jpg"
        facts = tuple(row.get(key) or "unknown" for key in ("eye", "sex", "year"))
        items.append(
            ImageItem(f"{inner}{row['disease']}/{name}", "all", row["disease"], row["patient_id"], attributes=facts)
        )
    check_once([item.name for item in items], place)
    return file_source(place, items, ("eye", "sex", "year"))


def open_medimeta(place: Path) -> FileSource:
    """One set of MedIMeta: `info.yaml`, `images/`, `task_labels/`, `splits/`.

    The label is the number of the class in the first task of `info.yaml` that has one class per image; its other such
    tasks are attributes. Subjects come from `annotations.csv`, if it has a column of patients.
    """
    tasks = _medimeta_tasks(place)
    if not tasks:
        raise DataError(f"No task of {str(place)!r} has one class per image: make a table of paths and labels.")
    first, *others = tasks
    subjects = _medimeta_subjects(place, len(tasks[first]))
    items = []
    for split in ("train", "val", "test"):
        file = place / "splits" / f"{split}.txt"
        for number, line in enumerate(read_list(file) if file.is_file() else [], start=1):
            stem = line.rpartition("/")[2].partition(".")[0]
            if not stem.isdecimal() or int(stem) >= len(tasks[first]):
                raise DataError(f"Row {number} of splits/{split}.txt in {str(place)!r} must be a numbered image.")
            i = int(stem)
            items.append(
                ImageItem(
                    f"images/{i:06d}.tiff",
                    split,
                    str(tasks[first][i]),
                    None if subjects is None else subjects[i],
                    tuple(str(tasks[name][i]) for name in others),
                )
            )
    check_once([item.name for item in items], place)
    return file_source(place, items, tuple(others))


def _chest_folders(place: Path) -> dict[str, str]:
    """Which folder each image is in: `images`, or `images_001/images` and so on, one per archive."""
    found: dict[str, str] = {}
    for top in sorted(place.glob("images*")):
        folder = top / "images" if (top / "images").is_dir() else top
        if folder.is_dir():
            inner = folder.relative_to(place).as_posix()
            found.update((file.name, inner) for file in folder.iterdir())
    if not found:
        raise DataError(f"{str(place)!r} has no folder `images` or `images_001`: unpack an archive of images there.")
    return found


def _years(text: str) -> str:
    """The first version of the table has ages such as 058Y, 011M and 002D."""
    found = re.fullmatch(r"0*(\d+)([YMD]?)", text)
    if found is None:
        return "unknown"
    return found[1] if found[2] in ("", "Y") else "0"


def _medimeta_tasks(place: Path) -> dict[str, list[int]]:
    """Labels by task, in the order of `info.yaml`, of tasks with one whole number per image."""
    with reading_file(str(place / "info.yaml"), "a description of MedIMeta"):
        text = (place / "info.yaml").read_text(encoding="utf-8")
    named = [name.strip("'\"") for name in re.findall(r"^[\s-]*task_name:\s*(.+?)\s*$", text, re.MULTILINE)]
    files = {file.stem: file for file in sorted((place / "task_labels").glob("*.npy"))}
    found: dict[str, list[int]] = {}
    for name in sorted(files, key=lambda name: (named.index(name) if name in named else len(named), name)):
        with reading_file(str(files[name]), "an array of labels"):
            labels = np.load(files[name], allow_pickle=False)
        if labels.ndim == 1 and labels.dtype.kind in "iub":
            found[name] = labels.astype(np.int64).tolist()
    if len({len(labels) for labels in found.values()}) > 1:
        raise DataError(f"The files in task_labels of {str(place)!r} have labels of different numbers of images.")
    return found


def _medimeta_subjects(place: Path, images: int) -> list[str] | None:
    file = place / "annotations.csv"
    if not file.is_file():
        return None
    rows = list(read_rows(file, ()))
    named = [column for column in rows[0] if seems_subject(column)]
    if not named:
        return None
    if len(named) > 1 or len(rows) != images or any(not row.get(named[0]) for row in rows):
        raise DataError(
            f"{str(file)!r} must name one patient per image, in one column of {images} rows; it has {len(rows)} rows "
            f"and the columns {', '.join(named)}."
        )
    return [row[named[0]] for row in rows]
