"""Arrow columns to arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from locum.data.formats.tables import Source, as_whole, features, list_vectors, plain_column
from locum.errors import DataError

SOURCE = Source("f", lambda i: f"record {i}")


def test_features_equal_a_naive_table() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({f"c{j}": rng.normal(size=7).astype(t) for j, t in enumerate(["f4", "f8", "f2", "i4", "u1"])})
    naive = [[float(v) for v in row.values()] for row in table.to_pylist()]
    np.testing.assert_array_equal(features(table, table.column_names, SOURCE), np.array(naive, np.float32))


def test_vectors_in_chunks_and_slices_equal_their_lists() -> None:
    rows = np.arange(24.0).reshape(12, 2).tolist()
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.float64())):
        column = pa.chunked_array([rows[:5], rows[5:]], kind).slice(3, 6)
        assert list_vectors(column, "v", SOURCE).tolist() == rows[3:9]


def test_a_missing_number_is_found_in_its_record() -> None:
    column = pa.chunked_array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, None]]])
    with pytest.raises(DataError, match="record 2"):
        list_vectors(column, "v", SOURCE)


def test_plain_columns_keep_their_kind() -> None:
    def kind(values: list[object], type_: pa.DataType | None = None) -> str:
        return plain_column(pa.chunked_array([pa.array(values, type_)]), "c", SOURCE).dtype.kind

    assert [kind(["a"]), kind(["a"], pa.large_string()), kind([1]), kind([True]), kind([1.0]), kind([1.5])] == [
        *"UUibif"
    ]
    with pytest.raises(DataError, match="dates or times"):
        kind([0], pa.timestamp("s"))


def test_only_exact_whole_numbers_turn_whole() -> None:
    assert as_whole(np.array([1.0, -2.0])).dtype == np.int64
    for values in ([1.5], [np.nan], [np.inf]):
        assert as_whole(np.array(values)).dtype == np.float64
