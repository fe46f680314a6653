"""Who is held out depends on a subject's name alone, not on how a file stores it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locum.data import hold_out, open_batches, read_embeddings
from locum.data.whole_subjects import hashed
from locum.errors import DataError
from locum.types import SetBatches


@pytest.mark.parametrize("kind", ["int64", "int32", "uint16", "U9", "float64", "float32"])
def test_a_whole_number_has_one_hash_whatever_its_type(kind: str) -> None:
    names = [0, 1, 2, 17, 1024]
    # By hand: the first 8 bytes of the digest of the text, as it always was for numbers and text.
    expected = [
        int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "little") for name in names
    ]
    assert hashed(np.array(names).astype(kind)).tolist() == expected


def test_other_numbers_and_texts_stay_what_they_are() -> None:
    def by_hand(text: str) -> int:
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    assert hashed(np.array(["1.0", "p1", "01"])).tolist() == [by_hand("1.0"), by_hand("p1"), by_hand("01")]
    assert hashed(np.array([1.5, np.nan, np.inf, 1e30])).tolist() == [
        *map(by_hand, ("1.5", "nan", "inf", str(int(1e30))))
    ]


def test_a_column_that_turns_into_decimals_moves_nobody(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, who = rng.normal(size=(300, 3)).astype(np.float32), np.arange(300) // 2
    sides = {}
    for kind in ("int64", "float64", "str"):
        file = tmp_path / f"{kind}.parquet"
        columns = {f"x{i}": X[:, i] for i in range(3)}
        pq.write_table(pa.table({**columns, "label": who % 2, "subject": who.astype(kind)}), file)
        for data in (SetBatches(read_embeddings(file)), open_batches(file)["all"]):
            _, held = hold_out(data, 0.3, seed=0)
            sides[kind, type(data).__name__] = np.concatenate([piece.X for piece in held]).tobytes()
    assert len(set(sides.values())) == 1
    # An .npz does not guess: decimals are refused, so no run can come to another side.
    np.savez(tmp_path / "d.npz", X=X, y=who % 2, subject=who.astype(float))
    with pytest.raises(DataError, match="plain text or whole numbers; got float64"):
        read_embeddings(tmp_path / "d.npz")
