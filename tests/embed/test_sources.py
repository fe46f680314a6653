"""Tables of images, and what all sources share."""

from __future__ import annotations

from pathlib import Path

import pytest

from locum.embed import holds_images, open_images
from locum.errors import DataError


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
        ("path,label,subjects\na,b,c\n", "unknown column 'subjects'"),
        ("path,label\na\n", "1 fields where the header has 2"),
        ("path,label\na,\n", "has no 'label'"),
        ("path,label,split\na,b,later\n", "not train, val or test"),
        ("path,label,split\na,b,train\nc,d,\n", "only some rows"),
        ("path,file,label\na,b,c\n", "mean the same"),
        ("path,path,label\na,b,c\n", "twice"),
        ("path,label\n", "no rows"),
    ],
)
def test_a_wrong_table_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        open_images(table(tmp_path, text))


def test_a_name_that_no_file_can_have_is_told_with_its_row(tmp_path: Path) -> None:
    for cells in ("MILLER\0.png,b,p", "a.png,b,p\0"):
        with pytest.raises(DataError, match=r"Row 3 .* NUL") as told:
            open_images(table(tmp_path, f"path,label,subject\na.png,b,p\n{cells}\n"))
        assert "MILLER" not in str(told.value)


def test_a_label_with_a_line_break_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="control") as told:
        open_images(table(tmp_path, 'path,label\na.png,"b\nerror: forged"\n'))
    assert "forged" not in str(told.value)


def test_one_split_alone_keeps_the_classes_of_all(image_folder: Path) -> None:
    place = table(image_folder, "path,label,split\nbenign/scan0.png,b,train\nmalignant/scan0.png,m,test\n")
    source = open_images(place).only("test")
    assert [item.name for item in source.items] == ["malignant/scan0.png"]
    assert source.class_names == ("b", "m")
    assert source.read(0) == (image_folder / "malignant/scan0.png").read_bytes()


def test_what_holds_images(image_folder: Path, tmp_path: Path, real_data: Path) -> None:
    assert holds_images(image_folder)
    assert holds_images(table(image_folder, "path,label\na,b\n"))
    assert not holds_images(table(image_folder, "x0,x1,label\n1,2,3\n"))
    assert holds_images(real_data / "breastmnist.npz")
    assert not holds_images(real_data / "breastmnist_efflite0.npz")
    assert not holds_images(tmp_path / "none.npz")
