"""Passes on a Ray cluster give what passes in this process give, bit for bit, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.data import LocalEngine, RayEngine, open_batches, total, write_embeddings
from locum.generate import ClassGaussian
from locum.metrics import Moments
from locum.types import DP, Batches, EmbeddingSet

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayEngine]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield RayEngine("auto")
    ray.shutdown()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Batches:
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("vectors")
    y = rng.integers(0, 3, 6000)
    who = np.sort(rng.integers(0, 900, 6000))[rng.permutation(6000)]
    data = EmbeddingSet.from_arrays(rng.normal(size=(6000, 16)) + y[:, None], y, subject=who)
    for k in range(12):
        write_embeddings(folder / f"{k:02d}.parquet", data.take(range(500 * k, 500 * (k + 1))))
    return open_batches(folder)["all"]


def _moments(part: Batches) -> Moments:
    out = Moments(1, part.dim)
    for piece in part:
        out.add(piece.X)
    return out


def test_sums_are_the_same_bit_for_bit(cluster: RayEngine, stored: Batches) -> None:
    here, there = (total(engine, stored, _moments) for engine in (LocalEngine(), cluster))
    np.testing.assert_array_equal(here.scatter, there.scatter)
    np.testing.assert_array_equal(here.means, there.means)


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_a_private_fit_is_the_same_on_a_cluster(
    cluster: RayEngine, stored: Batches, unit: Any, tmp_path: Path
) -> None:
    fits = [
        ClassGaussian(privacy=DP(2.0, 1e-6, unit=unit), classes=[0, 1, 2], insecure_seed=5).fit_batches(
            stored, engine=engine, scratch=tmp_path / "sorted"
        )
        for engine in (LocalEngine(), cluster)
    ]
    one, two = (fit._fitted().tensors for fit in fits)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def _slow_count(part: Batches) -> Any:
    Path(os.environ["LOCUM_TEST_NOTES"], str(os.getpid())).touch()
    time.sleep(0.15)
    return _moments(part)


def test_a_killed_worker_changes_nothing(cluster: RayEngine, stored: Batches, tmp_path: Path) -> None:
    notes = str(tmp_path)

    def work(part: Batches) -> Any:
        os.environ["LOCUM_TEST_NOTES"] = notes
        return _slow_count(part)

    results = []
    for number, result in enumerate(cluster.map(stored, work)):
        if number == 0:
            busy = [int(note.name) for note in tmp_path.iterdir()]
            assert busy
            os.kill(busy[-1], signal.SIGKILL)
        results.append(result)
    here = total(LocalEngine(), stored, _moments)
    there = results[0]
    for result in results[1:]:
        there.merge(result)
    np.testing.assert_array_equal(here.scatter, there.scatter)
    assert there.rows == 6000
