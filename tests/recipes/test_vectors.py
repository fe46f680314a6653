"""Which rows are predicted, and what their labels mean to the head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingInfo, EmbeddingSet
from locum.data import write_embeddings
from locum.errors import DataError
from locum.recipes.inputs import read_vectors

INFO = EmbeddingInfo(class_names=("ant", "bee"))


@pytest.mark.parametrize(
    ("splits", "chosen"),
    [(("train", "val", "test"), "test"), (("train", "val"), "val"), (("train",), "train"), (("test",), "test")],
)
def test_the_test_split_comes_first(tmp_path: Path, splits: tuple[str, ...], chosen: str) -> None:
    arrays = {f"{name}_x": np.full((3, 2), len(name)) for name in splits}
    labels = {f"{name}_y": np.array(["ant", "bee", "ant"]) for name in splits}
    np.savez(tmp_path / "d.npz", **arrays, **labels)
    assert read_vectors(str(tmp_path / "d.npz"), INFO).X[0, 0] == len(chosen)
    assert read_vectors(f"{tmp_path / 'd.npz'}#{splits[0]}", INFO).X[0, 0] == len(splits[0])


def test_labels_follow_the_head_and_strangers_are_marked(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.eye(4), y=np.array(["bee", "wasp", "ant", "bee"]))
    found = read_vectors(str(tmp_path / "d.npz"), INFO)
    assert found.y is not None
    assert found.y.tolist() == [1, -1, 0, 1]
    assert list(found.names) == ["0", "1", "2", "3"]
    assert found.problems == ()
    assert found.X.dtype == np.float32


def test_vectors_of_another_backbone_are_refused(tmp_path: Path) -> None:
    other = EmbeddingInfo("dinov2", "", "", ("ant", "bee"))
    write_embeddings(tmp_path / "d.npz", EmbeddingSet(np.eye(2), np.arange(2), info=other))
    with pytest.raises(DataError, match=r"given data hold 'dinov2'.*in the same way"):
        read_vectors(str(tmp_path / "d.npz"), EmbeddingInfo("efflite0", class_names=("ant", "bee")))


def test_train_never_stands_in_for_a_damaged_test_split(tmp_path: Path) -> None:
    from PIL import Image

    from locum.embed import load_backbone

    for split in ("train", "test"):
        (tmp_path / "scans" / split / "a").mkdir(parents=True)
    Image.new("L", (8, 8)).save(tmp_path / "scans" / "train" / "a" / "0.png")
    (tmp_path / "scans" / "test" / "a" / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match="no image that can be read in 'test'"):
        read_vectors(str(tmp_path / "scans"), load_backbone().info)
