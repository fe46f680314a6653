"""What cannot be learned from is named before training starts."""

from __future__ import annotations

import numpy as np
import pytest

from locum.data import check_trainable
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo, EmbeddingSet


def with_labels(labels: list[str], names: tuple[str, ...] = ()) -> EmbeddingSet:
    return EmbeddingSet.from_arrays(np.ones((len(labels), 2)), labels, info=EmbeddingInfo(class_names=names))


def test_two_classes_of_two_pass_and_so_does_an_empty_class() -> None:
    check_trainable(with_labels([*"aabb"]))
    check_trainable(with_labels([*"aabb"], ("a", "empty", "b")))
    check_trainable(with_labels([*"ab"]), min_per_class=1)


def test_one_class_is_refused() -> None:
    with pytest.raises(DataError, match=r"All 3 records belong to one class, 'a'.*two classes"):
        check_trainable(with_labels([*"aaa"], ("a", "b")))


def test_a_class_with_one_record_is_named_with_its_remedy() -> None:
    with pytest.raises(DataError, match=r"Class 'rare' has 1 record; at least 2 are needed: add records, merge"):
        check_trainable(with_labels(["a", "a", "rare"]))


def test_the_least_number_can_be_raised() -> None:
    with pytest.raises(DataError, match=r"'a' has 2 records; at least 3 are needed \(2 classes are too small\)"):
        check_trainable(with_labels([*"aabb"]), min_per_class=3)
    with pytest.raises(ConfigError, match="`min_per_class`"):
        check_trainable(with_labels([*"aabb"]), min_per_class=0)
