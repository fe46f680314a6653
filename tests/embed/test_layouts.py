"""Public sets in their own layouts: splits, labels, patients and attributes, pixels in their place, and bad files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from locum.data import read_splits
from locum.embed import holds_images, open_images
from locum.embed.layouts import LAYOUTS, find_layout
from locum.errors import DataError
from locum.recipes import embed_to_file, survey_data

Picture = Callable[..., Image.Image]


def write_lists(folder: Path, lists: dict[str, list[str]]) -> None:
    for name, lines in lists.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")


def save(picture: Picture, folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        picture().save(folder / name)


def planes(image: np.ndarray) -> bytes:
    """All red, then all green, then all blue values, row by row: written without numpy's order of axes."""
    height, width, colors = image.shape
    return bytes(int(image[y, x, c]) for c in range(colors) for y in range(height) for x in range(width))


def columns(image: np.ndarray) -> bytes:
    """The same, column by column."""
    height, width, colors = image.shape
    return bytes(int(image[y, x, c]) for c in range(colors) for x in range(width) for y in range(height))


@pytest.fixture
def cifar10(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, np.ndarray]:
    """Two images in each of two training batches and in the test batch, of classes 0, 1, 1, 0, 1, 0."""
    folder = tmp_path / "cifar-10-batches-bin"
    images = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    labels = [0, 1, 1, 0, 1, 0]
    folder.mkdir()
    for part, rows in (("data_batch_1", (0, 1)), ("data_batch_3", (2, 3)), ("test_batch", (4, 5))):
        (folder / f"{part}.bin").write_bytes(b"".join(bytes([labels[i]]) + planes(images[i]) for i in rows))
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\n\n")
    return folder, images


def test_cifar10(cifar10: tuple[Path, np.ndarray]) -> None:
    folder, images = cifar10
    assert holds_images(folder)
    source = open_images(folder)
    assert source.class_names == ("airplane", "automobile")
    assert [item.split for item in source.items] == ["train"] * 4 + ["test"] * 2
    assert [source.class_names.index(item.label or "") for item in source.items] == [0, 1, 1, 0, 1, 0]
    for i, image in enumerate(images):
        assert np.array_equal(np.asarray(source.decode(source.read(i), None)), image)


def test_cifar100_has_superclasses(tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    fine, coarse = [2, 0, 1], [1, 0, 1]
    rows = [bytes([coarse[i], fine[i]]) + planes(images[i]) for i in range(3)]
    (tmp_path / "train.bin").write_bytes(rows[0] + rows[1])
    (tmp_path / "test.bin").write_bytes(rows[2])
    names = {"fine_label_names.txt": ["apple", "bear", "bed"], "coarse_label_names.txt": ["food", "things"]}
    write_lists(tmp_path, names)
    source = open_images(tmp_path)
    assert [(item.split, item.label, item.attributes) for item in source.items] == [
        ("train", "bed", ("things",)),
        ("train", "apple", ("food",)),
        ("test", "bear", ("things",)),
    ]
    assert source.attribute_names == ("superclass",)
    assert np.array_equal(np.asarray(source.decode(source.read(2), None)), images[2])


@settings(max_examples=15)
@given(cut=st.integers(1, 3072), label=st.integers(2, 255))
def test_damaged_cifar_is_an_error(tmp_path_factory: pytest.TempPathFactory, cut: int, label: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\n")
    (folder / "test_batch.bin").write_bytes(bytes(2 * 3073 - cut))
    with pytest.raises(DataError, match="not a multiple of the 3073"):
        open_images(folder)
    (folder / "test_batch.bin").write_bytes(bytes([label]) + bytes(3072))
    with pytest.raises(DataError, match="a label that the list of names lacks"):
        open_images(folder)


class Bomb:
    """Would make a file if anyone unpickled it."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("exploded", "w")


@pytest.mark.parametrize("names", [("batches.meta", "data_batch_1"), ("meta", "train", "test")])
def test_the_python_version_of_cifar_is_not_opened(
    tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar").mkdir()
    for name in names:
        (tmp_path / "cifar" / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match=r"pickles.* Give the folder of the binary version"):
        open_images(tmp_path / "cifar")
    assert not (tmp_path / "exploded").exists()


def test_stl10(tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (3, 96, 96, 3), dtype=np.uint8)
    (tmp_path / "train_X.bin").write_bytes(columns(images[0]) + columns(images[1]))
    (tmp_path / "train_y.bin").write_bytes(bytes([1, 10]))
    (tmp_path / "test_X.bin").write_bytes(columns(images[2]))
    (tmp_path / "test_y.bin").write_bytes(bytes([3]))
    source = open_images(tmp_path)
    assert [(item.split, item.label) for item in source.items] == [
        ("train", "airplane"),
        ("train", "truck"),
        ("test", "car"),
    ]
    for i, image in enumerate(images):
        assert np.array_equal(np.asarray(source.decode(source.read(i), None)), image)
    (tmp_path / "test_y.bin").write_bytes(bytes([3, 3]))
    with pytest.raises(DataError, match=r"1 images, and test_y\.bin 2 labels"):
        open_images(tmp_path)
    (tmp_path / "test_y.bin").write_bytes(bytes([0]))
    with pytest.raises(DataError, match="a label that the list of names lacks"):
        open_images(tmp_path)


@pytest.fixture
def camelyon(tmp_path: Path, picture: Picture) -> Path:
    """Hospitals 0 to 3; patient 004 of hospital 0 has patches in train and in `id_val`."""
    folder = tmp_path / "camelyon17_v1.0"
    rows = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    facts = [("004", 0, 0), ("004", 0, 1), ("021", 1, 0), ("042", 2, 1), ("088", 3, 0)]
    for i, (patient, center, split) in enumerate(facts):
        rows.append(f"{i},{patient},4,{100 + i},200,{i % 2},{center},{center},{split}")
        stem = f"patient_{patient}_node_4"
        save(picture, folder, f"patches/{stem}/patch_{stem}_x_{100 + i}_y_200.png")
    write_lists(folder, {"metadata.csv": rows})
    return folder


def test_camelyon17_has_hospitals_patients_and_splits(camelyon: Path) -> None:
    source = open_images(camelyon)
    assert source.attribute_names == ("site", "slide", "part")
    assert [(i.split, i.label, i.subject, i.attributes[0], i.attributes[2]) for i in source.items] == [
        ("train", "normal", "004", "0", "train"),
        ("train", "tumor", "004", "0", "id_val"),
        ("train", "normal", "088", "3", "train"),
        ("val", "normal", "021", "1", "val"),
        ("test", "tumor", "042", "2", "test"),
    ]
    assert all((camelyon / item.name).is_file() for item in source.items)
    # No patient is on both sides of a split.
    parts = {item.subject: {i.split for i in source.items if i.subject == item.subject} for item in source.items}
    assert all(len(splits) == 1 for splits in parts.values())


def test_a_folder_with_another_metadata_csv_is_a_folder_of_classes(image_folder: Path) -> None:
    (image_folder / "metadata.csv").write_text("file,age\na.png,3\n")
    assert find_layout(image_folder) is None
    assert open_images(image_folder).class_names == ("benign", "malignant")


CHEST = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)


@pytest.fixture
def chest(tmp_path: Path, picture: Picture) -> Path:
    """Four X-rays of three patients, two archives unpacked; ages in the first version's form."""
    folder = tmp_path / "chest"
    rows = [
        CHEST,
        "00000001_000.png,Cardiomegaly|Effusion,0,1,058Y,M,PA,2682,2749,0.143,0.143,",
        "00000001_001.png,No Finding,1,1,059Y,M,AP,2682,2749,0.143,0.143,",
        "00000002_000.png,No Finding,0,2,011M,F,PA,2500,2048,0.168,0.168",
        "00000003_000.png,Hernia,0,3,81,F,PA,2582,2991,0.143,0.143",
    ]
    write_lists(folder, {"Data_Entry_2017.csv": rows})
    save(picture, folder, *(f"images_001/images/0000000{i}.png" for i in ("1_000", "1_001")))
    save(picture, folder, *(f"images_002/images/0000000{i}.png" for i in ("2_000", "3_000")))
    return folder


def test_chest_xrays_have_patients_and_findings(chest: Path) -> None:
    source = open_images(chest)
    assert source.class_names == ("finding", "no finding")
    assert [(i.split, i.label, i.subject) for i in source.items] == [
        ("all", "finding", "1"),
        ("all", "no finding", "1"),
        ("all", "no finding", "2"),
        ("all", "finding", "3"),
    ]
    facts = [dict(zip(source.attribute_names, item.attributes, strict=True)) for item in source.items]
    assert [(f["sex"], f["age"], f["view"]) for f in facts] == [
        ("M", "58", "PA"),
        ("M", "59", "AP"),
        ("F", "0", "PA"),
        ("F", "81", "PA"),
    ]
    assert {name for name, value in facts[0].items() if value == "yes"} == {"cardiomegaly", "effusion"}
    assert {name for name, value in facts[3].items() if value == "yes"} == {"hernia"}
    assert all((chest / item.name).is_file() for item in source.items)


def test_chest_xrays_with_their_lists_have_splits(chest: Path) -> None:
    write_lists(chest, {"train_val_list.txt": ["00000001_000.png", "00000001_001.png", "00000003_000.png"]})
    with pytest.raises(DataError, match=r"has one of .*: add the other"):
        open_images(chest)
    write_lists(chest, {"test_list.txt": ["00000002_000.png"]})
    assert [(i.split, i.subject) for i in open_images(chest).items] == [
        ("train", "1"),
        ("train", "1"),
        ("train", "3"),
        ("test", "2"),
    ]
    write_lists(chest, {"test_list.txt": ["00000009_000.png"]})
    with pytest.raises(DataError, match=r"row 4 .* in neither list"):
        open_images(chest)


def test_a_chest_table_without_images_is_an_error(chest: Path) -> None:
    for folder in ("images_001", "images_002"):
        (chest / folder).rename(chest / f"other_{folder}")
    with pytest.raises(DataError, match="unpack an archive of images"):
        open_images(chest)


def test_pets(tmp_path: Path, picture: Picture) -> None:
    trainval = ["#Image CLASS-ID SPECIES BREED ID", "Abyssinian_100 1 1 1", "american_bulldog_10 2 2 1"]
    lists = {"annotations/trainval.txt": trainval, "annotations/test.txt": ["Abyssinian_201 1 1 1"]}
    write_lists(tmp_path, lists)
    save(
        picture, tmp_path, "images/Abyssinian_100.jpg", "images/american_bulldog_10.jpg", "images/Abyssinian_201.jpg"
    )
    source = open_images(tmp_path)
    assert [(i.split, i.label, i.attributes) for i in source.items] == [
        ("train", "Abyssinian", ("cat",)),
        ("train", "american_bulldog", ("dog",)),
        ("test", "Abyssinian", ("cat",)),
    ]
    assert all((tmp_path / item.name).is_file() for item in source.items)
    write_lists(tmp_path, {"annotations/test.txt": ["Abyssinian_100 1 1 1"]})
    with pytest.raises(DataError, match="name an image twice"):
        open_images(tmp_path)
    write_lists(tmp_path, {"annotations/test.txt": ["../../etc/x_1 1 1 1"]})
    with pytest.raises(DataError, match="outside the folder"):
        open_images(tmp_path)


@pytest.mark.parametrize("inner", ["", "data/"])
def test_aircraft(tmp_path: Path, picture: Picture, inner: str) -> None:
    variants = {
        "train": ["1025794 707-320", "0000001 F/A-18"],
        "val": ["0000002 DC-9-30"],
        "test": ["0000003 707-320"],
    }
    makers = {"train": ["0000001 McDonnell Douglas", "1025794 Boeing"], "val": ["0000002 McDonnell Douglas"]}
    makers["test"] = ["0000003 Boeing"]
    for split in variants:
        write_lists(tmp_path / inner, {f"images_variant_{split}.txt": variants[split]})
        write_lists(tmp_path / inner, {f"images_manufacturer_{split}.txt": makers[split]})
    save(picture, tmp_path / inner, *(f"images/{n}.jpg" for n in ("1025794", "0000001", "0000002", "0000003")))
    source = open_images(tmp_path)
    assert [(i.split, i.label, i.attributes) for i in source.items] == [
        ("train", "707-320", ("Boeing",)),
        ("train", "F/A-18", ("McDonnell Douglas",)),
        ("val", "DC-9-30", ("McDonnell Douglas",)),
        ("test", "707-320", ("Boeing",)),
    ]
    assert all((tmp_path / item.name).is_file() for item in source.items)


def test_textures(tmp_path: Path, picture: Picture) -> None:
    lists = {
        "train": ["banded/banded_0002.jpg"],
        "val": ["dotted/dotted_0001.jpg"],
        "test": ["banded/banded_0005.jpg"],
    }
    for split, lines in lists.items():
        write_lists(tmp_path, {f"labels/{split}1.txt": lines, f"labels/{split}2.txt": []})
        save(picture, tmp_path, *(f"images/{line}" for line in lines))
    source = open_images(tmp_path)
    assert [(i.split, i.label) for i in source.items] == [("train", "banded"), ("val", "dotted"), ("test", "banded")]
    assert all((tmp_path / item.name).is_file() for item in source.items)


@pytest.mark.parametrize("inner", ["", "OCTDL/"])
def test_octdl(tmp_path: Path, picture: Picture, inner: str) -> None:
    header = "file_name,disease,subcategory,condition,patient_id,eye,sex,year,image_width,image_hight"
    rows = [header, "amd_1047099_1,AMD,MNV,,1,OD,F,40,1000,500", "no_22,NO,,,2,,,,1000,500"]
    write_lists(tmp_path, {"OCTDL_labels.csv": rows})
    save(picture, tmp_path, f"{inner}AMD/amd_1047099_1.jpg", f"{inner}NO/no_22.jpg")
    source = open_images(tmp_path)
    assert [(i.label, i.subject, i.attributes) for i in source.items] == [
        ("AMD", "1", ("OD", "F", "40")),
        ("NO", "2", ("unknown",) * 3),
    ]
    assert all((tmp_path / item.name).is_file() for item in source.items)


@pytest.fixture
def medimeta(tmp_path: Path, picture: Picture) -> Path:
    """Four images, one task with a class per image, one with several findings, and one more with a class."""
    folder = tmp_path / "derm"
    tasks = "tasks:\n- labels: {0: a, 1: b}\n  task_name: disease\n- task_name: findings\n- task_name: 'age group'\n"
    write_lists(folder, {"info.yaml": ["id: derm", tasks]})
    (folder / "task_labels").mkdir()
    np.save(folder / "task_labels" / "disease.npy", np.array([1, 0, 1, 0]))
    np.save(folder / "task_labels" / "findings.npy", np.zeros((4, 3), np.int64))
    np.save(folder / "task_labels" / "age group.npy", np.array([2, 2, 0, 1]))
    splits = {"train": ["images/000000.tiff", "images/000003.tiff"], "val": ["images/000001.tiff"]}
    for split, lines in {**splits, "test": ["images/000002.tiff"]}.items():
        write_lists(folder, {f"splits/{split}.txt": lines})
    save(picture, folder, *(f"images/00000{i}.tiff" for i in range(4)))
    return folder


def test_medimeta(medimeta: Path) -> None:
    source = open_images(medimeta)
    assert [(i.split, i.label, i.subject, i.attributes) for i in source.items] == [
        ("train", "1", None, ("2",)),
        ("train", "0", None, ("1",)),
        ("val", "0", None, ("2",)),
        ("test", "1", None, ("0",)),
    ]
    assert source.attribute_names == ("age group",)
    assert all((medimeta / item.name).is_file() for item in source.items)
    write_lists(medimeta, {"annotations.csv": ["patient_id,age", "p1,3", "p2,4", "p3,5", "p1,6"]})
    assert [i.subject for i in open_images(medimeta).items] == ["p1", "p1", "p2", "p3"]
    write_lists(medimeta, {"annotations.csv": ["patient_id,age", "p1,3"]})
    with pytest.raises(DataError, match="one patient per image"):
        open_images(medimeta)


def test_medimeta_opens_no_pickle(medimeta: Path) -> None:
    np.save(medimeta / "task_labels" / "disease.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="damaged"):
        open_images(medimeta)
    assert not Path("exploded").exists()


def test_every_layout_is_met_by_its_own_markers_alone(tmp_path: Path) -> None:
    for number, layout in enumerate(LAYOUTS):
        place = tmp_path / str(number)
        (place / layout.folder).mkdir(parents=True)
        write_lists(place, {marker: [",".join(layout.columns)] for marker in layout.markers})
        fitting = [other.name for other in LAYOUTS if other.fits(place)]
        assert fitting == [layout.name]
        names = [*layout.markers, *([f"{layout.folder}/a.png"] if layout.folder else [])]
        assert [other.name for other in LAYOUTS if other.fits_names(names)] == [layout.name]


def test_embedding_cifar_and_camelyon(cifar10: tuple[Path, np.ndarray], camelyon: Path, tmp_path: Path) -> None:
    summary = embed_to_file(str(cifar10[0]), tmp_path / "cifar.npz", cache=False)
    assert (summary.images, summary.splits, summary.skipped) == (6, {"train": 4, "test": 2}, 0)
    found = read_splits(tmp_path / "cifar.npz")
    assert found["train"].labels.tolist() == ["airplane", "automobile", "automobile", "airplane"]
    assert found["train"].X.shape == (4, 1280)
    (camelyon / "patches" / "patient_088_node_4" / "patch_patient_088_node_4_x_104_y_200.png").unlink()
    summary = embed_to_file(str(camelyon), tmp_path / "tumor.npz", cache=False)
    assert (summary.subjects, summary.splits, summary.skipped) == (3, {"train": 2, "val": 1, "test": 1}, 1)
    train = read_splits(tmp_path / "tumor.npz")["train"]
    assert train.subject is not None
    assert train.subject.tolist() == ["004", "004"]
    assert train.attributes["site"].tolist() == ["0", "0"]


def test_a_survey_counts_a_layout_s_patients(chest: Path) -> None:
    found = survey_data(str(chest))
    assert (found.records, found.unit) == (4, "subject")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        (CHEST, "no rows"),
        (CHEST.replace("Patient ID", "Patient"), "one column 'Patient ID'"),
        (f"{CHEST}\n1.png,No Finding,0,,58,M,PA,", "Row 2 .* has no 'Patient ID'"),
        (f"{CHEST}\n1.png,Cough,0,1,58,M,PA,", "Row 2 .* not of the 14"),
        (f"{CHEST}\n1.png,Hernia\n", "Row 2 .* has no 'Patient ID'"),
        (f'{CHEST}\n"1.png,{"x" * 200_000}', "damaged"),
        (f"{CHEST}\n\udcff", "damaged"),
    ],
)
def test_a_damaged_table_is_one_sentence(chest: Path, text: str, words: str) -> None:
    (chest / "Data_Entry_2017.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=words):
        open_images(chest)
