"""Every attack catches what was planted for it, and accuses no release of fresh data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import Attack, AttributeInference, ClosestRecord, DensityRatio, Linkage, NearestDistance, SinglingOut
from locum.audit.checks import without_shared
from locum.audit.statistics import holm
from locum.generate import ClassGaussian
from locum.release import Release
from locum.types import AttackResult

ATTACKS = [
    NearestDistance(2000),
    DensityRatio(2000),
    ClosestRecord(2000),
    Linkage(2000),
    SinglingOut(2000),
    AttributeInference(samples=2000),
]


def run(attack: Attack, release: Release, members: EmbeddingSet, others: EmbeddingSet, seed: int = 0) -> AttackResult:
    return attack.run(release, members, others, np.random.default_rng(seed))


@pytest.mark.parametrize("jitter", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_copies_are_a_leak(attack: Any, jitter: float, subjects: Callable[..., Any], planted: Any) -> None:
    members, others, _ = subjects(0)
    result = run(attack, planted(members, None, jitter), members, others)
    assert result.verdict == "leak"
    assert result.p_value < 1e-4
    assert result.attack.low > result.control.high


@pytest.mark.parametrize("jitter", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("d", [16, 64])
def test_one_remembered_record_is_found(jitter: float, d: int, subjects: Callable[..., Any], planted: Any) -> None:
    """By the one attack that can: ranks cannot tell a single hit from luck."""
    members, others, non_members = subjects(1, d=d)
    release = planted(members, non_members, jitter, known=1)
    result = run(ClosestRecord(), release, members, others)
    assert result.verdict == "leak"
    assert result.attack.value == 1 / len(members)
    assert result.control.value == 0
    assert (result.p_value == 0) == (jitter == 0)
    assert run(NearestDistance(), release, members, others).verdict != "leak"


def test_one_record_in_a_decoder_is_found_among_many_samples(subjects: Callable[..., Any], rows: Any) -> None:
    """Scattered widely around the record, and often: the mean of what recurs shows it."""
    members, others, non_members = subjects(2, n=300)
    rng = np.random.default_rng(0)
    scale = members.X.std(axis=0)
    cloud = members.X[:1] + 0.15 * scale * rng.normal(size=(60, members.dim))
    X, y = np.concatenate([non_members.X, cloud]), np.concatenate([non_members.y, np.zeros(60, dtype=int)])
    result = run(ClosestRecord(), rows(X, y), members, others)
    assert result.verdict == "leak"
    assert any("recur" in note for note in result.notes)


def test_five_in_a_hundred_are_enough(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, non_members = subjects(3, n=400)
    result = run(NearestDistance(), planted(members, non_members, 0.1, known=20), members, others)
    assert result.attack.low < 0.55
    assert result.verdict == "leak"
    assert any("highest scores" in note and "of all records attacked" in note for note in result.notes)


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
def test_fresh_records_accuse_nobody(heavy: bool, subjects: Callable[..., Any], planted: Any) -> None:
    """Six attacks on each of 12 releases, corrected together at 1 %: two leaks have a chance below 0.01."""
    accused = 0
    for seed in range(12):
        members, others, non_members = subjects(100 + seed, n=80, heavy=heavy)
        release = planted(non_members, None)
        results = holm([run(attack, release, members, others, seed) for attack in ATTACKS])
        accused += any(r.verdict == "leak" for r in results)
    assert accused <= 1


def test_a_decoder_of_fresh_records_accuses_nobody(subjects: Callable[..., Any]) -> None:
    accused = 0
    for seed in range(6):
        members, others, non_members = subjects(200 + seed, n=80)
        release = ClassGaussian(random_state=seed).fit(non_members.X, non_members.y).release(no_dp=True)
        results = holm([run(attack, release, members, others, seed) for attack in ATTACKS])
        accused += any(r.verdict == "leak" for r in results)
    assert accused <= 1


def test_the_answer_turns_round_with_the_sets(subjects: Callable[..., Any], planted: Any) -> None:
    """Members and non-members are treated alike: to swap two fresh sets is to swap the answer."""
    one, other, non_members = subjects(4)
    release = planted(non_members, None)
    for attack in (NearestDistance(), DensityRatio(reference=non_members)):
        there, back = run(attack, release, one, other), run(attack, release, other, one)
        assert there.attack.value == pytest.approx(1 - back.attack.value, abs=0.005)
    for attack in (Linkage(), SinglingOut(radii=(0.4,)), AttributeInference()):
        there, back = run(attack, release, one, other), run(attack, release, other, one)
        assert there.attack.value == pytest.approx(back.control.value, abs=0.01)


def test_real_records(real_data: Path, rows: Any) -> None:
    from locum.data import read_splits

    splits = read_splits(real_data / "breastmnist_efflite0.npz")
    # One record of the training data is in the test data too.
    train, others = without_shared(splits["train"], splits["test"])
    assert len(others) == len(splits["test"]) - 1
    rng = np.random.default_rng(0)
    some = train.X[:250] + 0.001 * train.X.std(axis=0) * rng.normal(size=(250, train.dim))
    release = rows(some, train.y[:250])
    found = {a.name: run(a, release, train.take(np.arange(250)), others).verdict for a in ATTACKS}
    assert set(found.values()) == {"leak"}
    # The other half of the same records was not used: a release of one half says nothing of the other.
    rest = train.take(np.arange(250, 500))
    quiet = holm([run(a, release, rest, others) for a in ATTACKS])
    assert [r.name for r in quiet if r.verdict == "leak"] == []
