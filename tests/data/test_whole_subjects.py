"""Pieces with whole subjects: whatever the subjects are written as, and whatever lies in the scratch folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from locum.data import by_subject, open_batches
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
    with pytest.raises(DataError, match="not text"):
        by_subject(SetBatches(_set(np.array(["\ud800", "a"]))), None)
