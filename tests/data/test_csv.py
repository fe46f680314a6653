"""CSV tables of measurements or of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locum.data import read_embeddings, read_splits
from locum.data.formats import csv as csv_table

Refuses = Callable[..., str]


def save(folder: Path, text: str | bytes) -> Path:
    path = folder / "d.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("label", ["label", "y", "target", "class", "Class"])
def test_a_named_label_column_is_found_anywhere(tmp_path: Path, label: str) -> None:
    data = read_embeddings(save(tmp_path, f"a,{label},b\n1,x,2.5\n3,z,4\n"))
    assert data.X.tolist() == [[1, 2.5], [3, 4]]
    assert data.labels.tolist() == ["x", "z"]


def test_without_a_name_the_last_column_is_the_label(tmp_path: Path) -> None:
    data = read_embeddings(save(tmp_path, "age,pressure,outcome\n1,2,ill\n3,4,well\n"))
    assert data.labels.tolist() == ["ill", "well"]
    assert data.dim == 2


def test_numbered_columns_are_an_embedding(tmp_path: Path) -> None:
    data = read_embeddings(save(tmp_path, "x0,x1,x2,y\n1,2,3,0\n4,5,6,1\n"))
    assert data.X.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_subject_split_and_attributes(tmp_path: Path) -> None:
    text = "x0,patient_id,split,attr_sex,attr_age,y\n1,007,train,f,40,0\n2,008,test,m,50,1\n3,007,train,f,41,1\n"
    sets = read_splits(save(tmp_path, text))
    train = sets["train"]
    assert train.subject is not None
    assert train.subject.tolist() == ["007", "007"]
    assert train.attributes["sex"].tolist() == ["f", "f"]
    assert train.attributes["age"].tolist() == [40, 41]
    assert sets["test"].y.tolist() == [1]


def test_whole_numbers_sort_as_numbers_and_zeros_in_front_stay(tmp_path: Path) -> None:
    assert read_embeddings(save(tmp_path, "a,y\n1,10\n2,9\n")).info.class_names == ("9", "10")
    assert read_embeddings(save(tmp_path, "a,y\n1,010\n2,9\n")).info.class_names == ("010", "9")
    assert read_embeddings(save(tmp_path, "a,y\n1,1.0\n2,0.0\n")).info.class_names == ("0", "1")


def test_blanks_quotes_line_ends_and_marks_do_no_harm(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf"a" , b,  y\r\n 1, 2, "big, red"\r\n\r\n3 ,4, small \r\n'
    data = read_embeddings(save(tmp_path, text.replace(b', "big', b',"big')))
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.labels.tolist() == ["big, red", "small"]


def test_a_byte_order_mark_does_not_hide_the_label(tmp_path: Path) -> None:
    assert read_embeddings(save(tmp_path, b"\xef\xbb\xbfy,a,b\nill,1,2\nwell,3,4\n")).labels.tolist() == [
        "ill",
        "well",
    ]


def test_a_line_end_inside_quotes_may_meet_the_end_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_table, "_BLOCK", 64)
    path = save(tmp_path, "a,y\n" + '1,"big\nred"\n2,"small\nblue"\n' * 20)
    assert read_embeddings(path).labels.tolist() == ["big\nred", "small\nblue"] * 20


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a,b,y\n1,2,0\n3,,1\n", ["`b`", "lacks a value", "row 3"]),
        ("a,b,y\n1,NA,0\n3,1,1\n", ["`b`", "lacks a value", "row 2"]),
        ("a,b,y\n1,nan,0\n3,1,1\n", ["`b`", "lacks a value", "row 2"]),
        ("a,b,y\n1,2,\n3,1,1\n", ["`y`", "lacks a value", "row 2"]),
        ('a,b,y\n1,2,""\n3,1,1\n', ["`y`", "lacks a value", "row 2"]),
        ("a,y,subject\n1,0,\n3,1,1\n", ["`subject`", "lacks a value", "row 2"]),
        ("a,y,attr_s\n1,0,f\n3,1,\n", ["`attr_s`", "lacks a value", "row 3"]),
        ("a,b,y\n1,inf,0\n3,1,1\n", ["finite", "record 0"]),
        ("a,sex,y\n1,f,0\n3,m,1\n", ["`sex`", "holds text", "`attr_sex`"]),
        ("a,day,y\n1,2020-01-01,0\n3,2020-01-02,1\n", ["`day`", "dates or times", "`attr_day`"]),
        ("x0,x1,x2\n1,2,3\n4,5,6\n", ["vectors but no labels", "`label`"]),
        ("a,b\n0.5,1.5\n1.5,2.5\n", ["no labels", "`b`", "fractions"]),
        ("a,b,subject\n1,2,1\n3,4,2\n", ["vectors but no labels"]),
        ("y,attr_sex\n0,f\n1,m\n", ["labels but no vectors"]),
        ("a,y\n1,0.5\n2,1\n", ["classes, not measurements"]),
        ("a,y,label\n1,0,0\n2,1,1\n", ["`y` and `label`", "labels"]),
        ("a,subject,patient,y\n1,1,1,0\n2,2,2,1\n", ["`subject` and `patient`", "subjects"]),
        ("a,Patient Number,y\n1,1,0\n2,2,1\n", ["`Patient Number`", "`subject`"]),
        ("a,a,y\n1,1,0\n2,2,1\n", ["two columns called `a`"]),
        ("a;b;y\n1;2;0\n", ["fewer than two columns", "commas"]),
        (",a,y\n0,1,0\n1,2,1\n", ["Column 1", "no name", "index=False"]),
        ("a,y\n", ["a header but no records"]),
        ("\n", ["fewer than two columns"]),
        ("a,y,split\n1,0,train\n2,1,holdout\n", ["train, val or test", "row 3"]),
        (b"a,y\n1,\xff\xfe\n", ["damaged", "UTF-8"]),
        (b"\xff\xfea,y\n1,0\n", ["damaged", "UTF-8"]),
    ],
)
def test_each_wrong_table_gets_its_own_sentence(
    tmp_path: Path, refuses: Refuses, text: str | bytes, pieces: list[str]
) -> None:
    refuses(save(tmp_path, text), *pieces)


def test_a_table_without_header_is_refused_and_no_entry_is_shown(tmp_path: Path, refuses: Refuses) -> None:
    for text in ("39,Meier,17.5,0\n40,Huber,3.5,1\n", "1,2,3\n4,5,6\n", "0,1,2\n4,5,6\n"):
        shown = refuses(save(tmp_path, text), "must name the columns", "header row")
        assert "Meier" not in shown


def test_running_numbers_are_names_beside_a_label(tmp_path: Path) -> None:
    assert read_embeddings(save(tmp_path, "0,1,label\n5,6,a\n7,8,b\n")).dim == 2


def test_a_truncated_table_names_the_row_and_no_entry(tmp_path: Path, refuses: Refuses) -> None:
    shown = refuses(save(tmp_path, "a,b,y\n1,2,0\n3,4,1\n5,Meier"), "Row 4", "2 fields", "has 3", "cut off")
    assert "Meier" not in shown


def test_a_row_with_too_many_fields_is_named(tmp_path: Path, refuses: Refuses) -> None:
    refuses(save(tmp_path, "a,y\n1,2\n3,4,1\n5,6\n"), "Row 3", "3 fields", "has 2")


def test_a_value_too_large_for_float32_is_refused(tmp_path: Path, refuses: Refuses) -> None:
    refuses(save(tmp_path, "a,y\n1,0\n1e300,1\n"), "finite", "record 1")


def test_a_wide_and_long_table_equals_numpy_reading(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 200)).astype(np.float32)
    head = ",".join(f"f{j}" for j in range(200))
    rows = [",".join(repr(float(v)) for v in row) + f",{i % 3}" for i, row in enumerate(X)]
    path = save(tmp_path, "\n".join([head + ",y", *rows]))
    np.testing.assert_array_equal(read_embeddings(path).X, np.loadtxt(path, delimiter=",", skiprows=1)[:, :-1])
