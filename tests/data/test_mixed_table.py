"""Tables as they are kept: gaps, text, and a column that names the site."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import read_embeddings, read_table
from locum.errors import DataError

DATA = Path(os.environ.get("LOCUM_DATA", "nowhere"))


def write(folder: Path, text: str, name: str = "table.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_table_of_numbers_is_read_like_any_other(tmp_path: Path) -> None:
    file = write(tmp_path, "a,b,attr_sex,label\n1,2.5,f,x\n3,-4,m,y\n5,1e3,f,x\n")
    table, plain = read_table(file), read_embeddings(file)
    found = table.splits["all"]
    np.testing.assert_array_equal(found.X, plain.X)
    np.testing.assert_array_equal(found.labels, plain.labels)
    np.testing.assert_array_equal(found.attributes["sex"], plain.attributes["sex"])
    assert table.ranges == {"a": (1.0, 5.0), "b": (-4.0, 1000.0)}
    assert (table.gaps, table.texts, table.declared) == (0, (), False)


@pytest.mark.parametrize("gap", ["", "?", "NA", "nan", " ", "N/A"])
def test_a_gap_is_the_middle_of_its_range(tmp_path: Path, gap: str) -> None:
    table = read_table(write(tmp_path, f"a,b,y\n1,7,0\n{gap},8,1\n5,9,0\n"))
    assert table.splits["all"].X.tolist() == [[1, 7], [3, 8], [5, 9]]
    assert table.gaps == 1
    # Whitened by the ranges, the gap says nothing.
    assert table.reference().whiten(table.splits["all"].X)[1, 0] == 0


def test_text_becomes_one_feature_per_value(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "blood,a,y\nB,1,0\n A ,2,1\n,3,0\nB,4,1\n"))
    assert list(table.ranges) == ["blood=A", "blood=B", "a"]
    assert table.splits["all"].X[:, :2].tolist() == [[0, 1], [1, 0], [0, 0], [0, 1]]
    assert table.texts == ("blood",)


def test_a_column_becomes_an_attribute(tmp_path: Path) -> None:
    file = write(tmp_path, "site,a,y\nrome,1,0\noslo,2,1\n")
    found = read_table(file, attributes=["site"]).splits["all"]
    assert found.attributes["site"].tolist() == ["rome", "oslo"]
    assert found.X.tolist() == [[1], [2]]
    file = write(tmp_path, "attr_site,a,y\nrome,1,0\noslo,2,1\n")
    assert read_table(file, attributes=["site"]).splits["all"].attributes["site"].tolist() == ["rome", "oslo"]


def test_declared_ranges_hide_those_of_the_records(tmp_path: Path) -> None:
    file = write(tmp_path, "a,b,y\n1,,0\n5,9,1\n")
    table = read_table(file, ranges={"b": (0, 20), "a": (0, 100)})
    assert table.ranges == {"a": (0, 100), "b": (0, 20)}
    assert table.splits["all"].X.tolist() == [[1, 10], [5, 9]]
    reference = table.reference()
    np.testing.assert_allclose(reference.mean, [50, 10])
    np.testing.assert_allclose(reference.scale, [25, 5])
    assert "declared" in reference.source


def test_a_feature_that_never_changes_has_a_range_too(tmp_path: Path) -> None:
    reference = read_table(write(tmp_path, "a,b,y\n3,,0\n3,,1\n")).reference()
    assert np.isfinite(reference.whiten([[3, 0]])).all()
    assert reference.whiten([[3, 0]]).tolist() == [[0, 0]]


def test_splits_are_kept(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,split,label\n1,train,x\n,test,y\n3,train,y\n"))
    assert {name: part.X.tolist() for name, part in table.splits.items()} == {"train": [[1], [3]], "test": [[2]]}


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("a,y\n1,0\n", {"attributes": ["site"]}, "has no column `site`: name one that it has .a, y."),
        ("a,y\n1,0\n", {"attributes": ["y"]}, "is the label"),
        ("a,b,y\n1,2,0\n", {"ranges": {"a": (0, 1)}}, "no range for `b`"),
        ("a,y\n1,0\n", {"ranges": {"a": (0, 1), "c": (0, 1)}}, "range for `c`, which is not a feature"),
        ("a,y\nx,0\n", {"ranges": {"a": (0, 1)}}, "holds text"),
        ("a,y\n1,0\n2,\n", {}, "the label, lacks a value in row 3"),
        ("a,num\n1,0\n2,\n", {}, "the last column, which is taken for the label, lacks a value in row 3"),
        ("a,y\n", {}, "no records"),
        ("y\n1\n", {}, "fewer than two columns"),
        ("a,y\n" + "".join(f"n{i},0\n" for i in range(60)), {}, "more than 50 different texts"),
        ("a,patient_nr,y\n1,2,0\n", {}, "whom a record belongs to"),
        ("a,y\n1e300,0\n", {}, "finite"),
        ("a,y\n1,0,3\n", {}, "3 fields where the header has 2"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, text: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(DataError, match=word) as caught:
        read_table(write(tmp_path, text), **options)
    assert "\n" not in str(caught.value)


Cell = st.none() | st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda v: round(v, 3))


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.tuples(Cell, Cell), min_size=1, max_size=8))
def test_it_agrees_with_a_naive_reader(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, Any]]) -> None:
    file = tmp_path_factory.mktemp("t") / "t.csv"
    with file.open("w", newline="") as stream:
        out = csv.writer(stream)
        out.writerow(["a", "b", "y"])
        out.writerows([*("" if v is None else v for v in row), i % 2] for i, row in enumerate(rows))
    table = read_table(str(file))
    for j, name in enumerate("ab"):
        known = [row[j] for row in rows if row[j] is not None] or [0.0]
        assert table.ranges[name] == (min(known), max(known))
        middle = (min(known) + max(known)) / 2
        expected = np.float32([middle if row[j] is None else row[j] for row in rows])
        np.testing.assert_array_equal(table.splits["all"].X[:, j], expected)
    assert table.gaps == sum(v is None for row in rows for v in row)


@pytest.mark.skipif(not (DATA / "heart4.csv").is_file(), reason="needs the table of four hospitals")
def test_four_hospitals() -> None:
    table = read_table(str(DATA / "heart4.csv"), attributes=["site"])
    found = table.splits["all"]
    assert found.X.shape == (920, 13)
    assert found.info.class_names == ("0", "1", "2", "3", "4")
    assert len(set(found.attributes["site"].tolist())) == 4
    # As many as there are empty cells in the file.
    with (DATA / "heart4.csv").open() as stream:
        assert table.gaps == sum(cell == "" for row in csv.reader(stream) for cell in row)
