"""Images in the arrays of an .npz file, with labels of every kind that vectors may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import read_splits
from locum.embed import embed_images, load_backbone, open_images
from locum.errors import DataError


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
    # A split alone keeps its images and the classes of all.
    test = source.only("test")
    assert [test.read(i) for i in range(2)] == [source.read(i) for i in (3, 4)]
    assert test.class_names == source.class_names


LABELS: list[tuple[Any, tuple[str, ...]]] = [
    (np.array([1, 0, 1]), ()),
    (np.array([1.0, 0.0, 1.0], dtype=np.float32), ()),
    (np.array([[10.0], [2.0], [10.0]]), ()),
    (np.array([True, False, True]), ()),
    (np.array([b"sick", b"well", b"sick"]), ()),
    (np.array(["sick", "well", "sick"]), ()),
    (np.array([1, 0, 1], dtype=np.uint8), ("well", "sick")),
    (np.array([1.0, 0.0, 1.0]), ("well", "sick")),
    (np.array([True, False, True]), ("well", "sick")),
    (np.array([b"sick", b"well", b"sick"]), ("well", "sick")),
    (np.array(["sick", "well", "sick"]), ("well", "sick")),
]


@pytest.mark.parametrize(("labels", "names"), LABELS)
def test_labels_mean_what_they_mean_for_vectors(labels: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    named = {"class_names": np.array(names)} if names else {}
    images = np.arange(3 * 16, dtype=np.uint8).reshape(3, 4, 4)
    np.savez(tmp_path / "images.npz", train_images=images, train_labels=labels, **named)
    np.savez(tmp_path / "vectors.npz", train_x=np.eye(3), train_y=labels, **named)
    expected = read_splits(tmp_path / "vectors.npz")["train"]
    with embed_images(tmp_path / "images.npz", load_backbone("efflite0"), cache=False) as done:
        found = done.sets()["train"]
    assert found.info.class_names == expected.info.class_names
    np.testing.assert_array_equal(found.y, expected.y)


def test_subjects_and_attributes_may_be_bytes(tmp_path: Path) -> None:
    columns = {"train_subject": np.array([b"p1", b"p2"]), "train_attr_sex": np.array([b"f", b"m"])}
    np.savez(tmp_path / "i.npz", train_images=np.zeros((2, 4, 4), np.uint8), train_labels=[0, 1], **columns)
    items = open_images(tmp_path / "i.npz").items
    assert [(item.subject, item.attributes) for item in items] == [("p1", ("f",)), ("p2", ("m",))]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.array([0.5, 1.0]), "fractions"),
        (np.array([np.nan, 1.0]), "missing"),
        (np.array([b"\xfc", b"a"]), "not UTF-8"),
        (np.array([0, 2]), "0..1"),
        (np.array(["well", "dead"]), "'dead' is not among"),
    ],
)
def test_labels_that_mean_nothing_are_told(labels: Any, told: str, tmp_path: Path) -> None:
    images = np.zeros((2, 4, 4), np.uint8)
    np.savez(tmp_path / "i.npz", train_images=images, train_labels=labels, class_names=np.array(["well", "sick"]))
    with pytest.raises(DataError, match=told):
        open_images(tmp_path / "i.npz")
