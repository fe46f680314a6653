"""Class codes that agree between splits, whatever labels are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.data import RawSplit, assemble
from locum.data.formats.assemble import info_from_json, info_to_json
from locum.types import EmbeddingInfo


def raw(labels: Any) -> RawSplit:
    column = np.asarray(labels)
    return RawSplit(np.ones((len(column), 2)), column)


@given(st.lists(st.integers(-5, 12), min_size=1), st.lists(st.integers(-5, 12), min_size=1))
def test_codes_agree_and_whole_numbers_sort_as_numbers(train: list[int], test: list[int]) -> None:
    sets = assemble({"train": raw(train), "test": raw(test)}, "f", EmbeddingInfo())
    names = tuple(str(v) for v in sorted({*train, *test}))
    for name, labels in (("train", train), ("test", test)):
        assert sets[name].info.class_names == names
        assert sets[name].labels.tolist() == [str(v) for v in labels]


@pytest.mark.parametrize(
    ("train", "test", "names"),
    [
        (np.array([1, 2], np.uint64), np.array([3, -1], np.int8), ("-1", "1", "2", "3")),
        (np.array([1.0, 2.0]), np.array([2, 3]), ("1", "2", "3")),
        (np.array([b"a", b"b"]), np.array(["b", "c"]), ("a", "b", "c")),
        (np.array([1, 2]), np.array(["2", "x"]), ("1", "2", "x")),
        (np.array([True, False]), np.array([2, 3]), ("2", "3", "False", "True")),
        (np.array([True, False]), np.array([True, True]), ("False", "True")),
    ],
)
def test_kinds_of_labels_may_differ_between_splits(train: Any, test: Any, names: tuple[str, ...]) -> None:
    sets = assemble({"train": raw(train), "test": raw(test)}, "f", EmbeddingInfo())
    assert sets["train"].info.class_names == sets["test"].info.class_names == names


def test_whole_numbers_are_codes_where_names_are_given() -> None:
    sets = assemble({"all": raw([[1], [0]])}, "f", EmbeddingInfo(), ("no", "yes"))
    assert sets["all"].labels.tolist() == ["yes", "no"]


def test_info_goes_to_text_and_back() -> None:
    info = EmbeddingInfo("b", "r", "é\n")
    assert info_from_json(info_to_json(info), "f") == info
    assert info_from_json(None, "f") == EmbeddingInfo()
