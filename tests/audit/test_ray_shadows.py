"""Shadows on a real Ray cluster: the same bits as in one process, also if a worker is killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import LiRA, RayShadows, audit
from locum.audit.shadows.shadows import Pool, ShadowScores, shadow_scores
from locum.errors import ConfigError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.recipes import audit_data
from locum.release import Release

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


def data(seed: int, n: int = 60, d: int = 12) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    return EmbeddingSet(rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % 3)


def gaussian() -> Release:
    members = data(0)
    return ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)


def cvae(epochs: int) -> Release:
    members = data(0)
    generator = CVAEGenerator(hidden=(16,), latent=4, max_epochs=epochs, patience=0, random_state=0)
    return generator.fit(members.X, members.y).release(no_dp=True)


def same(one: ShadowScores, other: ShadowScores) -> bool:
    return all(np.array_equal(getattr(one, k), getattr(other, k)) for k in ("own", "shadows", "inside"))


@pytest.mark.parametrize("kind", ["gaussian", pytest.param("cvae", marks=pytest.mark.slow)])
def test_a_cluster_gives_the_bits_of_one_process(kind: str, tmp_path: Path) -> None:
    release = gaussian() if kind == "gaussian" else cvae(3)
    pool, state, told = Pool.of(release, data(0), data(1)), tmp_path / "shadows.safetensors", []
    here = shadow_scores(release, pool, 36, 5)
    there = shadow_scores(
        release, pool, 36, 5, state=state, engine=RayShadows(), progress=lambda *done: told.append(done[0])
    )
    assert same(here, there)
    assert told == sorted(told)
    assert len(told) > 2
    # What the cluster trained is read again, here.
    assert same(here, shadow_scores(release, pool, 36, 5, state=state))
    # The connection was there before, and stays.
    assert ray.is_initialized()


def working_on_shadows() -> list[int]:
    """Workers of this test's cluster that train at the moment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name = (place / "cmdline").read_bytes().split(b"\0")[0]
            if name.startswith(b"ray::_train") and os.getpid() in ancestors(int(place.name)):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        # The name of a program is in parentheses and can hold spaces.
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        yield pid


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds workers in /proc")
def test_a_killed_worker_changes_nothing() -> None:
    release = cvae(300)
    pool, killed = Pool.of(release, data(0), data(1)), []

    def kill() -> None:
        end = time.monotonic() + 60
        while not killed and time.monotonic() < end:
            for pid in working_on_shadows()[:1]:
                time.sleep(0.1)
                # Still in the middle of its work.
                if pid in working_on_shadows():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    there = shadow_scores(release, pool, 32, 5, engine=RayShadows())
    killer.join()
    assert killed
    assert same(shadow_scores(release, pool, 32, 5), there)


def test_no_time_gives_the_first_block() -> None:
    release = gaussian()
    pool = Pool.of(release, data(0), data(1))
    few = shadow_scores(release, pool, 64, 5, engine=RayShadows(), seconds=0.0)
    assert 8 <= len(few.shadows) < 64
    assert np.array_equal(few.shadows, shadow_scores(release, pool, 64, 5).shadows[: len(few.shadows)])


def test_an_error_in_a_worker_is_the_error_of_one_process() -> None:
    members = data(0)
    large = CVAEGenerator(preset="large", max_epochs=1, random_state=0).fit(members.X, members.y)
    release = large.release(no_dp=True)
    # One record of the last class in both sets together.
    few = EmbeddingSet(members.X[:6], np.array([0, 1, 0, 1, 0, 1]), info=members.info)
    others = EmbeddingSet(data(1).X[:6], np.array([0, 1, 0, 1, 0, 2]), info=members.info)
    pool = Pool.of(release, few, others)
    with pytest.raises(ConfigError, match="two records per class") as here:
        shadow_scores(release, pool, 4, 0)
    with pytest.raises(ConfigError, match="two records per class") as there:
        shadow_scores(release, pool, 4, 0, engine=RayShadows())
    assert str(here.value) == str(there.value)


def test_an_audit_says_the_same() -> None:
    release, members, others = gaussian(), data(0), data(1)
    found = [
        audit(release, members, others, attacks=[LiRA(shadows=8, seed=0, engine=engine)], random_state=0).to_dict()
        for engine in (None, RayShadows())
    ]
    assert found[0] == found[1]


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'locum\[cluster\]'"):
        RayShadows().check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"address": "auto"}, "add --engine ray"),
        ({"engine": "ray", "attacks": ["hole"]}, "add --shadows"),
        ({"engine": "dask"}, "'local' or 'ray'"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        audit_data(tmp_path, "members.npz", "others.npz", **options)  # type: ignore[arg-type]
