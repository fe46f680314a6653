"""Tables of mixed columns in CSV and Parquet."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from locum.data import read_frame, write_frame
from locum.errors import DataError


def mixed() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "whole": [3, -1, 10**17],
            "point": [0.1, 1.0, 1e-300],
            "gap": pd.array([1, None, 3], dtype="Int64"),
            "hole": [1.5, np.nan, 2.0],
            "text": ['a "quoted", one', "näive\nline", "x"],
            "code": ["007", "02139", "1"],
            "some": ["a", None, "b"],
            "truth": [True, False, True],
            "maybe": pd.array([True, None, False], dtype="boolean"),
            "day": pd.to_datetime(["2020-01-31", "1999-12-31", "1950-06-01"]),
        }
    )


def test_a_csv_comes_back(tmp_path: Path) -> None:
    write_frame(mixed(), tmp_path / "t.csv")
    found = read_frame(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(found.astype({"day": "datetime64[ns]"}), mixed().astype({"day": "datetime64[ns]"}))


def test_a_parquet_comes_back_with_its_types(tmp_path: Path) -> None:
    table = mixed().assign(
        small=np.array([1, 2, 3], np.int8),
        kind=pd.Categorical(["b", "a", "b"], categories=["b", "a", "never"], ordered=True),
        when=pd.to_datetime(["2020-01-31 12:00", "1999-12-31 00:00", "1950-06-01 01:00"]).tz_localize("Asia/Tokyo"),
    )
    write_frame(table.set_index(np.array([4, 5, 6])), tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_frame(tmp_path / "t.parquet"), table)


def test_a_named_index_of_a_parquet_is_a_column(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="who")).to_parquet(tmp_path / "t.parquet")
    found = read_frame(tmp_path / "t.parquet")
    assert found["who"].tolist() == ["x", "y"]
    assert found.index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", " 2", "-3"], "int64"),
        (["1", "2.5", "-3e2"], "float64"),
        (["1", "NA", "3"], "Int64"),
        (["1.5", "", "3"], "float64"),
        (["true", "False", "TRUE"], "bool"),
        (["true", "", "false"], "boolean"),
    ],
)
def test_types_are_told_by_every_cell(tmp_path: Path, cells: list[str], dtype: str) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{cell},x\n" for cell in cells))
    assert read_frame(tmp_path / "t.csv")["a"].dtype == dtype


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "x"],
        ["007", "1"],
        ["1" * 25, "2"],
        ["2020-02-31", "2020-02-01"],
        ["true", "1"],
        ["inf", "1"],
        ['""', "a"],
    ],
)
def test_whatever_else_is_text(tmp_path: Path, cells: list[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f" {cell} ,x\n" for cell in cells).replace(' "" ', '""'))
    found = read_frame(tmp_path / "t.csv")["a"]
    assert found.tolist() == [cell.strip('"') for cell in cells]


def test_an_empty_column_is_missing_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n,1\n,2\n")
    assert read_frame(tmp_path / "t.csv")["a"].isna().all()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", "a,b\n1,2\n1\n", "Row 3 of .* has 1 fields where the header has 2"),
        ("t.csv", "a;b\n1;2\n", "fewer than two columns"),
        ("t.csv", "a,b\n", "holds no records"),
        ("t.csv", "a,\n1,2\n", "Column 2 of .* has no name"),
        ("t.csv", "a,a\n1,2\n", "names a column twice"),
        ("t.csv", "1,2.5\n1,2\n", "it holds numbers"),
        ("t.csv", "39,State-gov\n50,Private\n", "it holds numbers"),
        ("t.csv", b"a,b\n\xff\xfe,2\n", "damaged, or is not a table"),
        ("t.csv", "", "is empty"),
        ("t.parquet", b"PAR1 no", "damaged, or is not a Parquet file"),
        ("t.xlsx", "a", "not a kind of table"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words):
        read_frame(tmp_path / name)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="There is no file"):
        read_frame(tmp_path / "t.csv")
    with pytest.raises(DataError, match="not a kind of table"):
        read_frame(tmp_path)
    pd.DataFrame(index=[1, 2]).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="must have columns"):
        read_frame(tmp_path / "none.parquet")


def test_a_written_table_is_whole_and_private(tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        write_frame(mixed(), tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    before = (tmp_path / "t.parquet").read_bytes()
    with pytest.raises(DataError, match="mixes kinds") as caught:
        write_frame(pd.DataFrame({"a": [1, "secret"]}), tmp_path / "t.parquet")
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="not valid"):
        write_frame(pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}), tmp_path / "t.csv")
    with pytest.raises(DataError, match="same name"):
        write_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]), tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"use \.csv or \.parquet"):
        write_frame(mixed(), tmp_path / "t.xlsx")
    assert (tmp_path / "t.parquet").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "t.parquet"]
