"""Declared columns: every value has one cell that depends on nothing else, and values drawn from a cell lie in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import DataError, FormatError
from locum.generate.table import CategoryColumn, NumberColumn, TableDomain

COLUMNS = (
    CategoryColumn("text", ("a", "b", "1"), other="rest", missing=True),
    CategoryColumn("code", (3, 1, 2), missing=True),
    CategoryColumn("truth", (False, True), missing=True),
    NumberColumn.within("age", 0, 120, whole=True, missing=True),
    NumberColumn.within("gain", -5, 99_999, whole=True, special=(0,), missing=True),
    NumberColumn("dose", (0.0, 0.5, 2.0, 10.0), special=(0.0, 2.0), missing=True),
)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_values_drawn_from_a_cell_lie_in_it(column: Any) -> None:
    codes = np.repeat(np.arange(column.cells), 50)
    drawn = column.draw(codes, np.random.default_rng(0))
    assert column.codes(drawn).tolist() == codes.tolist()
    # As text, the way a file holds them.
    text = pd.Series([None if pd.isna(value) else str(value) for value in drawn], dtype=object)
    if not (isinstance(column, NumberColumn) and not column.whole):
        assert column.codes(text).tolist() == codes.tolist()


@settings(max_examples=100, deadline=None)
@given(number=st.floats(-1e6, 1e6), whole=st.booleans())
def test_a_number_is_in_the_cell_whose_edges_it_lies_between(number: float, whole: bool) -> None:
    column = NumberColumn.within("x", -1000, 1000, whole=whole)
    value = float(np.floor(number)) if whole else number
    cell = int(column.codes(pd.Series([value]))[0])
    inside = min(max(value, -1000), 1000)
    last = cell == len(column.edges) - 2
    assert column.edges[cell] <= inside
    assert inside < column.edges[cell + 1] or last


texts = st.sampled_from(["a", "b", "1", "01", "1.0", "x", "", "True"])


@settings(max_examples=100, deadline=None)
@given(cells=st.lists(st.one_of(texts, st.booleans(), st.integers(0, 3), st.none()), min_size=1, max_size=8))
def test_the_cell_of_a_value_does_not_depend_on_others(cells: list[Any]) -> None:
    """In a common array, or by equality, one entry could change what others are."""
    column = CategoryColumn("text", ("a", "b", "1", "True"), other="rest", missing=True)
    alone = [int(column.codes(pd.Series([cell], dtype=object))[0]) for cell in cells]
    assert column.codes(pd.Series(cells, dtype=object)).tolist() == alone


def test_undeclared_and_missing_values_are_refused_without_showing_them() -> None:
    strict = CategoryColumn("job", ("cook",))
    for series in (pd.Series(["Alice"]), pd.Series([["cook"]])):
        with pytest.raises(DataError, match="does not declare") as caught:
            strict.codes(series)
        assert "Alice" not in str(caught.value)
    with pytest.raises(DataError, match="missing"):
        strict.codes(pd.Series(["cook", None]))
    with pytest.raises(DataError, match="does not declare"):
        NumberColumn.within("age", 0, 9, whole=True).codes(pd.Series(["old"]))


def test_ordered_cells_put_a_special_value_before_its_range() -> None:
    assert NumberColumn("x", (-10, 0, 10), special=(0,)).ordered == (0, 2, 1)
    assert NumberColumn("x", (-10, 0, 10), special=(10,), missing=True).ordered == (0, 2, 1)


def test_a_domain_survives_a_file(tmp_path: Path) -> None:
    domain = TableDomain(COLUMNS)
    file = tmp_path / "domain.json"
    file.write_text(json.dumps(domain.to_dict()))
    assert TableDomain.from_file(file) == domain


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {"columns": {}},
        {"columns": {"a": {"values": [1]}}},
        {"columns": {"a": {"values": [1]}, "b": {}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": []}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": [1, "x"]}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": [1, 1]}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": [True, 1]}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": [1.5]}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": ["x"], "other": "x"}}},
        {"columns": {"a": {"values": [1]}, "b": {"values": ["x" * 1000]}}},
        {"columns": {"a": {"values": [1]}, "b": {"low": 3, "high": 1}}},
        {"columns": {"a": {"values": [1]}, "b": {"low": 0, "high": 1e300}}},
        {"columns": {"a": {"values": [1]}, "b": {"low": 0, "high": float("nan")}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 0]}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 1.5], "whole": True}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 1], "special": [7]}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 1], "whole": "yes"}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 1], "missing": 1}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": list(range(500))}}},
        {"columns": {"a": {"values": [1]}, "b": {"edges": [0, 1], "more": 1}}},
        {"columns": {"a": {"values": [1]}, "b": 7}},
        {"columns": {"a": {"values": [1]}, "b\n": {"values": [1]}}},
        {"columns": {str(i): {"values": [1]} for i in range(100)}},
    ],
)
def test_what_is_no_domain_is_refused(facts: Any) -> None:
    with pytest.raises(FormatError):
        TableDomain.from_dict(facts)


@pytest.mark.parametrize(
    "text", ["", "{", '{"columns": {"a": {"values": [1]}, "a": {"values": [2]}}}', "[" * 100_000]
)
def test_a_file_that_is_no_domain_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "domain.json").write_text(text)
    with pytest.raises(FormatError):
        TableDomain.from_file(tmp_path / "domain.json")
    with pytest.raises(FormatError, match="cannot be read"):
        TableDomain.from_file(tmp_path / "nowhere.json")


def test_the_domain_of_a_frame_declares_what_it_shows() -> None:
    frame = pd.DataFrame(
        {"n": ["3", "500", None], "job": ["cook", "nurse", "cook"], "x": [0.5, 2.0, 1.0], "y": [7, 9, 7]}
    )
    domain = TableDomain.from_frame(frame, categories=["y"], rare={"job": frozenset({"nurse"})})
    n, job, x, y = domain.columns
    assert (n.edges[0], n.edges[-1], n.whole, n.missing) == (3, 501, True, True)  # type: ignore[union-attr]
    assert (job.values, job.other) == (("cook",), "other")  # type: ignore[union-attr]
    assert (x.edges[0], x.edges[-1], x.whole) == (0.5, 2.0, False)  # type: ignore[union-attr]
    assert y.values == (7, 9)  # type: ignore[union-attr]
    assert domain.codes(frame).shape == (3, 4)
    with pytest.raises(DataError, match="does not declare"):
        domain.codes(frame.assign(more=1))
    with pytest.raises(DataError, match="lacks"):
        domain.codes(frame.drop(columns=["x"]))
