"""What the receiver needs, as codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from locum.errors import DataError
from locum.obfuscate.labels import UtilityLabels


@pytest.mark.parametrize(
    "utility",
    [["no", "yes", "no"], np.array(["no", "yes", "no"]), pd.Series(["no", "yes", "no"], name="smokes")],
)
def test_one_attribute_in_any_shape(utility: object) -> None:
    labels = UtilityLabels.fit(utility)
    assert labels.values == (("no", "yes"),)
    assert labels.codes(utility).tolist() == [[0], [1], [0]]


def test_several_attributes_go_by_name() -> None:
    frame = pd.DataFrame({"a": [3, 1, 3], "b": ["x", "y", "y"]})
    labels = UtilityLabels.fit(frame)
    assert (labels.names, labels.sizes) == (("a", "b"), (2, 2))
    assert labels.codes(frame[["b", "a"]]).tolist() == [[1, 0], [0, 1], [1, 1]]
    assert labels.codes({"a": [1], "b": ["x"]}).tolist() == [[0, 0]]


def test_truth_values_and_whole_floats_are_numbers() -> None:
    labels = UtilityLabels.fit([True, False])
    assert labels.codes([1, 0]).tolist() == [[1], [0]]
    assert labels.codes([1.0, 0.0]).tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("utility", "words"),
    [
        (["no", "no"], "same value in all"),
        ([0.5, 1.0], "not whole"),
        ([float("nan"), 1.0], "missing"),
        (np.array(["a", None], dtype=object), "missing values"),
        (np.zeros((2, 2, 2)), "one value per record"),
    ],
)
def test_bad_labels_are_told_in_a_sentence(utility: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        UtilityLabels.fit(utility)


def test_a_new_value_is_refused_and_not_named() -> None:
    labels = UtilityLabels.fit(["no", "yes"])
    with pytest.raises(DataError, match="was not there") as caught:
        labels.codes(["secret"])
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="got 2"):
        labels.codes({"a": ["no"], "b": ["no"]})


def test_text_where_numbers_were_fitted_is_told() -> None:
    with pytest.raises(DataError, match="whole numbers; got text"):
        UtilityLabels.fit([0, 1]).codes(["a", "b"])
