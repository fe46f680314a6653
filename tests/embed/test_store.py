"""The cache: private, exact, shared, and clear about damage."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from understudy.embed.backbones import Backbone
from understudy.embed.preprocessing import Preprocessing
from understudy.embed.store import VectorStore
from understudy.errors import DataError


def model(revision: str = "a" * 64, **changes: object) -> Backbone:
    return Backbone("m", revision, Preprocessing(**changes), 4, lambda x: x, concurrent=True)


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_vectors_come_back_in_the_order_asked_for(tmp_path: Path, rng: np.random.Generator) -> None:
    contents = [bytes([i // 256, i % 256]) for i in range(1200)]
    vectors = rng.normal(size=(1200, 4)).astype(np.float32)
    with VectorStore(tmp_path / "v.sqlite", model()) as store:
        store.put(zip(contents, vectors, strict=True))
        order = rng.permutation(1200)
        np.testing.assert_array_equal(store.get([contents[i] for i in order]), vectors[order])
        assert store.known() == set(contents)
        twice = store.get([contents[3], contents[3]])
        np.testing.assert_array_equal(twice, vectors[[3, 3]])


def test_it_survives_closing_and_is_private(tmp_path: Path) -> None:
    file = tmp_path / "v.sqlite"
    file.touch(mode=0o644)
    with VectorStore(file, model()) as store:
        store.put([(b"x", vector(1, 2, 3, 4))])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with VectorStore(file, model()) as store:
        np.testing.assert_array_equal(store.get([b"x"]), [[1, 2, 3, 4]])


def test_another_model_or_preparation_knows_nothing(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v.sqlite", model()) as store:
        store.put([(b"x", vector(1, 2, 3, 4))])
    for other in (model("b" * 64), model(resample="bilinear"), model(window=(0.0, 1.0))):
        with VectorStore(tmp_path / "v.sqlite", other) as store:
            assert store.known() == set()


def test_a_lost_or_altered_vector_is_told(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v.sqlite", model()) as store:
        with pytest.raises(DataError, match="lost a vector"):
            store.get([b"unknown"])
        store.put([(b"x", vector(1, 2))])
        with pytest.raises(DataError, match="altered"):
            store.get([b"x"])


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "v.sqlite").write_bytes(b"this is no database, but long enough to look at" * 100)
    with pytest.raises(DataError, match="delete the file"):
        VectorStore(tmp_path / "v.sqlite", model())


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from understudy.embed.backbones import Backbone\n"
        "from understudy.embed.preprocessing import Preprocessing\n"
        "from understudy.embed.store import VectorStore\n"
        "m = Backbone('m', 'a' * 64, Preprocessing(), 4, lambda x: x, concurrent=True)\n"
        "with VectorStore(Path(sys.argv[1]), m) as s:\n"
        "    for i in range(100): s.put([(f'{sys.argv[2]}-{i}'.encode(), np.ones(4, np.float32))])\n"
    )
    file = tmp_path / "v.sqlite"
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("a", "b")]
    assert [p.wait() for p in running] == [0, 0]
    with VectorStore(file, model()) as store:
        assert len(store.known()) == 200
