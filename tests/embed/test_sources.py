"""Folders, tables and arrays of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from understudy.embed import holds_images, open_images
from understudy.errors import DataError


def test_a_folder_a_class(image_folder: Path) -> None:
    source = open_images(image_folder)
    assert len(source.items) == 10
    assert source.class_names == ("benign", "malignant")
    assert [item.name for item in source.items] == sorted(item.name for item in source.items)
    assert {item.split for item in source.items} == {"all"}
    assert source.read(0) == (image_folder / source.items[0].name).read_bytes()


def test_other_files_are_counted_and_hidden_ones_passed_over(image_folder: Path) -> None:
    (image_folder / "benign" / "notes.txt").write_text("of no use")
    (image_folder / "benign" / "Thumbs.db").write_bytes(b"\0")
    (image_folder / ".hidden").mkdir()
    (image_folder / ".hidden" / "a.png").write_bytes(b"")
    (image_folder / "benign" / "._scan0.png").write_bytes(b"")
    source = open_images(image_folder)
    assert (len(source.items), source.ignored) == (10, 2)


def test_deeper_folders_belong_to_their_class(image_folder: Path, picture) -> None:
    deep = image_folder / "benign" / "2020" / "june"
    deep.mkdir(parents=True)
    picture().save(deep / "x.png")
    (found,) = [item for item in open_images(image_folder).items if item.name.endswith("x.png")]
    assert found.label == "benign"


def test_splits_at_the_top(tmp_path: Path, picture) -> None:
    for split in ("test", "Train", "validation"):
        for label in ("a", "b"):
            (tmp_path / split / label).mkdir(parents=True)
            picture().save(tmp_path / split / label / "0.png")
    source = open_images(tmp_path)
    assert [item.split for item in source.items] == ["train", "train", "val", "val", "test", "test"]
    assert source.class_names == ("a", "b")


def test_images_without_classes_have_no_label(tmp_path: Path, picture) -> None:
    picture().save(tmp_path / "0.png")
    assert open_images(tmp_path).items[0].label is None


def test_images_beside_the_classes_are_an_error(image_folder: Path, picture) -> None:
    picture().save(image_folder / "stray.png")
    with pytest.raises(DataError, match=r"1 images .* beside its folders") as told:
        open_images(image_folder)
    assert "stray" not in str(told.value)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no image"):
        open_images(tmp_path)
    with pytest.raises(DataError, match="There is no"):
        open_images(tmp_path / "none")


def table(folder: Path, text: str) -> Path:
    (folder / "images.csv").write_text(text)
    return folder / "images.csv"


def test_a_table_of_paths(image_folder: Path) -> None:
    place = table(
        image_folder,
        "Path,label,patient_id,split,attr_sex\n"
        "malignant/scan1.jpg,m,007,test,f\nbenign/scan0.png,b,007,train,f\nbenign/scan2.bmp,b,12,train,m\n",
    )
    source = open_images(place)
    assert [item.name for item in source.items] == ["benign/scan0.png", "benign/scan2.bmp", "malignant/scan1.jpg"]
    assert [item.subject for item in source.items] == ["007", "12", "007"]
    assert [item.attributes for item in source.items] == [("f",), ("m",), ("f",)]
    assert (source.class_names, source.attribute_names) == (("b", "m"), ("sex",))
    assert source.read(1) == (image_folder / "benign/scan2.bmp").read_bytes()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("label\na\n", "no column `path`"),
        ("path,label,subjects\na,b,c\n", "'subjects' that means nothing"),
        ("path,label\na\n", "1 fields where the header has 2"),
        ("path,label\na,\n", "has no 'label'"),
        ("path,label,split\na,b,later\n", "not train, val or test"),
        ("path,label,split\na,b,train\nc,d,\n", "some rows only"),
        ("path,file,label\na,b,c\n", "mean the same"),
        ("path,path,label\na,b,c\n", "twice"),
        ("path,label\n", "no rows"),
    ],
)
def test_a_wrong_table_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        open_images(table(tmp_path, text))


def test_arrays_of_images(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {
        "train_images": rng.integers(0, 256, (3, 5, 6), dtype=np.uint8),
        "train_labels": np.array([[2], [0], [10]]),
        "test_images": rng.integers(0, 65536, (2, 5, 6, 3), dtype=np.uint16),
        "test_labels": np.array([[0], [2]]),
        "train_subject": np.array([7, 8, 7]),
        "test_subject": np.array([9, 9]),
    }
    np.savez(tmp_path / "set.npz", **arrays)
    source = open_images(tmp_path / "set.npz")
    assert source.class_names == ("0", "2", "10")
    assert [item.label for item in source.items] == ["2", "0", "10", "0", "2"]
    assert [item.subject for item in source.items] == ["7", "8", "7", "9", "9"]
    first = source.decode(source.read(1), None)
    np.testing.assert_array_equal(np.asarray(first), arrays["train_images"][1])
    assert np.asarray(source.decode(source.read(4), (0.0, 65535.0))).shape == (5, 6, 3)
    # Equal pixels of another shape are another image.
    assert source.read(0) != source.read(1)


def test_named_classes_of_an_npz(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "set.npz",
        train_images=np.zeros((2, 4, 4), np.uint8),
        train_labels=[1, 0],
        class_names=np.array(["yes", "no"]),
    )
    source = open_images(tmp_path / "set.npz")
    assert source.class_names == ("yes", "no")
    assert [item.label for item in source.items] == ["no", "yes"]


def test_what_holds_images(image_folder: Path, tmp_path: Path, real_data: Path) -> None:
    assert holds_images(image_folder)
    assert holds_images(table(image_folder, "path,label\na,b\n"))
    assert not holds_images(table(image_folder, "x0,x1,label\n1,2,3\n"))
    assert holds_images(real_data / "breastmnist.npz")
    assert not holds_images(real_data / "breastmnist_efflite0.npz")
    assert not holds_images(tmp_path / "none.npz")
