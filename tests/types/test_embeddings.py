from __future__ import annotations

import numpy as np
import pytest

from locum import EmbeddingInfo, EmbeddingSet
from locum.errors import DataError


def test_labels_become_codes_and_come_back() -> None:
    s = EmbeddingSet.from_arrays(np.eye(3), ["b", "a", "b"], subject=[7, 8, 7], attributes={"sex": ["F", "M", "F"]})
    assert s.y.tolist() == [1, 0, 1]
    assert s.labels.tolist() == ["b", "a", "b"]
    assert s.counts.tolist() == [1, 2]
    part = s.take([2])
    assert part.subject.tolist() == [7]
    assert part.attributes["sex"].tolist() == ["F"]
    assert part.info.class_names == ("a", "b")


def test_arrays_cannot_be_written() -> None:
    s = EmbeddingSet.from_arrays(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match="read-only"):
        s.X[0, 0] = 5


def test_the_caller_s_array_is_left_writable() -> None:
    X = np.eye(3, dtype=np.float32)
    EmbeddingSet.from_arrays(X, [0, 1, 0])
    X[0, 0] = 2


def test_classes_can_be_put_in_another_order() -> None:
    s = EmbeddingSet.from_arrays(np.eye(3), ["b", "a", "b"])
    assert s.with_classes(("b", "c", "a")).y.tolist() == [0, 2, 0]
    with pytest.raises(DataError, match="'b' is not among the known classes"):
        s.with_classes(("a", "c"))


@pytest.mark.parametrize(
    ("X", "labels", "word"),
    [
        ([[1.0, np.nan]], [0], "finite"),
        ([[1.0, np.inf]], [0], "finite"),
        ([[1e300]], [0], "finite"),
        ([1.0, 2.0], [0, 1], "table"),
        (np.zeros((2, 2, 2)), [0, 1], "table"),
        (np.zeros((0, 2)), [], "at least one"),
        (np.zeros((2, 0)), [0, 1], "table"),
        ([["a"]], [0], "numbers"),
        (np.array([[object()]]), [0], "numbers"),
        ([[1.0]], [0, 1], "one label"),
        ([[1.0]], [0.5], "classes, not measurements"),
        ([[1.0]], [np.nan], "missing"),
        ([[1.0]], np.array([object()]), "Python objects"),
        ([[1.0]], [[0, 1]], "one column"),
    ],
)
def test_bad_input_gets_one_sentence(X: object, labels: object, word: str) -> None:
    with pytest.raises(DataError, match=word):
        EmbeddingSet.from_arrays(X, labels)


@pytest.mark.parametrize(("subject", "word"), [([1], "one entry per record"), ([1.5, 2.5], "whole numbers")])
def test_bad_subjects(subject: list, word: str) -> None:
    with pytest.raises(DataError, match=word):
        EmbeddingSet.from_arrays(np.eye(2), [0, 1], subject=subject)


def test_codes_must_have_names() -> None:
    with pytest.raises(DataError, match=r"0\.\.1"):
        EmbeddingSet(np.eye(2), np.array([0, 2]), info=EmbeddingInfo(class_names=("a", "b")))


def test_sources_differ_only_where_both_are_known() -> None:
    a, b = EmbeddingInfo("efflite0", "1", "h"), EmbeddingInfo("efflite0", "1", "other")
    assert not a.same_source(b)
    assert a.same_source(a)
    assert a.same_source(EmbeddingInfo())
