"""Tables there and back: types, values, and what a matrix of anything becomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import TableCodec, read_adult
from locum.errors import ConfigError, DataError

words = st.text(st.characters(codec="utf-8"), max_size=4)
# As many steps as a float32 between 0 and 1 tells apart.
whole = st.integers(-(2**22), 2**22)
fractions = st.floats(-1e6, 1e6, width=32)


@cache
def columns(rows: int) -> st.SearchStrategy[pd.Series]:
    """A column of one of the kinds that are handled, with or without missing values."""

    def some(values: st.SearchStrategy[object], *dtypes: object, miss: bool = True) -> st.SearchStrategy[pd.Series]:
        cells = values | st.none() if miss else values
        return st.builds(
            lambda v, dtype: pd.Series(v, dtype=dtype),
            st.lists(cells, min_size=rows, max_size=rows),
            st.sampled_from(dtypes),
        )

    def dates(days: list[int], zone: str | None) -> pd.Series:
        return pd.Series(np.array(days, "datetime64[D]").astype("datetime64[ns]")).dt.tz_localize(zone)

    # A few types that the dtype cannot restore exactly in every version of pandas are in tests of their own.
    kinds = pd.CategoricalDtype(["b", "a", "never"], ordered=True)
    return st.one_of(
        some(words, "str", "string[python]", object),
        some(st.booleans(), "boolean", object),
        some(st.booleans(), "bool", miss=False),
        some(st.sampled_from(["a", "b"]), kinds),
        some(whole, "Int64", "Int32", object),
        some(whole, "int64", "int32", miss=False),
        some(st.integers(0, 255), "uint8", "int16", miss=False),
        some(fractions, "float64", "float32", "Float64"),
        st.builds(
            dates,
            st.lists(st.integers(-9999, 9999), min_size=rows, max_size=rows),
            st.sampled_from([None, "UTC", "Asia/Tokyo"]),
        ),
    )


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(1, 6))
    names = draw(st.lists(words, min_size=1, max_size=4, unique=True))
    return pd.DataFrame({name: draw(columns(rows)) for name in names})


def assert_same(found: pd.DataFrame, table: pd.DataFrame) -> None:
    """Equal types, and values: exact but for fractions, which a float32 share of their range rounds."""
    assert list(found.columns) == list(table.columns)
    for name in table.columns:
        want, have = table[name], found[name]
        assert have.dtype == want.dtype
        assert have.isna().tolist() == want.isna().tolist()
        want, have = want.dropna(), have.dropna()
        if pd.api.types.is_float_dtype(want.dtype):
            span = float(np.ptp(want.to_numpy(np.float64))) if len(want) else 0.0
            near = 1e-7 * span + 1e-6 * np.abs(want.to_numpy(np.float64))
            assert (np.abs(have.to_numpy(np.float64) - want.to_numpy(np.float64)) <= near).all()
        else:
            assert have.tolist() == want.tolist()
            assert list(map(type, have)) == list(map(type, want))


@given(tables())
@settings(max_examples=60)
def test_what_was_fitted_comes_back_from_json_too(table: pd.DataFrame) -> None:
    codec = TableCodec.fit(table)
    Z = codec.encode(table)
    assert Z.dtype == np.float32
    assert Z.shape == (len(table), codec.width)
    assert Z.min() >= 0
    assert Z.max() <= 1
    for block in codec.blocks:
        assert sorted(set(Z[:, block].ravel())) in ([0, 1], [1])
        assert (Z[:, block].sum(axis=1) == 1).all()
    assert_same(codec.decode(Z), table)
    again = TableCodec.from_dict(json.loads(json.dumps(codec.to_dict())))
    assert again == codec
    assert_same(again.decode(Z), table)


@given(tables(), st.integers(0, 99), st.booleans())
@settings(max_examples=60)
def test_snap_is_the_long_way_round(table: pd.DataFrame, seed: int, rng: bool) -> None:
    codec = TableCodec.fit(table)
    Z = np.random.default_rng(seed).normal(0.5, 1, size=(9, codec.width)).astype(np.float32)
    rngs = [np.random.default_rng(1) if rng else None for _ in range(3)]
    decoded = codec.decode(Z, rngs[0])
    snapped = codec.snap(Z, rngs[1])
    assert snapped.dtype == np.float32
    assert np.array_equal(snapped, codec.encode(decoded))
    # A valid record stays what it is but for fractions, where float32 may round once more.
    assert_same(codec.decode(snapped, rngs[2]), decoded)


@given(tables(), st.lists(st.integers(0, 5), max_size=4))
@settings(max_examples=30)
def test_parts_make_the_table_that_one_matrix_makes(table: pd.DataFrame, sizes: list[int]) -> None:
    codec = TableCodec.fit(table)
    Z = np.random.default_rng(0).normal(0.5, 1, size=(sum(sizes), codec.width))
    ends = np.cumsum([0, *sizes])
    parts = (Z[a:b] for a, b in pairwise(ends))
    assert_same(codec.decode_parts(parts), codec.decode(Z))


def test_a_case_by_hand() -> None:
    table = pd.DataFrame({"n": [10, 20, 15], "c": ["x", None, "y"], "f": [1.0, np.nan, 3.0], "k": [7, 7, 7]})
    codec = TableCodec.fit(table)
    assert codec.columns == ("n", "c", "f", "k")
    assert codec.width == 1 + 3 + 3 + 1
    assert codec.blocks == (slice(1, 4), slice(5, 7))
    assert codec.encode(table).tolist() == [
        [0, 1, 0, 0, 0, 1, 0, 0],
        [1, 0, 0, 1, 0, 0, 1, 0],
        [0.5, 0, 1, 0, 1, 1, 0, 0],
    ]
    found = codec.decode([[-3, 0.2, 0.9, 0.1, 0.25, 0.6, 0.4, 9], [0.27, 0, 0, 1, 0.5, 0.1, 0.2, -9]])
    assert found["n"].tolist() == [10, 13]
    assert found["c"].tolist()[0] == "y"
    assert found["c"].isna().tolist() == [False, True]
    assert found["f"].tolist()[0] == 1.5
    assert found["f"].isna().tolist() == [False, True]
    assert found["k"].tolist() == [7, 7]


def test_numbers_never_leave_the_fitted_range(rng: np.random.Generator) -> None:
    table = pd.DataFrame(
        {
            "all": np.array([-(2**63), 2**63 - 1]),
            "tiny": np.array([0, 5e-324]),
            "half": np.array([-65504, 0.1], np.float16),
            "odd": [0.1, 0.3],
            "byte": np.array([3, 255], np.uint8),
            "first": pd.to_datetime(["1677-09-22", "2262-04-11"]).as_unit("ns"),
        }
    )
    codec = TableCodec.fit(table)
    found = codec.decode(rng.normal(0.5, 1, size=(2000, codec.width)))
    for name in table:
        assert found[name].dtype == table[name].dtype
        assert found[name].min() == table[name].min()
        assert found[name].max() == table[name].max()
    assert found["all"].nunique() > 500
    assert found["byte"].nunique() > 200
    assert_same(codec.decode(codec.encode(table)), table)


def test_days_stay_days(rng: np.random.Generator) -> None:
    table = pd.DataFrame({"day": pd.to_datetime(["1950-02-03", "2020-03-04", "1999-12-31"])})
    codec = TableCodec.fit(table)
    found = codec.decode(rng.random((500, 1)))["day"]
    assert (found == found.dt.normalize()).all()
    assert found.nunique() > 400


def test_entries_are_drawn_in_proportion(rng: np.random.Generator) -> None:
    codec = TableCodec.fit(pd.DataFrame({"c": ["a", "b", "c", "d"]}))
    row = np.array([[0.2, 5.0, -1.0, 0.8]], np.float32)  # clipped: 0.2, 1, 0, 0.8
    drawn = codec.decode(np.repeat(row, 20_000, axis=0), rng)["c"].value_counts(normalize=True)
    assert set(drawn.index) == {"a", "b", "d"}
    assert drawn["a"] == pytest.approx(0.1, abs=0.01)
    assert drawn["b"] == pytest.approx(0.5, abs=0.015)
    # Without an rng the largest entry counts, also if none is positive.
    assert codec.decode(row)["c"].tolist() == ["b"]
    assert codec.decode([[-3, -1, -2, -2]], rng)["c"].tolist() == ["b"]


def test_columns_are_found_by_name_and_values_whatever_their_type() -> None:
    table = pd.DataFrame({"n": [1, 3], "c": ["a", "b"]})
    codec = TableCodec.fit(table)
    other = pd.DataFrame({"c": pd.Categorical(["b", "a"]), "n": [9.0, 2.2]}, index=[5, 7])
    assert codec.encode(other).tolist() == [[1, 0, 1], [0.5, 1, 0]]
    assert codec.decode(codec.encode(other), index=other.index).index.tolist() == [5, 7]
    assert isinstance(codec.decode(codec.encode(other)).index, pd.RangeIndex)


def test_no_rows_are_no_problem_after_the_fit() -> None:
    table = pd.DataFrame({"n": [1.5, None], "c": ["a", None], "d": pd.to_datetime(["2020-01-01", None])})
    codec = TableCodec.fit(table)
    Z = codec.encode(table.iloc[:0])
    assert Z.shape == codec.snap(Z).shape == (0, codec.width)
    assert codec.decode(Z).dtypes.tolist() == table.dtypes.tolist()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"n": [1], "c": ["secret"]}, "'c' holds a category"),
        ({"n": [1], "c": [["secret"]]}, "'c' holds a category"),
        ({"n": [1], "c": [None]}, "'c' has missing values"),
        ({"n": [np.nan], "c": ["a"]}, "'n' has missing values"),
        ({"n": [np.inf], "c": ["a"]}, "'n' holds infinite"),
        ({"n": ["secret"], "c": ["a"]}, "'n' must hold numbers"),
        ({"n": [1]}, "lacks columns that were fitted: ['c']"),
        ({"n": [1], "c": ["a"], "z": [0]}, "not fitted: ['z']"),
        ({0: [1]}, "names must be text"),
        ({}, "no columns"),
    ],
)
def test_what_does_not_fit_is_named_by_its_column_alone(table: dict[str, list[object]], words: str) -> None:
    codec = TableCodec.fit(pd.DataFrame({"n": [1, 2], "c": ["a", "b"]}))
    with pytest.raises(DataError) as caught:
        codec.encode(pd.DataFrame(table))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("Z", [[[0.0, 1.0]], [0.0, 1.0, 0.0], [[np.nan, 1, 0]], [[0, np.inf, 0]], [["a", "b", "c"]]])
def test_a_matrix_must_fit(Z: object) -> None:
    codec = TableCodec.fit(pd.DataFrame({"n": [1, 2], "c": ["a", "b"]}))
    for use in (codec.decode, codec.snap):
        with pytest.raises(DataError, match="matrix"):
            use(Z)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one entry for each of the 1 rows"):
        codec.decode([[0, 1, 0]], index=pd.Index([1, 2]))


def test_a_table_that_cannot_be_fitted() -> None:
    with pytest.raises(DataError, match="must be a pandas DataFrame; got list"):
        TableCodec.fit([[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="without rows"):
        TableCodec.fit(pd.DataFrame({"a": []}))
    with pytest.raises(DataError, match="same name"):
        TableCodec.fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ConfigError, match="`bounds` names columns that the table does not have"):
        TableCodec.fit(pd.DataFrame({"a": [1]}), bounds={"b": (0, 1)})
    with pytest.raises(ConfigError, match="either `bounds` or `categories`"):
        TableCodec.fit(pd.DataFrame({"a": [1]}), bounds={"a": (0, 1)}, categories={"a": [1]})


def test_adult_has_102_inputs(real_data: Callable[[str], Path], rng: np.random.Generator) -> None:
    table = read_adult(real_data("adult")).drop(columns=["income", "sex"])
    codec = TableCodec.fit(table)
    assert codec.width == 102
    pd.testing.assert_frame_equal(codec.decode(codec.encode(table)), table)
    noisy = codec.encode(table.iloc[:2000]) + rng.normal(0, 0.5, size=(2000, 102)).astype(np.float32)
    assert np.array_equal(codec.snap(noisy), codec.encode(codec.decode(noisy)))
