"""Real files, as their makers wrote them; needs the folder that LOCUM_DATA names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locum.data import check_trainable, long_tail_counts, read_embeddings, read_splits, write_embeddings

Find = Callable[[str], Path]


@pytest.mark.parametrize(("name", "sizes"), [("breastmnist", (546, 78, 156)), ("pneumoniamnist", (4708, 524, 624))])
def test_medmnist_images_and_their_embeddings_agree(real_data: Find, name: str, sizes: tuple[int, ...]) -> None:
    images = read_splits(real_data(f"{name}.npz"))
    vectors = read_splits(real_data(f"{name}_efflite0.npz"))
    assert tuple(len(s) for s in images.values()) == tuple(len(s) for s in vectors.values()) == sizes
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(images[split].y, vectors[split].y)
        assert images[split].info.class_names == vectors[split].info.class_names == ("0", "1")
        assert images[split].X.shape[1] == 28 * 28
        assert 0 <= images[split].X.min() < images[split].X.max() <= 1
        check_trainable(vectors[split])


def test_the_long_tail_of_cifar_has_the_counts_of_the_literature(real_data: Find) -> None:
    train = read_embeddings(f"{real_data('cifar10lt_efflite0.npz')}#train")
    assert train.counts.tolist() == long_tail_counts(5000, 10, 100)
    assert train.dim == 1280


@pytest.mark.parametrize("suffix", [".parquet", ".safetensors", ".csv"])
def test_real_embeddings_survive_every_format(real_data: Find, tmp_path: Path, suffix: str) -> None:
    test = read_embeddings(real_data("breastmnist_efflite0.npz"), "test")
    write_embeddings(tmp_path / f"d{suffix}", test)
    back = read_embeddings(tmp_path / f"d{suffix}")
    np.testing.assert_array_equal(back.X, test.X)
    np.testing.assert_array_equal(back.y, test.y)


def test_census_text_is_refused_without_showing_a_person(
    real_data: Find, tmp_path: Path, refuses: Callable[..., str]
) -> None:
    path = tmp_path / "adult.csv"
    path.write_bytes(real_data("adult/adult.data").read_bytes())
    assert "State-gov" not in refuses(path, "must name the columns")
