"""Folders of images: what counts as one, links, and which names a class may have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from locum.embed import embed_images, load_backbone, open_images
from locum.errors import DataError


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
    (image_folder / "benign" / "1.2.840.miller").write_bytes(b"\0")
    (image_folder / ".hidden").mkdir()
    (image_folder / ".hidden" / "a.png").write_bytes(b"")
    (image_folder / "benign" / "._scan0.png").write_bytes(b"")
    source = open_images(image_folder)
    assert (len(source.items), source.ignored) == (10, 3)
    # A long suffix may be a name.
    assert source.ignored_kinds == (".db", ".txt", "other")


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
    with pytest.raises(DataError, match=r"1 of 11 images .* outside its class folders") as told:
        open_images(image_folder)
    assert "stray" not in str(told.value)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no image"):
        open_images(tmp_path)
    with pytest.raises(DataError, match="There is no"):
        open_images(tmp_path / "none")


def test_links_are_followed_and_two_may_lead_to_one_place(image_folder: Path, tmp_path: Path, picture) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    picture().save(elsewhere / "x.png")
    for label in ("normal", "again"):
        (image_folder / label).symlink_to(elsewhere, target_is_directory=True)
    (image_folder / "benign" / "y.png").symlink_to(elsewhere / "x.png")
    source = open_images(image_folder)
    names = [item.name for item in source.items]
    assert len(names) == 13
    assert source.class_names == ("again", "benign", "malignant", "normal")
    for name in ("again/x.png", "normal/x.png", "benign/y.png"):
        assert source.read(names.index(name)) == (elsewhere / "x.png").read_bytes()


@pytest.mark.parametrize("target", [".", "..", "../malignant"])
def test_a_link_that_leads_back_is_refused(image_folder: Path, target: str) -> None:
    (image_folder / "benign" / "MILLER").symlink_to(target, target_is_directory=True)
    (image_folder / "malignant" / "back").symlink_to("../benign", target_is_directory=True)
    with pytest.raises(DataError, match="leads back") as told:
        open_images(image_folder)
    assert "MILLER" not in str(told.value)


def test_a_link_to_nothing_is_an_image_that_is_missing(image_folder: Path) -> None:
    (image_folder / "benign" / "gone.png").symlink_to("nowhere.png")
    with embed_images(image_folder, load_backbone("efflite0"), cache=False) as done:
        assert done.problems == (("benign/gone.png", "missing"),)


def test_dicom_is_known_by_content_where_the_suffix_says_nothing(image_folder: Path) -> None:
    raw = b"\0" * 128 + b"DICM"
    for name in ("1.2.840.113619.2.5", "scan", "scan.old"):
        (image_folder / "benign" / name).write_bytes(raw)
    (image_folder / "benign" / "1.2.840.113619.2.6").write_bytes(b"DICM")
    os.mkfifo(image_folder / "benign" / "pipe")
    source = open_images(image_folder)
    assert (len(source.items), source.ignored) == (13, 2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("benign\nerror: all is well", "control"),
        ("tab\there", "control"),
        ("line\u2028end", "control"),
        (os.fsdecode(b"m\xfcde"), "not UTF-8"),
        ("x" * 201, "more than 200"),
    ],
)
def test_a_class_needs_a_name_that_can_be_shown(image_folder: Path, name: str, why: str, picture) -> None:
    (image_folder / name).mkdir()
    picture().save(image_folder / name / "0.png")
    with pytest.raises(DataError, match=why) as told:
        open_images(image_folder)
    assert "\n" not in str(told.value)
    assert name not in str(told.value)
    str(told.value).encode()


def test_names_of_many_alphabets_are_fine(tmp_path: Path, picture) -> None:
    names = ("gutartig (größer)", "良性", "x" * 200, "a\u00a0b")
    for name in names:
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "0.png")
    assert set(open_images(tmp_path).class_names) == set(names)
