"""Parquet: a column of vectors, or a table of numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locum.data import read_embeddings, read_splits

Refuses = Callable[..., str]

VECTORS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
FIXED = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2)


def save(folder: Path, columns: dict[str, Any], meta: dict[str, str] | None = None, **options: Any) -> Path:
    path = folder / "d.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(meta), path, **options)
    return path


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.int8(), 2)])
@pytest.mark.parametrize("label", ["label", "y", "target", "class", "Label"])
def test_the_only_list_column_is_the_vector(tmp_path: Path, kind: pa.DataType, label: str) -> None:
    data = read_embeddings(save(tmp_path, {"v": pa.array(VECTORS, kind), label: ["b", "a", "b"]}))
    assert data.X.tolist() == VECTORS
    assert data.labels.tolist() == ["b", "a", "b"]


def test_many_row_groups_keep_their_order(tmp_path: Path) -> None:
    rows = np.arange(20.0).reshape(10, 2)
    path = save(tmp_path, {"v": rows.tolist(), "y": list(range(10))}, row_group_size=3)
    np.testing.assert_array_equal(read_embeddings(path).X, rows)


@pytest.mark.parametrize("name", ["embedding", "vector", "X"])
def test_a_known_name_settles_which_list_is_the_vector(tmp_path: Path, name: str) -> None:
    data = read_embeddings(save(tmp_path, {"box": [[9, 9]] * 3, name: VECTORS, "y": [0, 1, 0]}))
    assert data.X.tolist() == VECTORS
    assert not data.attributes


def test_further_columns_become_attributes_or_are_left_out(tmp_path: Path) -> None:
    columns = {
        "embedding": VECTORS,
        "y": [0, 1, 0],
        "patient": ["p", "q", "q"],
        "sex": pa.array(["f", "m", "f"]).dictionary_encode(),
        "age": [40, 50, 60],
        "attr_site": ["a", "b", "c"],
        "score": [0.5, 0.6, 0.7],
        "image": [b"1", b"2", b"3"],
        "__index_level_0__": [5, 6, 7],
    }
    data = read_embeddings(save(tmp_path, columns))
    assert {k: v.tolist() for k, v in data.attributes.items()} == {
        "site": ["a", "b", "c"],
        "sex": ["f", "m", "f"],
        "age": [40, 50, 60],
    }
    assert data.subject is not None
    assert data.subject.tolist() == ["p", "q", "q"]


def test_a_split_column_parts_the_file(tmp_path: Path) -> None:
    columns = {
        "embedding": VECTORS,
        "label": ["x", "y", "z"],
        "split": ["test", "train", "test"],
        "subject": [1, 2, 3],
    }
    sets = read_splits(save(tmp_path, columns))
    assert list(sets) == ["train", "test"]
    assert sets["test"].X.tolist() == [VECTORS[0], VECTORS[2]]
    assert sets["train"].y.tolist() == [1]
    assert sets["test"].subject is not None
    assert sets["test"].subject.tolist() == [1, 3]


def test_metadata_gives_class_names_and_info(tmp_path: Path) -> None:
    meta = {"class_names": '["b", "a"]', "info": '{"backbone": "z"}'}
    data = read_embeddings(save(tmp_path, {"v": VECTORS, "y": [1, 0, 1]}, meta))
    assert data.labels.tolist() == ["a", "b", "a"]
    assert data.info.backbone == "z"


def test_a_table_of_numbers_is_read_as_a_csv_is(tmp_path: Path) -> None:
    columns = {"age": [1, 2], "bp": [0.5, 1.5], "on": [True, False], "attr_sex": ["f", "m"], "outcome": ["x", "y"]}
    data = read_embeddings(save(tmp_path, columns))
    assert data.X.tolist() == [[1, 0.5, 1], [2, 1.5, 0]]
    assert data.labels.tolist() == ["x", "y"]
    assert list(data.attributes) == ["sex"]


def test_whole_numbers_stored_as_fractions_are_subjects(tmp_path: Path) -> None:
    data = read_embeddings(save(tmp_path, {"v": VECTORS, "y": [0.0, 1.0, 0.0], "subject": [1.0, 2.0, 2.0]}))
    assert data.subject is not None
    assert data.subject.tolist() == [1, 2, 2]
    assert data.info.class_names == ("0", "1")


@pytest.mark.parametrize(
    ("columns", "pieces"),
    [
        ({"v": [[1.0], [2.0, 3.0]], "y": [0, 1]}, ["one length", "1 numbers", "record 1 has 2"]),
        ({"v": [[1.0], None], "y": [0, 1]}, ["`v`", "lacks a value", "record 1"]),
        ({"v": [[1.0, 2.0], [1.0, None]], "y": [0, 1]}, ["`v`", "lacks a number", "record 1"]),
        ({"v": [[1.0, np.nan]], "y": [0]}, ["finite"]),
        ({"v": VECTORS}, ["no labels", "label, y, target or class"]),
        ({"y": [0, 1]}, ["labels but no vectors"]),
        ({"a": VECTORS, "b": VECTORS, "y": [0, 1, 0]}, ["several columns of vectors", "a, b", "`embedding`"]),
        ({"v": VECTORS, "y": [0, None, 1]}, ["`y`", "lacks a value", "record 1"]),
        ({"v": VECTORS, "y": [0, 1, 0], "subject": ["a", None, "b"]}, ["`subject`", "lacks a value", "record 1"]),
        ({"v": VECTORS, "y": [0, 1, 0], "subject": [b"a", b"b", b"c"]}, ["`subject`", "text or whole numbers"]),
        ({"v": VECTORS, "y": [0.5, 1, 0]}, ["classes, not measurements"]),
        ({"v": VECTORS, "y": [0, 1, 0], "label": [0, 1, 0]}, ["`y` and `label`", "labels"]),
        ({"v": VECTORS, "y": [0, 1, 0], "split": ["train", "dev", "test"]}, ["train, val or test", "record 1"]),
        ({"v": VECTORS, "y": [0, 1, 0], "sex": ["f"] * 3, "attr_sex": ["f"] * 3}, ["`sex` and `attr_sex`"]),
        ({"v": VECTORS, "y": [0, 1, 0], "patient_nr": [1, 2, 3]}, ["`patient_nr`", "`subject`"]),
        ({"a": ["x", "y"], "b": [1, 2], "y": [0, 1]}, ["`a`", "holds text", "`attr_a`"]),
        ({"a": [0.5, 1.5], "b": [1.5, 2.5]}, ["no labels", "`b`", "fractions"]),
        ({"v": pa.array([], pa.list_(pa.float32())), "y": pa.array([], pa.int64())}, ["no records"]),
        ({"v": [[[1.0]], [[2.0]]], "y": [0, 1]}, ["`v`", "not numbers"]),
        ({"v": [[], []], "y": [0, 1]}, ["`v`", "not numbers"]),
        ({"v": pa.array([[], []], pa.list_(pa.float32())), "y": [0, 1]}, ["table of records by features"]),
    ],
)
def test_each_wrong_content_gets_its_own_sentence(
    tmp_path: Path, refuses: Refuses, columns: dict[str, Any], pieces: list[str]
) -> None:
    refuses(save(tmp_path, columns), *pieces)


def test_broken_text_is_refused(tmp_path: Path, refuses: Refuses) -> None:
    path = save(tmp_path, {"v": VECTORS, "y": ["aaaa", "bbbb", "cccc"]}, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"b\xffbb"))
    refuses(path, "damaged", "Parquet")


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.98])
def test_a_truncated_file_is_refused(tmp_path: Path, refuses: Refuses, keep: float) -> None:
    path = save(tmp_path, {"v": np.random.default_rng(0).random((50, 8)).tolist(), "y": [0, 1] * 25})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    refuses(path, "damaged", "Parquet")
