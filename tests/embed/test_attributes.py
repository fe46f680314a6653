"""Images with attributes: CelebA's layout, a folder with a table, and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum.embed import ImageTable, read_celeba, read_image_attributes, read_image_npz
from locum.errors import ConfigError, DataError

NAMES = ("Male", "Smiling", "Young")
SIGNS = np.array([[1, -1, 1], [-1, -1, 1], [1, 1, -1], [-1, 1, 1], [1, 1, 1]])


def color(i: int) -> tuple[int, int, int]:
    return (40 * i, 200 - 40 * i, 100)


@pytest.fixture
def celeba(tmp_path: Path) -> Path:
    """Five faces of one color each with black above and below, as CelebA hands its own out."""
    (tmp_path / "img_align_celeba").mkdir()
    for i in range(5):
        face = Image.new("RGB", (178, 218))
        face.paste(color(i), (0, 20, 178, 198))
        face.save(tmp_path / f"img_align_celeba/mrs_secret{i}.jpg", quality=95)
    rows = [f"mrs_secret{i}.jpg  " + "  ".join(map(str, signs)) for i, signs in enumerate(SIGNS)]
    (tmp_path / "list_attr_celeba.txt").write_text("5\n" + " ".join(NAMES) + " \n" + "\n".join(rows) + "\n")
    return tmp_path


def fails(folder: Path, words: str, **settings: object) -> None:
    with pytest.raises((DataError, ConfigError), match=words) as caught:
        read_celeba(folder, **settings)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_celeba(celeba: Path) -> None:
    table = read_celeba(celeba, side=16)
    assert len(table) == 5
    assert table.images.shape == (5, 16, 16, 3)
    assert table.images.dtype == np.uint8
    # The square in the middle holds the face alone: no black from above or below.
    for i in range(5):
        assert np.abs(table.images[i].astype(int) - color(i)).max() <= 6
    assert list(table.attributes) == list(NAMES)
    for j, name in enumerate(NAMES):
        assert table.attributes[name].tolist() == (SIGNS[:, j] == 1).astype(int).tolist()


def test_some_attributes_of_some_images(celeba: Path) -> None:
    table = read_celeba(celeba, attributes=["Young", "Male"], limit=3)
    assert table.images.shape == (3, 64, 64, 3)
    assert {k: v.tolist() for k, v in table.attributes.items()} == {"Young": [1, 1, 0], "Male": [1, 0, 1]}


def test_partitions_and_the_folders_of_the_original(celeba: Path) -> None:
    (celeba / "list_eval_partition.txt").write_text(
        "".join(f"mrs_secret{i}.jpg {i % 3}\n" for i in reversed(range(5)))
    )
    for folder, part in (
        ("Img", "img_align_celeba"),
        ("Anno", "list_attr_celeba.txt"),
        ("Eval", "list_eval_partition.txt"),
    ):
        (celeba / folder).mkdir()
        (celeba / part).rename(celeba / folder / part)
    table = read_celeba(celeba, side=8)
    assert table.attributes["partition"].tolist() == [0, 1, 2, 0, 1]
    (celeba / "Eval/list_eval_partition.txt").write_text("mrs_secret0.jpg 0\nmrs_secret1.jpg 7\n")
    fails(celeba, r"gives no partition \(0, 1 or 2\) for the image in row 4 ")


def test_a_missing_image(celeba: Path) -> None:
    (celeba / "img_align_celeba/mrs_secret2.jpg").unlink()
    fails(celeba, r"The image in row 5 of .*list_attr_celeba\.txt is missing")
    assert len(read_celeba(celeba, limit=2)) == 2


@pytest.mark.parametrize(("keep", "why"), [(900, "cut off"), (0, "empty file"), (None, "not an image")])
def test_a_damaged_image(celeba: Path, keep: int | None, why: str) -> None:
    file = celeba / "img_align_celeba/mrs_secret3.jpg"
    file.write_bytes(b"hello there" if keep is None else file.read_bytes()[:keep])
    fails(celeba, rf"The image in row 6 of .* cannot be used \({why}\)")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("5\n", "6\n"), "announces 6 images and lists 5"),
        (("5\n", "4\n"), "announces 4 images and lists 5"),
        (("5\n", "five\n"), "must begin with the number"),
        ((" ".join(NAMES) + " \n", ""), "must begin with the number"),
        (("Smiling", "Male"), "names an attribute twice"),
        (("Smiling", ""), "Row 3 of .* must hold a file name and then 2 values of 1 or -1"),
        (("  -1", "  0"), "Row 3 of .* must hold a file name and then 3 values of 1 or -1"),
        (("mrs_secret1.jpg", "../list_attr_celeba.txt"), "row 4 of .* lies outside the folder"),
        (("mrs_secret1.jpg", "/etc/hosts"), "row 4 of .* lies outside the folder"),
    ],
)
def test_a_wrong_list(celeba: Path, change: tuple[str, str], words: str) -> None:
    listed = celeba / "list_attr_celeba.txt"
    listed.write_text(listed.read_text().replace(*change))
    fails(celeba, words)


def test_an_empty_or_binary_list(celeba: Path) -> None:
    for content, words in (
        (b"", "must begin"),
        (b"0\nMale\n", "lists no image"),
        (b"\xff\xfe", "not a list of CelebA"),
    ):
        (celeba / "list_attr_celeba.txt").write_bytes(content)
        fails(celeba, words)


def test_settings(celeba: Path, tmp_path: Path) -> None:
    fails(celeba, r"has no attributes \['Bald'\]; it has Male, Smiling, Young", attributes=["Male", "Bald"])
    for side in (0, 5000, 1.5, True):
        fails(celeba, "`side` must be", side=side)
    fails(celeba, "`limit` must be", limit=0)
    fails(celeba / "img_align_celeba", "holds no list_attr_celeba")
    (celeba / "img_align_celeba").rename(celeba / "elsewhere")
    fails(celeba, "holds no img_align_celeba")


@pytest.fixture
def folder(tmp_path: Path, picture) -> Path:  # type: ignore[no-untyped-def]
    (tmp_path / "images/more").mkdir(parents=True)
    picture().save(tmp_path / "images/secret_a.png")
    picture(mode="L").save(tmp_path / "images/secret_b.png")
    picture(9, 50).save(tmp_path / "images/more/secret_c.jpg")
    return tmp_path


def test_any_folder_with_a_table(folder: Path) -> None:
    table = folder / "t.csv"
    table.write_text("age,file,sex,ill\n9,more/secret_c.jpg,f,true\n10,secret_a.png,m,false\n8,secret_b.png,f,true\n")
    found = read_image_attributes(folder / "images", table, side=12)
    assert found.images.shape == (3, 12, 12, 3)
    assert {k: v.tolist() for k, v in found.attributes.items()} == {
        "age": [9, 10, 8],
        "sex": ["f", "m", "f"],
        "ill": [1, 0, 1],
    }
    gray = read_image_attributes(folder / "images", table, side=12, channels=1, attributes=["sex"])
    assert gray.images.shape == (3, 12, 12, 1)
    assert list(gray.attributes) == ["sex"]
    # Three equal colors of a gray image are its gray.
    assert np.array_equal(np.repeat(gray.images[2], 3, axis=2), found.images[2])


def test_the_first_column_names_the_image(folder: Path) -> None:
    (folder / "t.csv").write_text("image_id,Male\nsecret_a.png,-1\n")
    assert read_image_attributes(folder / "images", folder / "t.csv", side=4).attributes["Male"].tolist() == [-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file,a\nsecret_a.png,1\nsecret_z.png,2\n", r"The image in row 3 of .*t\.csv is missing"),
        ("file,a\nmore,1\n", "row 2 of .* is missing or not readable"),
        ("file,a\n../t.csv,1\n", "row 2 of .* lies outside"),
        ("file,a\nsecret_a.png,\n", "Row 2 of .* has no 'a'"),
        ("a,file\n1,secret_a.png\n1,\n", "Row 3 of .* has no 'file'"),
        ("file,a\nsecret_a.png,0.5\n", "Column 'a' of .* must hold text or whole numbers"),
    ],
)
def test_wrong_tables(folder: Path, text: str, words: str) -> None:
    (folder / "t.csv").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        read_image_attributes(folder / "images", folder / "t.csv", side=8)
    assert "secret" not in str(caught.value)


def test_settings_of_a_folder(folder: Path) -> None:
    (folder / "t.csv").write_text("file,a\nsecret_a.png,1\n")
    with pytest.raises(ConfigError, match="`channels` must be 1"):
        read_image_attributes(folder, folder / "t.csv", side=8, channels=4)
    with pytest.raises(ConfigError, match=r"has no attributes \['file'\]"):
        read_image_attributes(folder, folder / "t.csv", side=8, attributes=["file"])
    with pytest.raises(DataError, match="is not a folder"):
        read_image_attributes(folder / "none", folder / "t.csv", side=8)


def test_arrays(tmp_path: Path, rng: np.random.Generator) -> None:
    train, test = (rng.integers(0, 256, (n, 5, 6), dtype=np.uint8) for n in (4, 2))
    np.savez(
        tmp_path / "set.npz",
        train_images=train,
        train_labels=np.array([[2], [0], [10], [0]], np.uint8),
        train_attr_sex=np.array(["f", "m", "f", "f"]),
        test_images=test,
        test_labels=np.array([[0], [2]], np.uint8),
        test_attr_sex=np.array(["m", "m"]),
    )
    found = read_image_npz(tmp_path / "set.npz", labels="organ")
    assert list(found) == ["train", "test"]
    assert np.array_equal(found["train"].images[..., 0], train)
    assert found["train"].attributes["organ"].tolist() == [2, 0, 10, 0]
    assert found["test"].attributes["sex"].tolist() == ["m", "m"]
    with pytest.raises(ConfigError, match="has an attribute 'sex' already"):
        read_image_npz(tmp_path / "set.npz", labels="sex")


def test_arrays_with_names_and_of_other_kinds(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    images = np.zeros((2, 4, 4, 3), np.uint8)
    np.savez(path, train_images=images, train_labels=np.array([1, 0]), class_names=np.array(["cat", "dog"]))
    assert read_image_npz(path)["train"].attributes["label"].tolist() == ["dog", "cat"]
    np.savez(path, train_images=images / 255, train_labels=np.array([1, 0]))
    with pytest.raises(DataError, match="bytes"):
        read_image_npz(path)
    np.savez(path, train_images=np.zeros((2, 4, 4, 2), np.uint8), train_labels=np.array([1, 0]))
    with pytest.raises(DataError, match="1 or 3"):
        read_image_npz(path)
    with pytest.raises(DataError, match="There is no file"):
        read_image_npz(tmp_path / "none.npz")


def test_real_arrays(real_data: Path) -> None:
    cifar = read_image_npz(real_data / "cifar10_12k.npz")
    assert {split: part.images.shape for split, part in cifar.items()} == {
        "train": (10_000, 32, 32, 3),
        "test": (2000, 32, 32, 3),
    }
    assert np.bincount(cifar["train"].attributes["label"]).tolist() == [1000] * 10
    breast = read_image_npz(real_data / "breastmnist.npz")
    assert breast["val"].images.shape == (78, 28, 28, 1)


def test_a_table_is_checked_and_taken_apart() -> None:
    images = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    table = ImageTable(images, {"a": np.array(["x", "y", "z"])})
    some = table.take(np.array([True, False, True]))
    assert some.images.ravel().tolist() == [0, 2]
    assert some.attributes["a"].tolist() == ["x", "z"]
    with pytest.raises(DataError, match="bytes"):
        ImageTable(images.astype(float))  # type: ignore[arg-type]
    for wrong in (np.array(["x"]), np.array([0.5, 1, 2])):
        with pytest.raises(DataError, match="Attribute 'a'"):
            ImageTable(images, {"a": wrong})
