"""Who is in which half, and going on after a kill."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum import EmbeddingSet
from locum.audit.shadows.shadows import Pool, ShadowScores, no_shadows, shadow_scores
from locum.errors import CheckpointError, ConfigError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.release import Release


def data(seed: int, n: int = 24, d: int = 5, **more: object) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    return EmbeddingSet(rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % 3, **more)  # type: ignore[arg-type]


@pytest.fixture
def release() -> Release:
    members = data(0)
    return ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), n=st.integers(6, 40))
def test_halves_are_halves_of_each_class(seed: int, n: int) -> None:
    members = data(0)
    pool = Pool.of(ClassGaussian().fit(members.X, members.y).release(no_dp=True), members, data(1, n))
    inside = pool.halves(6, seed)
    assert (inside[::2] ^ inside[1::2]).all()
    assert np.array_equal(inside, pool.halves(8, seed)[:6])
    sizes = inside.sum(axis=1)
    assert abs(int(sizes[0]) - int(sizes[1])) <= 1
    for c in range(3):
        mine = pool.codes[:, 0] == c
        assert (np.abs(2 * inside[:, mine].sum(axis=1) - mine.sum()) <= 1).all()


def test_nothing_tells_members_from_non_members(release: Release) -> None:
    a, b = data(0), data(1, 30)
    one, two = Pool.of(release, a, b), Pool.of(release, b, a)
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.X[one.place[: len(a)]], a.X)
    values = np.random.default_rng(0).normal(size=len(one.X))
    assert np.array_equal(one.scores(values).inside, two.scores(values).outside)


def test_copies_count_once_and_subjects_stay_together(release: Release) -> None:
    members = data(0)
    others = EmbeddingSet(np.concatenate([data(1).X, members.X[:1]]), np.append(data(1).y, members.y[0]))
    pool = Pool.of(release, members, others)
    assert len(pool.X) == len(members) + len(others) - 1
    assert pool.place[0] == pool.place[-1]
    subjects = [data(s, subject=np.arange(24) // 4 + 100 * s) for s in (0, 1)]
    pool = Pool.of(release, *subjects)
    inside = pool.halves(4, 0)
    assert len(np.unique(pool.unit)) == 12
    for unit in range(12):
        assert (inside[:, pool.unit == unit].std(axis=1) == 0).all()


def test_a_run_goes_on_where_it_stopped(release: Release, tmp_path: Path) -> None:
    pool, path, told = Pool.of(release, data(0), data(1)), tmp_path / "shadows.safetensors", []
    whole = shadow_scores(release, pool, 8, 5)
    shadow_scores(release, pool, 4, 5, state=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    resumed = shadow_scores(release, pool, 8, 5, state=path, progress=lambda *done: told.append(done))
    assert told == [(4, 8), (8, 8)]
    for name in ("own", "shadows", "inside"):
        assert np.array_equal(getattr(whole, name), getattr(resumed, name))
    with pytest.raises(CheckpointError, match="other data, settings or seeds"):
        shadow_scores(release, pool, 8, 6, state=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        shadow_scores(release, pool, 8, 5, state=path)


KILLED = """
import os, signal
import numpy as np
from locum import EmbeddingSet, load
from locum.audit.shadows.shadows import Pool, shadow_scores

def data(seed):
    rng = np.random.default_rng(seed)
    return EmbeddingSet(rng.normal(size=(24, 5)).astype(np.float32), np.arange(24) % 3)

def progress(done, total):
    if done == 16:
        os.kill(os.getpid(), signal.SIGKILL)

release = load(folder)
shadow_scores(release, Pool.of(release, data(0), data(1)), 20, 1, state=saved, progress=progress)
"""


def test_a_killed_run_of_cvaes_ends_the_same(run_apart: Callable[..., BaseProcess], tmp_path: Path) -> None:
    members, others = data(0), data(1)
    generator = CVAEGenerator(hidden=(8,), latent=2, max_epochs=3, patience=0, random_state=0)
    release = generator.fit(members.X, members.y).release(no_dp=True)
    release.save(tmp_path / "release")
    state = tmp_path / "state"
    run = run_apart(KILLED, folder=str(tmp_path / "release"), saved=str(state))
    run.join()
    assert run.exitcode == -signal.SIGKILL
    pool = Pool.of(release, members, others)
    resumed = shadow_scores(release, pool, 20, 1, state=state)
    np.testing.assert_allclose(resumed.shadows, shadow_scores(release, pool, 20, 1).shadows, rtol=1e-4, atol=1e-4)


def test_what_has_no_shadows(release: Release) -> None:
    members = data(0)
    table = KSame(k=2).fit(members.X, members.y).release(no_dp=True)
    assert "KSame" in str(no_shadows(table))
    with pytest.raises(ConfigError, match="even number"):
        shadow_scores(release, Pool.of(release, members, data(1)), 5, 0)


def test_a_class_of_one_record_is_not_judged() -> None:
    seen = ShadowScores(np.zeros(2), np.array([[np.nan, 1.0], [2.0, 3.0]]), np.array([[False, True], [True, False]]))
    assert np.isnan(seen.mean(~seen.inside)[0])
    assert seen.mean(~seen.inside)[1] == 3.0
