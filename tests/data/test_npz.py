"""Reading .npz files in their three layouts, and every way in which they can be wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locum.data import read_embeddings, read_splits

Refuses = Callable[..., str]


def save(folder: Path, **arrays: object) -> Path:
    path = folder / "d.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_x_and_y_alone_become_one_set(tmp_path: Path) -> None:
    path = save(tmp_path, X=np.eye(3), y=np.array([7, 9, 7]))
    sets = read_splits(path)
    assert list(sets) == ["all"]
    assert sets["all"].info.class_names == ("7", "9")
    assert sets["all"].y.tolist() == [0, 1, 0]
    assert sets["all"].info.backbone == "unknown"
    assert sets["all"].subject is None


def test_subject_attributes_names_and_info_are_read(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        X=np.eye(3),
        y=np.array([1, 0, 1]),
        subject=np.array([5, 5, 6]),
        attr_sex=np.array(["f", "f", "m"]),
        class_names=np.array(["normal", "ill"]),
        info='{"backbone": "b", "revision": "r", "preprocessing": "p", "more": 1}',
    )
    data = read_embeddings(path)
    assert data.labels.tolist() == ["ill", "normal", "ill"]
    assert data.subject is not None
    assert data.subject.tolist() == [5, 5, 6]
    assert data.attributes["sex"].tolist() == ["f", "f", "m"]
    assert (data.info.backbone, data.info.revision, data.info.preprocessing) == ("b", "r", "p")


def test_text_labels_follow_the_order_of_class_names(tmp_path: Path) -> None:
    path = save(tmp_path, X=np.eye(2), y=np.array(["a", "b"]), class_names=np.array(["b", "a"]))
    assert read_embeddings(path).y.tolist() == [1, 0]


def test_splits_share_their_class_codes(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        train_x=np.eye(2),
        train_y=np.array([2, 10]),
        test_x=np.eye(2),
        test_y=np.array([[9], [10]]),
        train_subject=np.array(["a", "b"]),
        test_attr_sex=np.array(["f", "m"]),
    )
    sets = read_splits(path)
    assert list(sets) == ["train", "test"]
    assert sets["train"].info.class_names == sets["test"].info.class_names == ("2", "9", "10")
    assert sets["train"].y.tolist() == [0, 2]
    assert sets["test"].y.tolist() == [1, 2]
    assert sets["train"].subject is not None
    assert sets["test"].subject is None
    assert list(sets["test"].attributes) == ["sex"]


def test_medmnist_images_become_pixels_between_0_and_1(tmp_path: Path) -> None:
    images = np.array([[[0, 255], [51, 102]]], dtype=np.uint8)
    path = save(
        tmp_path,
        train_images=images,
        train_labels=np.array([[1]]),
        val_images=images,
        val_labels=np.array([[0]]),
        test_images=images,
        test_labels=np.array([[1]]),
    )
    sets = read_splits(path)
    assert list(sets) == ["train", "val", "test"]
    np.testing.assert_allclose(sets["train"].X, [[0, 1, 0.2, 0.4]], rtol=1e-6)
    assert sets["val"].info.backbone == "pixels"
    assert sets["val"].y.tolist() == [0]


def test_color_images_are_flattened_and_fractions_kept(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((2, 3, 3, 3))
    path = save(tmp_path, train_images=images, train_labels=np.array([0, 1]))
    np.testing.assert_allclose(read_embeddings(path).X, images.reshape(2, 27), rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "pieces"),
    [
        ({"X": [[1, np.nan]], "y": [0]}, ["finite", "record 0"]),
        ({"X": np.ones(3), "y": [0, 1, 1]}, ["table of records by features", "(3,)"]),
        ({"X": np.ones((2, 2, 2)), "y": [0, 1]}, ["table of records by features", "(2, 2, 2)"]),
        ({"X": np.ones((0, 2)), "y": [0]}, ["table of records by features", "(0, 2)"]),
        ({"X": np.eye(3), "y": [0, 1]}, ["one label", "3 vectors", "(2,)"]),
        ({"X": np.eye(2)}, ["`X`", "no labels", "`y`"]),
        ({"y": [0, 1]}, ["labels (`y`)", "no vectors", "`X`"]),
        ({"train_x": np.eye(2)}, ["`train_x`", "no labels", "`train_y`"]),
        ({"test_labels": [0, 1]}, ["labels (`test_labels`)", "no vectors", "`test_x`"]),
        ({"X": np.eye(2), "y": [0.5, 1]}, ["classes, not measurements"]),
        ({"X": np.eye(2), "y": [[0, 1], [1, 0]]}, ["one column"]),
        ({"X": np.array([["a"]]), "y": [0]}, ["must be numbers"]),
        ({"X": np.eye(2), "y": [0, 1], "subject": [1]}, ["`subject`", "one entry per record"]),
        ({"X": np.eye(2), "y": [0, 1], "subjects": [1, 2]}, ["`subjects`", "no known meaning", "`subject`"]),
        ({"X": np.eye(2), "y": [0, 1], "train_x": np.eye(2)}, ["mixes splits", "`X`"]),
        ({"X": np.eye(2), "x": np.eye(2), "y": [0, 1]}, ["`X` and `x`", "keep one"]),
        (
            {"train_x": np.eye(2), "train_images": np.ones((2, 1, 1)), "train_y": [0, 1]},
            ["`train_images`", "keep one"],
        ),
        ({"train_images": np.ones((2, 4)), "train_labels": [0, 1]}, ["images", "(2, 4)"]),
        ({"train_images": np.full((2, 2, 2), 300), "train_labels": [0, 1]}, ["uint8", "int64"]),
        ({"X": np.eye(2), "y": [0, 5], "class_names": ["a", "b"]}, ["0..1", "0..5"]),
        ({"X": np.eye(2), "y": ["a", "c"], "class_names": ["a", "b"]}, ["'c'", "known classes"]),
        ({"X": np.eye(2), "y": [0, 1], "class_names": ["a", "a"]}, ["names a class twice"]),
        ({"X": np.eye(2), "y": [0, 1], "class_names": [["a", "b"]]}, ["`class_names`", "list of text"]),
        ({"X": np.eye(2), "y": [0, 1], "info": "{"}, ["`info`", "JSON"]),
        ({"X": np.eye(2), "y": [0, 1], "info": "[1]"}, ["`info`", "JSON object"]),
        ({"X": np.eye(2), "y": [0, 1], "info": '{"backbone": 1}'}, ["`backbone`", "not text"]),
        ({"X": np.eye(2), "y": [0, 1], "info": 1.5}, ["`info`", "JSON text"]),
        ({"class_names": ["a"]}, ["no vectors"]),
    ],
)
def test_each_wrong_content_gets_its_own_sentence(
    tmp_path: Path, refuses: Refuses, arrays: dict[str, object], pieces: list[str]
) -> None:
    refuses(save(tmp_path, **arrays), *pieces)


def test_splits_of_different_width_are_refused(tmp_path: Path, refuses: Refuses) -> None:
    path = save(tmp_path, train_x=np.eye(2), train_y=[0, 1], test_x=np.eye(3), test_y=[0, 1, 1])
    refuses(path, "different lengths", "train 2", "test 3")


def test_an_error_inside_a_split_names_the_split(tmp_path: Path, refuses: Refuses) -> None:
    bad = np.array([[1.0, np.inf]])
    refuses(save(tmp_path, train_x=np.eye(2), train_y=[0, 1], val_x=bad, val_y=[0]), "d.npz#val", "finite")


@pytest.mark.parametrize("key", ["X", "y", "subject", "class_names"])
def test_object_arrays_are_never_loaded(tmp_path: Path, refuses: Refuses, key: str) -> None:
    arrays = {"X": np.eye(2), "y": np.array([0, 1])} | {key: np.array([{"a": 1}, None], dtype=object)}
    refuses(save(tmp_path, **arrays), f"`{key}`", "Python objects", "never loaded")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, refuses: Refuses, keep: float) -> None:
    path = save(tmp_path, X=np.random.default_rng(0).random((50, 8)), y=np.arange(50) % 2)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    refuses(path, "damaged", ".npz")


def test_a_flipped_byte_is_noticed(tmp_path: Path, refuses: Refuses) -> None:
    path = save(tmp_path, X=np.random.default_rng(0).random((50, 8)), y=np.arange(50) % 2)
    content = bytearray(path.read_bytes())
    content[1000] ^= 255
    path.write_bytes(content)
    refuses(path, "damaged")


def test_a_bare_array_and_a_strange_member_are_refused(tmp_path: Path, refuses: Refuses) -> None:
    path = tmp_path / "bare.npz"
    with path.open("wb") as stream:
        np.save(stream, np.eye(2))
    refuses(path, "one bare array")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", b"text")
        archive.writestr("y", b"text")
    refuses(path, "not an array")
