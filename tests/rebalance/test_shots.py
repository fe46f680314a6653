from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from locum.data import long_tail_counts
from locum.errors import DataError
from locum.metrics import clopper_pearson
from locum.rebalance import accuracy_by_class, accuracy_by_shots, shot_group


def test_groups_are_those_of_the_printed_tables() -> None:
    """CIFAR100-LT falls into 35, 34 and 31 classes (fault F16)."""
    assert Counter(map(shot_group, long_tail_counts(500, 100, ratio=100))) == {"many": 35, "medium": 34, "few": 31}
    assert "few" not in map(shot_group, long_tail_counts(5000, 10, ratio=100))


def test_by_hand() -> None:
    y_train = np.repeat(["a", "b", "c"], [120, 50, 4])
    y_true = np.repeat(["a", "b", "c", "d"], [4, 2, 2, 2])
    y_pred = np.array(["a", "a", "a", "b", "b", "b", "c", "a", "a", "a"])
    found = accuracy_by_shots(y_train, y_true, y_pred)
    assert list(found) == ["overall", "many", "medium", "few"]
    assert found["overall"] == clopper_pearson(6, 10)
    assert found["many"] == clopper_pearson(3, 4)
    assert found["medium"] == clopper_pearson(2, 2)
    # A class that training never saw is one of few shots.
    assert found["few"] == clopper_pearson(1, 4)
    rows = accuracy_by_class(y_train, y_true, y_pred)
    assert [(r.label, r.records, r.shots, r.accuracy.value) for r in rows] == [
        ("a", 120, "many", 0.75),
        ("b", 50, "medium", 1.0),
        ("c", 4, "few", 0.5),
        ("d", 0, "few", 0.0),
    ]


def test_groups_that_the_test_set_lacks_are_left_out() -> None:
    assert list(accuracy_by_shots([0] * 5 + [1] * 200, [0], [0])) == ["overall", "few"]


def test_wrong_input_is_named() -> None:
    with pytest.raises(DataError, match="all text or all numbers"):
        accuracy_by_shots(["0", "1"], [0, 1], [0, 1])
    with pytest.raises(DataError, match="one prediction"):
        accuracy_by_class([0, 1], [0, 1], [0])
    with pytest.raises(DataError, match="1-D"):
        accuracy_by_shots([0, 1], [], [])
