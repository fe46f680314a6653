"""Names of arrays and what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from locum.data.formats.arrays import holds_images, pixels, split_arrays
from locum.errors import DataError


def test_splits_come_in_their_usual_order() -> None:
    arrays = {f"{s}_{c}": np.ones((2, 2)) for s in ("test", "val", "train") for c in ("x", "y")}
    assert list(split_arrays(arrays, arrays.__getitem__, "f")) == ["train", "val", "test"]


@pytest.mark.parametrize("name", ["subject", "patient", "patient_id"])
def test_a_person_may_be_called_in_three_ways(name: str) -> None:
    arrays = {"X": np.eye(2), "y": np.array([0, 1]), name: np.array([8, 9])}
    subject = split_arrays(arrays, arrays.__getitem__, "f")["all"].subject
    assert subject is not None
    assert subject.tolist() == [8, 9]


@pytest.mark.parametrize("name", ["images", "labels", "attr_", "extra", "train_extra", "dev_x", "y_train"])
def test_names_without_meaning_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"`{name}`"):
        split_arrays(["X", "y", name], lambda _: np.eye(2), "f")


def test_pixels_do_not_guess_a_scale() -> None:
    with pytest.raises(DataError, match="uint8"):
        pixels(np.full((1, 2, 2), 1.5), "train_images", "f")
    with pytest.raises(DataError, match="uint8"):
        pixels(np.full((1, 2, 2), np.nan), "train_images", "f")


def test_only_images_of_a_split_count_as_images() -> None:
    assert holds_images(["val_images"])
    assert not holds_images(["X", "attr_images", "train_x"])
