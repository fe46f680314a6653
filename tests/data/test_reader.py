"""Paths, splits and folders: what is asked for, and what is said where it is not there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from locum.data import read_embeddings, read_splits, write_embeddings
from locum.errors import DataError
from locum.types import EmbeddingSet

Refuses = Callable[..., str]
SUFFIXES = [".csv", ".npz", ".parquet", ".safetensors"]


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    path = tmp_path / "d.npz"
    np.savez(path, train_x=np.eye(2), train_y=[0, 1], test_x=2 * np.eye(2), test_y=[1, 2])
    return path


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "w.npz"
    np.savez(path, X=np.eye(2), y=[0, 1])
    return path


def test_a_split_is_picked_by_mark_or_by_argument(parted: Path) -> None:
    marked = read_embeddings(f"{parted}#test")
    argued = read_embeddings(parted, split="test")
    both = read_embeddings(f"{parted}#test", split="test")
    assert marked.X.tolist() == argued.X.tolist() == both.X.tolist() == [[2, 0], [0, 2]]
    assert marked.info.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("tail", "split", "pieces"),
    [
        ("", None, ["holds the splits train, test", "#train"]),
        ("#foo", None, ["'foo' is not a split", "#train, #val or #test"]),
        ("#", None, ["'' is not a split"]),
        ("#val", None, ["no split 'val'", "holds train, test"]),
        ("#all", None, ["no split 'all'", "holds train, test"]),
        ("#train", "test", ["give one of them"]),
    ],
)
def test_a_wrong_split_gets_its_own_sentence(parted: Path, tail: str, split: str | None, pieces: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read_embeddings(f"{parted}{tail}", split)
    for piece in (str(parted), *pieces):
        assert piece in str(caught.value)


def test_a_file_without_splits_says_so(whole: Path) -> None:
    assert len(read_embeddings(f"{whole}#all")) == len(read_embeddings(whole)) == 2
    with pytest.raises(DataError, match="has no splits, so no 'train'"):
        read_embeddings(f"{whole}#train")


def test_a_lone_split_needs_no_mark(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", train_x=np.eye(2), train_y=[0, 1])
    assert len(read_embeddings(tmp_path / "d.npz")) == 2


def test_a_mark_in_the_name_of_the_file_itself(tmp_path: Path) -> None:
    np.savez(tmp_path / "run#train.npz", X=np.eye(2), y=[0, 1])
    assert len(read_embeddings(tmp_path / "run#train.npz")) == 2
    assert len(read_embeddings(f"{tmp_path}/run#train.npz#all")) == 2


def test_read_splits_wants_the_whole_file(parted: Path, refuses: Refuses) -> None:
    assert list(read_splits(f"{parted}#train")) == ["train"]


def test_a_capital_suffix_is_the_same_format(tmp_path: Path) -> None:
    with (tmp_path / "D.NPZ").open("wb") as stream:
        np.savez(stream, X=np.eye(2), y=[0, 1])
    assert list(read_splits(tmp_path / "D.NPZ")) == ["all"]


def test_a_missing_file_and_an_unknown_suffix_list_what_can_be_read(tmp_path: Path, refuses: Refuses) -> None:
    refuses(tmp_path / "none.npz", "There is no file", *SUFFIXES)
    for name in ("d.txt", "d", "d.npy"):
        (tmp_path / name).write_text("x")
        refuses(tmp_path / name, "not a kind of file", *SUFFIXES)


def test_a_single_image_is_told_what_to_do(tmp_path: Path, refuses: Refuses) -> None:
    (tmp_path / "scan.PNG").write_bytes(b"\x89PNG")
    refuses(tmp_path / "scan.PNG", "is a single image", "give the folder")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_is_called_empty(tmp_path: Path, refuses: Refuses, suffix: str) -> None:
    (tmp_path / f"d{suffix}").touch()
    refuses(tmp_path / f"d{suffix}", "is empty")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_other_bytes_under_a_known_suffix_are_refused(tmp_path: Path, refuses: Refuses, suffix: str) -> None:
    (tmp_path / f"d{suffix}").write_bytes(bytes(range(256)) * 20)
    refuses(tmp_path / f"d{suffix}")


def test_a_hostile_name_cannot_steer_the_terminal(tmp_path: Path, refuses: Refuses) -> None:
    np.savez(tmp_path / "d.npz", **{"X": np.eye(2), "y": [0, 1], "\x1b[2J\nok" + "z" * 5000: [0, 1]})
    text = refuses(tmp_path / "d.npz", "?[2J?ok", "...")
    assert text.isprintable()
    assert len(text) < 1100


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3), st.floats(0, 1))
def test_a_damaged_file_is_read_or_refused_and_never_breaks(
    tmp_path: Path, rich: EmbeddingSet, suffix: str, changes: list[tuple[float, int]], keep: float
) -> None:
    write_embeddings(tmp_path / f"d{suffix}", rich)
    content = bytearray((tmp_path / f"d{suffix}").read_bytes())
    for place, value in changes:
        content[int(place * len(content))] = value
    (tmp_path / f"d{suffix}").write_bytes(content[: int(keep * len(content)) or 1] if not changes else content)
    with suppress(DataError):
        sets = read_splits(tmp_path / f"d{suffix}")
        assert sum(len(s) for s in sets.values()) <= len(rich)


def test_folders_are_told_apart_without_naming_what_they_hold(tmp_path: Path, refuses: Refuses) -> None:
    folder = tmp_path / "data"
    (folder / "benign").mkdir(parents=True)
    refuses(folder, "is an empty folder", *SUFFIXES)
    (folder / "benign" / "Meier.txt").touch()
    assert "Meier" not in refuses(folder, "is a folder: give one file", *SUFFIXES)
    (folder / "benign" / "Meier.PNG").touch()
    assert "Meier" not in refuses(folder, "is a folder of images: embed it first", *SUFFIXES)
