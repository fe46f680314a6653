"""The cache: private, exact, shared, and clear about damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from locum.embed import Backbone, Preprocessing
from locum.embed.cache import VectorStore
from locum.errors import DataError


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


def foreign(kind: str, file: Path) -> None:
    """What may already exist under the name that was typed."""
    if kind == "notes":
        file.write_text("Call Mr Miller back.\n" * 100)
    elif kind == "short":
        file.write_text("x")
    elif kind == "cut":
        file.write_bytes(b"SQLite format 3\0" + b"\0" * 10)
    else:
        db = sqlite3.connect(file)
        db.execute("CREATE TABLE patients (name TEXT)" if kind == "table" else "CREATE TABLE vectors (x BLOB)")
        db.commit()
        db.close()


@pytest.mark.parametrize("kind", ["notes", "short", "cut", "table", "columns"])
def test_a_file_that_is_not_ours_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "v.sqlite"
    foreign(kind, file)
    file.chmod(0o644)
    before = file.read_bytes()
    with pytest.raises(DataError, match="delete the file"):
        VectorStore(file, model())
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["v.sqlite"]


def test_neither_a_folder_nor_a_pipe_can_be_a_cache(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "none" / "v.sqlite"):
        with pytest.raises(DataError, match="cannot be used"):
            VectorStore(place, model())


def test_without_a_file_nothing_is_ever_seen_on_disk(tmp_path: Path) -> None:
    """In a process that is killed: not even that leaves anything."""
    code = (
        "import os, signal, numpy as np\n"
        "from locum.embed import Backbone\n"
        "from locum.embed.preprocessing import Preprocessing\n"
        "from locum.embed.cache import VectorStore\n"
        "m = Backbone('m', 'a' * 64, Preprocessing(), 4096, lambda x: x, concurrent=True)\n"
        "store = VectorStore(None, m)\n"
        "for i in range(50): store.put([(b'%d %d' % (i, j), np.full(4096, i, np.float32)) for j in range(20)])\n"
        "assert (store.get([b'7 3']) == 7).all()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path), "SQLITE_TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from locum.embed import Backbone\n"
        "from locum.embed.preprocessing import Preprocessing\n"
        "from locum.embed.cache import VectorStore\n"
        "m = Backbone('m', 'a' * 64, Preprocessing(), 4, lambda x: x, concurrent=True)\n"
        "with VectorStore(Path(sys.argv[1]), m) as s:\n"
        "    for i in range(100): s.put([(f'{sys.argv[2]}-{i}'.encode(), np.ones(4, np.float32))])\n"
    )
    file = tmp_path / "v.sqlite"
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("a", "b")]
    assert [p.wait() for p in running] == [0, 0]
    with VectorStore(file, model()) as store:
        assert len(store.known()) == 200
