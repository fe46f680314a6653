"""Pieces with whole subjects: whatever the subjects are written as, and whatever lies in the scratch folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from locum.data import by_subject, open_batches, whole_subjects, write_embeddings
from locum.errors import DataError
from locum.types import Batches, EmbeddingSet, SetBatches


def _set(subject: npt.NDArray[Any]) -> EmbeddingSet:
    X = np.random.default_rng(0).normal(size=(len(subject), 3))
    return EmbeddingSet(X.astype(np.float32), np.zeros(len(subject), np.int64), subject)


def _times_seen(pieces: Batches) -> dict[str, int]:
    """In how many pieces each subject is."""
    seen: dict[str, int] = {}
    for piece in pieces:
        assert piece.subject is not None
        for who in set(map(str, piece.subject.tolist())):
            seen[who] = seen.get(who, 0) + 1
    return seen


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        np.array([b"p1", b"p2", b"p3"]),
        np.array(["p1", "p2", "p3"]),
        np.array(["e\u0301", "\u00e9", "e"]),
        np.array([2**63 + 1, 5, 6], dtype=np.uint64),
        np.array([-1, 1, 0]),
        np.array([True, False]),
        np.array(["a" * 5000 + "1", "a" * 5000 + "2"]),
    ],
    ids=["bytes", "text", "normal forms", "large numbers", "numbers", "truth", "long"],
)
def test_no_subject_is_split(tmp_path: Path, names: npt.NDArray[Any], together: bool, rows: int) -> None:
    subject = np.repeat(names, 4) if together else np.tile(names, 4)
    seen = _times_seen(by_subject(SetBatches(_set(subject), rows), tmp_path / "sorted"))
    assert len(seen) == len(names)
    assert set(seen.values()) == {1}


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(DataError, match="bytes that are not UTF-8"):
        _set(np.array([b"\xff", b"a"]))


def test_half_a_character_is_refused_in_one_sentence() -> None:
    with pytest.raises(DataError, match="not valid text"):
        by_subject(SetBatches(_set(np.array(["\ud800", "a"]))), None)


def test_a_copy_is_not_used_for_other_subjects(tmp_path: Path) -> None:
    for names in (["a", "b", "c"], ["x", "y"]):
        pieces = by_subject(SetBatches(_set(np.tile(names, 6)[:12]), rows=5), tmp_path / "sorted")
        assert sorted(_times_seen(pieces)) == names


def test_a_copy_of_arrays_is_not_used_for_other_subjects(tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "X.npy", np.eye(12, dtype=np.float32))
    np.save(folder / "y.npy", np.zeros(12, dtype=np.int64))
    for names in (["a", "b", "c"], ["x", "y"]):
        np.save(folder / "subject.npy", np.tile(names, 6)[:12])
        pieces = by_subject(open_batches(folder)["all"], tmp_path / "sorted")
        assert sorted(_times_seen(pieces)) == names


def test_a_copy_is_not_used_for_another_order_of_classes(tmp_path: Path) -> None:
    y = np.tile([0, 0, 1], 4)
    data = EmbeddingSet.from_arrays(np.eye(12), np.array(["a", "b"])[y], subject=np.tile(["p", "q"], 6))
    write_embeddings(tmp_path / "data.parquet", data)
    opened = open_batches(tmp_path / "data.parquet")["all"]
    for names in (("a", "b"), ("b", "a")):
        for piece in by_subject(opened.with_classes(names), tmp_path / "sorted"):
            np.testing.assert_array_equal(np.asarray(names)[piece.y], data.labels[piece.X.argmax(axis=1)])


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="holds other files"):
        by_subject(SetBatches(_set(np.tile(["a", "b"], 6)), rows=5), tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_copy_that_lost_a_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.data.whole_subjects._RUN", 12)
    write = whole_subjects._write_run

    def lose_the_first(file: Path, *given: Any) -> None:
        # Another process that is done with the same copy removes it meanwhile.
        write(file, *given)
        if file.name == "run-000001.parquet":
            for ending in (".parquet", ".json"):
                file.with_name(f"run-000000{ending}").unlink()

    monkeypatch.setattr("locum.data.whole_subjects._write_run", lose_the_first)
    with pytest.raises(DataError, match="another process"):
        by_subject(SetBatches(_set(np.tile(["a", "b"], 6)), rows=4), tmp_path / "sorted")
