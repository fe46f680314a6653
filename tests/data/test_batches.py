"""Data in pieces give the records that the whole file gives, and never more than a piece of them at a time."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import gather, open_batches, read_embeddings, read_splits, write_embeddings
from locum.errors import DataError
from locum.types import EmbeddingInfo, EmbeddingSet, SetBatches


def _records(n: int = 600, d: int = 5) -> EmbeddingSet:
    rng = np.random.default_rng(n)
    return EmbeddingSet.from_arrays(
        rng.normal(size=(n, d)),
        rng.choice(["cat", "dog", "emu"], n),
        subject=np.array([f"p{i % 40}" for i in range(n)]),
        attributes={"site": rng.integers(0, 3, n), "sex": rng.choice(["f", "m"], n)},
        info=EmbeddingInfo(backbone="made up", class_names=("dog", "cat", "emu", "fox")),
    )


def _same(one: EmbeddingSet, two: EmbeddingSet) -> None:
    assert one.info == two.info
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.y, two.y)
    assert (one.subject is None) == (two.subject is None)
    if one.subject is not None and two.subject is not None:
        np.testing.assert_array_equal(one.subject, two.subject)
    assert set(one.attributes) == set(two.attributes)
    for name, column in one.attributes.items():
        np.testing.assert_array_equal(column, two.attributes[name])


def _unpack(folder: Path, data: EmbeddingSet) -> None:
    folder.mkdir()
    np.save(folder / "X.npy", data.X)
    np.save(folder / "y.npy", data.y)
    np.save(folder / "class_names.npy", np.array(data.info.class_names))
    np.save(folder / "info.npy", np.array('{"backbone": "made up"}'))
    assert data.subject is not None
    np.save(folder / "subject.npy", data.subject)
    for name, column in data.attributes.items():
        np.save(folder / f"attr_{name}.npy", column)


@pytest.fixture(params=["file.parquet", "file.safetensors", "folder", "unpacked"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, EmbeddingSet]:
    data, place = _records(), tmp_path / request.param
    if request.param == "unpacked":
        _unpack(place, data)
    elif request.param == "folder":
        place.mkdir()
        for k in range(3):
            write_embeddings(place / f"part-{k}.parquet", data.take(range(k * 200, (k + 1) * 200)))
    else:
        write_embeddings(place, data)
    return str(place), data


def test_pieces_and_parts_are_the_records_in_order(stored: tuple[str, EmbeddingSet]) -> None:
    path, data = stored
    batches = open_batches(path)["all"]
    assert (len(batches), batches.dim, batches.has_subjects) == (600, 5, True)
    _same(gather(batches, path), data)
    _same(read_embeddings(path), data)
    # Each part can be read by itself, in another process.
    parts = [gather(pickle.loads(pickle.dumps(part)), path) for part in batches.parts()]  # noqa: S301
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), data.X)


def test_columns_that_nobody_asks_for_are_left_out(stored: tuple[str, EmbeddingSet]) -> None:
    path, data = stored
    lean = open_batches(path)["all"].only(subject=False, attributes=["sex"])
    assert not lean.has_subjects
    assert lean.attribute_names == ("sex",)
    found = gather(lean, path)
    assert found.subject is None
    np.testing.assert_array_equal(found.attributes["sex"], data.attributes["sex"])


def test_codes_follow_the_names_that_are_asked_for(stored: tuple[str, EmbeddingSet]) -> None:
    path, data = stored
    names = ("emu", "fox", "cat", "dog")
    _same(gather(open_batches(path)["all"].with_classes(names), path), data.with_classes(names))
    with pytest.raises(DataError, match="not among the known classes"):
        gather(open_batches(path)["all"].with_classes(("cat", "dog")), path)


def test_a_random_part_is_drawn_from_all_of_the_data(stored: tuple[str, EmbeddingSet]) -> None:
    path, data = stored
    drawn = read_embeddings(f"{path}#[100]")
    assert len(drawn) == 100
    places = [int(np.flatnonzero((row == data.X).all(axis=1))[0]) for row in drawn.X]
    assert places == sorted(set(places))
    assert min(places) < 50
    assert max(places) > 550
    _same(drawn, read_embeddings(f"{path}#[100]"))
    with pytest.raises(DataError, match="one record or more"):
        read_splits(f"{path}#[0]")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["train", "val", "test"]), min_size=1, max_size=60),
    st.integers(1, 20),
    st.sampled_from(["number", "text"]),
)
def test_splits_in_row_groups_of_any_size(tmp_path_factory: Any, splits: list[str], group: int, kind: str) -> None:
    place = tmp_path_factory.mktemp("splits") / "data.parquet"
    n = len(splits)
    labels: npt.NDArray[Any] = np.arange(n) % 3 * 5
    X = np.arange(2.0 * n).reshape(n, 2)
    table = pa.table(
        {
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 2),
            "label": labels if kind == "number" else [f"class {v}" for v in labels],
            "split": splits,
        }
    )
    pq.write_table(table, place, row_group_size=group)
    opened = open_batches(place)
    assert set(opened) == set(splits)
    for name, batches in opened.items():
        mine = np.array(splits) == name
        assert len(batches) == mine.sum()
        found = gather(batches, str(place))
        np.testing.assert_array_equal(found.X, X[mine])
        expected = [str(v) if kind == "number" else f"class {v}" for v in labels[mine]]
        assert found.labels.tolist() == expected


def test_a_table_of_columns_in_pieces(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6], "label": ["x", "y", "x"]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    found = gather(open_batches(tmp_path / "t.parquet")["all"], "t")
    np.testing.assert_array_equal(found.X, np.array([[1, 4], [2, 5], [3, 6]], np.float32))


def test_compressed_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b,label\n1,2,x\n3,4,y\n"))
    assert read_embeddings(tmp_path / "t.csv.gz").X.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "bad.csv.gz").write_bytes(b"a,b,label\n1,2,x\n")
    with pytest.raises(DataError, match=r"bad\.csv\.gz is damaged"):
        read_embeddings(tmp_path / "bad.csv.gz")


def test_data_beyond_the_memory_say_what_they_would_need(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "x.parquet", EmbeddingSet.from_arrays(np.ones((60_000, 400)), np.arange(60_000) % 2))
    program = (
        "import resource, locum.data.batches, pyarrow.parquet, sys\n"
        "from locum.data import read_embeddings\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 200_000_000, -1))\n"
        "try:\n    read_embeddings(sys.argv[1])\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
        "print(len(read_embeddings(sys.argv[1] + '#[10000]')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x.parquet")],
        capture_output=True,
        text=True,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("DataError")
    assert "60,000 vectors of 400 numbers, which take about 0.3 GB of memory" in first
    assert "#[10000]'" in first
    assert second == "10000"


def test_records_in_memory_in_pieces() -> None:
    data = _records(50)
    batches = SetBatches(data, rows=7)
    assert [len(piece) for piece in batches] == [7] * 7 + [1]
    _same(gather(batches, "memory"), data)
    assert gather(batches.only(subject=False), "memory").subject is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["1", "2", "10", "cat", "007", " 3 ", "2.0"]), min_size=1, max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_a_csv_in_pieces_is_the_csv(
    tmp_path_factory: Any, labels: list[str], split: str | None, packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    names = ["train", "test", "val"]
    rows = [
        f"{i},{i / 7},{label},p{i % 4}.0,{'true' if i % 3 else 'false'}{',' + names[i % 3] if split else ''}"
        for i, label in enumerate(labels)
    ]
    header = "a,b,label,subject,attr_x" + (",split" if split else "")
    raw = "\n".join([header, *rows, ""]).encode()
    place = folder / ("t.csv.gz" if packed else "t.csv")
    place.write_bytes(gzip.compress(raw) if packed else raw)
    whole = read_splits(place)
    pieces = open_batches(place)
    assert set(pieces) == set(whole)
    for name, batches in pieces.items():
        _same(gather(batches, "t"), whole[name])
        facts = list(batches.facts())
        assert np.concatenate([fact.y for fact in facts]).tolist() == whole[name].y.tolist()


def test_a_csv_of_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.data.formats.csv._BLOCK", 2000)
    data = _records(500)
    write_embeddings(tmp_path / "t.csv", data)
    pieces = open_batches(tmp_path / "t.csv")["all"]
    assert len(list(pieces)) > 5
    _same(gather(pieces, "t"), read_embeddings(tmp_path / "t.csv"))
    text = (tmp_path / "t.csv").read_text().splitlines()
    text[300] = "x" + text[300]
    (tmp_path / "bad.csv").write_text("\n".join(text))
    with pytest.raises(DataError, match=r"Column `x0` of .* holds text, not numbers"):
        gather(open_batches(tmp_path / "bad.csv")["all"], "t")
    text[300] = "1,2"
    (tmp_path / "bad.csv").write_text("\n".join(text))
    with pytest.raises(DataError, match=r"Row 301 of .* has 2 fields where the header has"):
        open_batches(tmp_path / "bad.csv")
