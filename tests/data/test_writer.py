"""What is written comes back, whole or not at all."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from locum.data import files as writer, load_sample, read_embeddings, write_embeddings as write
from locum.errors import DataError
from locum.types import EmbeddingInfo, EmbeddingSet

EXACT = [".npz", ".parquet", ".safetensors"]
ALL = [*EXACT, ".csv"]


def assert_same_records(a: EmbeddingSet, b: EmbeddingSet) -> None:
    np.testing.assert_array_equal(a.X, b.X)
    assert a.labels.tolist() == b.labels.tolist()
    assert (a.subject is None) == (b.subject is None)
    if a.subject is not None and b.subject is not None:
        assert a.subject.tolist() == b.subject.tolist()
    assert {k: v.tolist() for k, v in a.attributes.items()} == {k: v.tolist() for k, v in b.attributes.items()}
    for key, column in a.attributes.items():
        assert column.dtype.kind == b.attributes[key].dtype.kind


@pytest.mark.parametrize("suffix", EXACT)
def test_everything_comes_back(tmp_path: Path, rich: EmbeddingSet, suffix: str) -> None:
    write(tmp_path / f"d{suffix}", rich)
    back = read_embeddings(tmp_path / f"d{suffix}")
    assert_same_records(rich, back)
    assert back.info == rich.info
    assert back.y.tolist() == rich.y.tolist()


def test_csv_keeps_records_and_loses_what_stands_behind_them(tmp_path: Path, rich: EmbeddingSet) -> None:
    write(tmp_path / "d.csv", rich)
    back = read_embeddings(tmp_path / "d.csv")
    assert_same_records(rich, back)
    assert back.info == EmbeddingInfo(class_names=("benign", "malignant", "other"))


@pytest.mark.parametrize("suffix", ALL)
def test_whole_number_subjects_and_bare_sets_come_back(tmp_path: Path, rich: EmbeddingSet, suffix: str) -> None:
    for data in (
        # A CSV gives subjects back as text.
        replace(rich, subject=(np.arange(12) // 3).astype(str if suffix == ".csv" else int), attributes={}),
        replace(rich, subject=None, attributes={}),
        replace(rich, subject=None, attributes={"site": np.array([b"bonn", b"kyiv"] * 6).astype(np.str_)}),
    ):
        write(tmp_path / f"d{suffix}", data)
        assert_same_records(data, read_embeddings(tmp_path / f"d{suffix}"))


@pytest.mark.parametrize("suffix", ALL)
def test_the_digits_come_back(tmp_path: Path, suffix: str) -> None:
    digits = load_sample("digits")
    write(tmp_path / f"d{suffix}", digits)
    back = read_embeddings(tmp_path / f"d{suffix}")
    assert_same_records(digits, back)
    assert back.info.class_names == digits.info.class_names


@pytest.mark.parametrize("suffix", ALL)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    X=hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    names=st.lists(
        st.text("abcXYZ _,;\"'\né日", min_size=1).map(lambda s: "n" + s + "n"), min_size=3, max_size=3, unique=True
    ),
)
def test_any_finite_vector_and_any_name_come_back(
    tmp_path: Path, suffix: str, X: np.ndarray, names: list[str]
) -> None:
    data = EmbeddingSet.from_arrays(X, names, subject=names[::-1], attributes={"a b": names})
    write(tmp_path / f"d{suffix}", data)
    assert_same_records(data, read_embeddings(tmp_path / f"d{suffix}"))


@pytest.mark.parametrize("suffix", ALL)
def test_a_failure_leaves_no_trace_and_no_damage(
    tmp_path: Path, rich: EmbeddingSet, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"d{suffix}"
    path.write_bytes(b"before")

    def half(stream: object, data: EmbeddingSet) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    monkeypatch.setattr(writer, "_writer", lambda _: half)
    with pytest.raises(OSError, match="disk full"):
        write(path, rich)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [path.name]


def test_only_the_owner_may_read_what_was_written(tmp_path: Path, rich: EmbeddingSet) -> None:
    write(tmp_path / "d.npz", rich)
    assert stat.S_IMODE((tmp_path / "d.npz").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["d.npz"]


def test_a_wrong_place_gets_its_own_sentence(tmp_path: Path, rich: EmbeddingSet) -> None:
    with pytest.raises(DataError, match=r"use \.csv, \.npz, \.parquet or \.safetensors"):
        write(tmp_path / "d.txt", rich)
    with pytest.raises(DataError, match="folder does not exist"):
        write(tmp_path / "none" / "d.npz", rich)
    (tmp_path / "f.npz").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        write(tmp_path / "f.npz", rich)
    assert os.listdir(tmp_path) == ["f.npz"]
