"""Embedding on Ray: the vectors of one process, whoever dies meanwhile. One real cluster for all tests here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")
pytest.importorskip("moto")

import ray
from tests.object_store import Store, object_store

from locum.data import EMBEDDED
from locum.embed import Backbone, Preprocessing, RayEmbedding, embed_to_shards, load_backbone, open_images
from locum.embed.ray_engine import _Actor, _Problem, _problem
from locum.embed.shards import ShardWork
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import embed_to_folder

Same = Callable[..., None]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(store: Store) -> Iterator[None]:
    """Ray with two CPUs; its processes inherit the environment that names the store."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    # CPUs are what Ray counts, not what the machine has.
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=128 * 2**20,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(scope="module")
def whole(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the local engine writes."""
    out = tmp_path_factory.mktemp("whole") / "vectors"
    embed_to_folder(str(scans), str(out), rows_per_file=4)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def descends_from_us(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()


def actors() -> list[int]:
    """Processes of our actors, and of nobody else's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::_Actor") and descends_from_us(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("cluster")
def test_actors_write_what_one_process_writes(
    scans: Path, whole: Path, in_one_file: Any, same: Same, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Actors have another current folder.
    monkeypatch.chdir(tmp_path)
    told: list[tuple[int, int]] = []
    done = embed_to_folder(
        str(scans),
        "vectors",
        rows_per_file=4,
        engine=RayEmbedding(actors=2),
        progress=lambda done, total, note="": told.append((done, total)),
    )
    assert (done["computed"], done["skipped"]) == (60, 1)
    assert contents(tmp_path / "vectors") == contents(whole)
    same(tmp_path / "vectors", in_one_file)
    assert told[-1] == (61, 61)
    assert [n for n, _ in told] == sorted(n for n, _ in told)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.usefixtures("cluster")
def test_progress_is_shown_within_a_shard(scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.embed.ray_engine._ASK_EVERY", 0.05)
    told: list[int] = []
    embed_to_folder(
        str(scans / "train"),
        str(tmp_path / "v"),
        engine=RayEmbedding(actors=1),
        progress=lambda done, total, note="": told.append(done),
    )
    assert told == sorted(set(told))
    assert len(told) > 1, "there is one shard"
    assert told[-1] == 41


@pytest.mark.usefixtures("cluster")
def test_killed_processes_change_nothing(scans: Path, whole: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, total: int, note: str = "") -> None:
        # One has just finished a shard, the other is in the middle of one or starting.
        if not killed:
            killed.extend(actors())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    done = embed_to_folder(
        str(scans), str(tmp_path / "v"), rows_per_file=4, engine=RayEmbedding(actors=2), progress=kill
    )
    assert done["computed"] == 60
    assert killed
    end = time.monotonic() + 20
    while set(killed) & set(actors()):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert contents(tmp_path / "v") == contents(whole)


@pytest.mark.usefixtures("cluster")
def test_from_a_store_to_a_store(scans: Path, whole: Path, store: Store) -> None:
    bucket = store.bucket()
    store.upload(scans, f"{bucket}/scans")
    embed_to_folder(f"{bucket}/scans", f"{bucket}/v/", rows_per_file=16, engine=RayEmbedding(actors=1))
    embed_to_folder(f"{bucket}/scans", f"{bucket}/w/", rows_per_file=16)
    assert store.objects(f"{bucket}/v") == store.objects(f"{bucket}/w")


@pytest.mark.usefixtures("cluster")
def test_errors_come_back_as_they_were(scans: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--strict was given") as told:
        embed_to_folder(str(scans), str(tmp_path / "v"), strict=True, rows_per_file=4, engine=RayEmbedding(actors=1))
    assert "MILLER" not in str(told.value)
    assert "MILLER-bad" in (tmp_path / "v.skipped.csv").read_text()


@pytest.mark.usefixtures("cluster")
def test_what_cannot_run_there_is_refused_before_anything_starts(scans: Path, tmp_path: Path) -> None:
    too_many = pytest.raises(ConfigError, match=r"5 actors need 5 CPUs .* has 2 on 1 node")
    with too_many, RayEmbedding("auto", actors=5).started():
        pass
    with pytest.raises(ConfigError, match=r"1 actor needs 3 CPUs"), RayEmbedding("auto", workers=3).started():
        pass
    torch_like = Backbone("hf", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=False)
    with RayEmbedding(actors=1).started(), pytest.raises(ConfigError, match="runs only ONNX models"):
        embed_to_shards(
            open_images(scans), torch_like, str(tmp_path / "a"), info=torch_like.info, engine=RayEmbedding()
        )
    np.savez(tmp_path / "i.npz", train_images=np.zeros((2, 8, 8), np.uint8), train_labels=[0, 1])
    with pytest.raises(ConfigError, match="reads images from files"):
        embed_to_folder(str(tmp_path / "i.npz"), str(tmp_path / "b"), engine=RayEmbedding(actors=1))


def test_too_many_actors_are_one_sentence_at_once(scans: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "locum", "embed", str(scans), "-o", "v/", "--engine", "ray", "--actors", "1000"]
    started = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: 1000 actors need 1000 CPUs (1 per actor, on one node), and the cluster has "
    )
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - started < 15, "Ray was not started"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there_is_one_sentence(address: str, scans: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "locum", "embed", str(scans), "-o", "v/", "--engine", "ray", "--address", address]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: There is no Ray cluster at {address!r}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_the_program_finds_the_cluster_of_this_machine(scans: Path, whole: Path, tmp_path: Path) -> None:
    # Another cluster may run on this machine.
    env = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    words = ["embed", str(scans), "-o", "v/", "--engine", "ray", "--address", "auto", "--actors", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "locum", *words, "--rows-per-file", "4"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    assert "60 images" in done.stdout
    assert contents(tmp_path / "v") == contents(whole)


NODES = """
import sys
import ray
from ray.cluster_utils import Cluster
from locum.embed import RayEmbedding
from locum.recipes import embed_to_folder

node = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(**node) for _ in range(2)]
removed = []

def remove(done, total, note=""):
    if not removed:
        removed.append(done)
        cluster.remove_node(nodes[0], allow_graceful=False)

try:
    engine = RayEmbedding(cluster.address, actors=2)
    done = embed_to_folder(sys.argv[1], sys.argv[2], rows_per_file=4, engine=engine, progress=remove)
    assert removed and removed[0] < 61, removed
    print(done["computed"])
finally:
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.slow
def test_a_node_that_goes_away_changes_nothing(scans: Path, whole: Path, tmp_path: Path) -> None:
    # In its own process: this one is connected to another cluster.
    words = [sys.executable, "-c", NODES, str(scans), str(tmp_path / "v")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "60"
    assert contents(tmp_path / "v") == contents(whole)


def test_a_node_that_does_not_see_the_files_says_so(scans: Path, tmp_path: Path) -> None:
    """Otherwise every image would be one that is missing."""
    model = load_backbone()
    assert model.model is not None
    facts = (model.name, model.revision, model.preprocessing.text, model.dim, model.batch)
    work = ShardWork(open_images(scans), model.info, False, str(tmp_path), False)
    (tmp_path / EMBEDDED).write_text("{}")
    seen = scans / work.source.items[0].name
    assert _Actor(model.model, facts, work, 1, seen).start() is None
    for actor in (_Actor(model.model, facts, work, 1, scans / "elsewhere.png"), None):
        if actor is None:
            (tmp_path / EMBEDDED).unlink()
            actor = _Actor(model.model, facts, work, 1, seen)
        answer = actor.start()
        assert isinstance(answer, _Problem)
        with pytest.raises(ConfigError, match="does not see"):
            answer.raise_here()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device", "/v/part"), PrivacyError("no key"), ConfigError("wrong")]
)
def test_a_problem_is_the_same_error_again(error: Exception) -> None:
    with pytest.raises(type(error)) as told:
        _problem(error).raise_here()
    assert str(told.value) == str(error)
