"""Columns: what is learned, what is set as public, and what an untrusted file may not say."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from locum.data import TableCodec
from locum.errors import ConfigError, DataError, FormatError

TABLE = pd.DataFrame(
    {"n": [3, 5], "x": [0.5, 2.5], "c": ["a", "b"], "d": pd.to_datetime(["2020-01-01", "2021-01-01"])}
)


def test_public_bounds_take_the_place_of_real_values() -> None:
    codec = TableCodec.fit(TABLE, bounds={"n": (0, 100), "x": (0, 1), "d": ("1900-01-01", "2100-01-01")})
    text = str(codec.to_dict())
    for number in ("'low': 3", "'high': 5", "2.5"):
        assert number in str(TableCodec.fit(TABLE).to_dict())
        assert number not in text
    assert codec.encode(TABLE)[1, :2].tolist() == [np.float32(0.05), 1]
    found = codec.decode([[1, 0.25, 1, 0, 1]])
    assert found["n"].tolist() == [100]
    assert found["x"].tolist() == [0.25]
    assert found["d"].tolist() == [pd.Timestamp("2100-01-01")]


def test_public_categories_need_not_be_seen() -> None:
    codec = TableCodec.fit(TABLE, categories={"c": ["b", "z", "a", None], "n": [5, 4, 3], "x": [0, 0.5, 2.5]})
    found = codec.decode(codec.encode(TABLE))
    pd.testing.assert_frame_equal(found, TABLE)
    assert codec.width == 3 + 3 + 4 + 1
    assert codec.encode(TABLE.assign(c=["z", None]))[:, 6:10].tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_categories_of_a_type_are_all_kept() -> None:
    kinds = pd.CategoricalDtype([3, 1, 2], ordered=True)
    table = pd.DataFrame({"c": pd.Series([1, 3, None], dtype=kinds)})
    codec = TableCodec.fit(table)
    assert codec.width == 4
    pd.testing.assert_frame_equal(codec.decode(codec.encode(table)), table)
    assert codec.decode([[0, 0, 1, 0]])["c"].tolist() == [2]


def test_the_order_of_categories_does_not_tell_who_came_first() -> None:
    names = ["b", "c", "a"]
    codecs = [TableCodec.fit(pd.DataFrame({"c": order})) for order in (names, names[::-1])]
    assert codecs[0] == codecs[1]


@pytest.mark.parametrize(
    "values",
    [
        [1, "a"],
        [True, 1],
        [[1], [2]],
        [datetime.date(2020, 1, 1), None],
        [float("inf"), 1.0],
    ],
)
def test_objects_must_be_of_one_plain_kind(values: list[Any]) -> None:
    with pytest.raises(DataError, match="Column 'o'"):
        TableCodec.fit(pd.DataFrame({"o": pd.Series(values, dtype=object)}))


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1j]),
        pd.to_timedelta(pd.Series([1])),
        pd.Series(pd.interval_range(0, 2)),
        pd.Series(pd.interval_range(0, 2)).astype("category"),
        pd.Series(pd.period_range("2020", periods=2, freq="D")),
        pd.Series([2**63], dtype="uint64"),
        pd.Series([np.inf]),
        pd.Series([-1e308, 1e308]),
    ],
)
def test_columns_of_other_kinds_are_refused(series: pd.Series) -> None:
    with pytest.raises(DataError, match=r"^Column 'o'"):
        TableCodec.fit(pd.DataFrame({"o": series}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bounds": {"c": (0, 1)}}, "for numbers and times"),
        ({"bounds": {"n": (5, 3)}}, "lower and an upper bound"),
        ({"bounds": {"n": (0.5, 3)}}, "two values of its type"),
        ({"bounds": {"n": ("a", 3)}}, "two values of its type"),
        ({"bounds": {"n": (1, 2, 3)}}, "two values of its type"),
        ({"bounds": {"n": (0, 2**63)}}, "lower and an upper bound"),
        ({"bounds": {"x": (0, float("nan"))}}, "lower and an upper bound"),
        ({"bounds": {"d": ("soon", "later")}}, "two values of its type"),
        ({"categories": {"c": ["a", "a", "b"]}}, "lists a category twice"),
        ({"categories": {"c": ["a", 1]}}, "one kind"),
        ({"categories": {"n": ["a", "b"]}}, "type cannot hold"),
        ({"categories": {"c": []}}, "has no category"),
        ({"categories": {"n": [3, 5, None]}}, "no room for missing"),
        ({"categories": {"d": [1]}}, "cannot be set for column 'd'"),
    ],
)
def test_public_settings_are_checked(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TableCodec.fit(TABLE, **settings)


def test_a_category_that_is_not_listed_is_not_quoted() -> None:
    with pytest.raises(DataError) as caught:
        TableCodec.fit(pd.DataFrame({"c": ["known", "secret"]}), categories={"c": ["known"]})
    assert "'c'" in str(caught.value)
    assert "secret" not in str(caught.value)


NUMBER = {"kind": "number", "name": "n", "dtype": "int64", "low": 0, "high": 9, "missing": False, "step": 1}
CATEGORY = {
    "kind": "category",
    "name": "c",
    "dtype": "object",
    "values": ["a"],
    "missing": True,
    "of": "",
    "ordered": False,
}


def test_the_facts_below_are_right_as_they_stand() -> None:
    assert TableCodec.from_dict({"columns": [NUMBER, CATEGORY]}).columns == ("n", "c")


@pytest.mark.parametrize(
    "facts",
    [
        None,
        [],
        {},
        {"columns": []},
        {"columns": [NUMBER], "more": 1},
        {"columns": {"n": NUMBER}},
        {"columns": [NUMBER, NUMBER]},
        {"columns": [None]},
        {"columns": [{**NUMBER, "kind": "pickle"}]},
        {"columns": [{**NUMBER, "kind": []}]},
        *({"columns": [{**NUMBER, **wrong}]} for wrong in [
            {"more": 1},
            {"name": 1},
            {"name": "\ud800"},
            {"low": "0"},
            {"low": True},
            {"low": 0.0},
            {"low": 10},
            {"high": 2**63},
            {"dtype": "int128"},
            {"dtype": "object"},
            {"dtype": "int8", "high": 300},
            {"dtype": "float64"},
            {"dtype": "float64", "low": 0.0, "high": float("nan")},
            {"dtype": "float64", "low": -1e308, "high": 1e308},
            {"dtype": "datetime64[ns, Nowhere/None]"},
            {"dtype": "datetime64[D]"},
            {"dtype": "datetime64[s]", "low": -(2**63)},
            {"missing": True},
            {"missing": 0},
            {"step": 0},
            {"step": 4},
            {"step": 2**64},
        ]),
        *({"columns": [{**CATEGORY, **wrong}]} for wrong in [
            {"values": []} | {"missing": False},
            {"values": "a"},
            {"name": "\ud800"},
            {"values": ["a", "a"]},
            {"values": ["a", 1]},
            {"values": [None]},
            {"values": [["a"]]},
            {"values": [float("inf")]},
            {"dtype": "bool", "values": [True]},
            {"dtype": "int64", "values": [2**70], "missing": False},
            {"dtype": "str", "values": [1]},
            {"dtype": "category"},
            {"dtype": "category", "of": "category"},
            {"dtype": "category", "of": "float16", "values": [1.0]},
            {"dtype": "float32", "values": [1e300]},
            {"dtype": "float32", "values": [0.1]},
            {"values": ["\ud800"]},
            {"dtype": "datetime64[ns]"},
            {"dtype": "V8"},
            {"of": "str"},
            {"ordered": True},
        ]),
    ],
)  # fmt: skip
def test_an_untrusted_dict_is_checked(facts: Any) -> None:
    with pytest.raises(FormatError, match="table codec") as caught:
        TableCodec.from_dict(facts)
    assert str(caught.value).count(". ") == 0


KNOWN = [
    "object",
    "str",
    "string[python]",
    "string[pyarrow]",
    "bool",
    "boolean",
    "category",
    "int8",
    "uint64",
    "Int16",
    "float16",
    "float32",
    "Float64",
]


@pytest.mark.parametrize("dtype", [*KNOWN, "datetime64[s]", "datetime64[ns, Europe/Berlin]"])
@pytest.mark.parametrize("values", [[], ["a", "ß"], [True], [1, 2], [0.5, -1.0]])
@pytest.mark.parametrize("missing", [True, False])
def test_facts_that_pass_give_tables(dtype: str, values: list[Any], missing: bool) -> None:
    """Any untrusted dict is either refused at once or works."""
    of = KNOWN if dtype == "category" else [""]
    columns: list[dict[str, Any]] = [
        {**CATEGORY, "dtype": dtype, "values": values, "missing": missing, "of": kind} for kind in of
    ]
    if len(values) == 2 and isinstance(values[0], int | float):
        columns.append({**NUMBER, "dtype": dtype, "low": min(values), "high": max(values), "missing": missing})
    for column in columns:
        try:
            codec = TableCodec.from_dict({"columns": [column]})
        except FormatError:
            continue
        Z = np.random.default_rng(0).random((20, codec.width))
        assert np.array_equal(codec.encode(codec.decode(Z)), codec.snap(Z))


@pytest.mark.parametrize("field", sorted(NUMBER))
def test_no_field_may_be_left_out(field: str) -> None:
    with pytest.raises(FormatError):
        TableCodec.from_dict({"columns": [{k: v for k, v in NUMBER.items() if k != field}]})
