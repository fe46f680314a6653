"""The planted leak is caught; fresh data stay silent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import NearestDistance
from locum.errors import DataError
from locum.generate import BaseGenerator, ClassGaussian, KSame, Records
from locum.generate.base import Learned
from locum.release import RowsSpec
from locum.types import PrivacyClaim


class Identity(BaseGenerator):
    """The planted leak: releases the records themselves, or the records with a little jitter."""

    def __init__(
        self, jitter: float = 0.0, space: str = "raw", privacy: object = None, random_state: int = 0
    ) -> None:
        self.jitter = jitter
        self.space = space
        self.privacy = privacy
        self.random_state = random_state

    def _learn(self, records: Records, validation: object) -> Learned:
        noise = np.random.default_rng(0).normal(size=records.X.shape) * self.jitter
        claim = PrivacyClaim("none", ("membership: everything",))
        return Learned(RowsSpec(), {"X": records.X + noise, "codes": records.codes}, claim, {})


def population(seed: int, n: int = 300, d: int = 12) -> tuple[EmbeddingSet, EmbeddingSet]:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d))
    X, y = rng.normal(size=(2 * n, d)) @ mix, np.arange(2 * n) % 2
    data = EmbeddingSet((X + y[:, None]).astype(np.float32), y)
    return data.take(np.arange(n)), data.take(np.arange(n, 2 * n))


@pytest.mark.parametrize("jitter", [0.0, 0.001, 0.1])
def test_copies_are_a_leak(jitter: float) -> None:
    members, others = population(0)
    release = Identity(jitter).fit(members.X, members.y).release(no_dp=True)
    result = NearestDistance().run(release, members, others, np.random.default_rng(0))
    assert result.verdict == "leak"
    assert result.attack.value > 0.95
    assert result.control.low < 0.5 < result.control.high


def test_two_same_leaks_membership() -> None:
    members, others = population(1)
    release = KSame(k=2).fit(members.X, members.y).release(no_dp=True)
    assert NearestDistance().run(release, members, others, np.random.default_rng(0)).verdict == "leak"


def test_a_generator_of_other_data_is_not_accused() -> None:
    """At 95 % intervals two in forty are expected by chance on each side; five would be too many."""
    accused = 0
    for seed in range(20):
        members, others = population(seed, n=120)
        non_members, _ = population(seed + 1000, n=120)
        release = ClassGaussian(random_state=seed).fit(non_members.X, non_members.y).release(no_dp=True)
        result = NearestDistance(2000).run(release, members, others, np.random.default_rng(seed))
        accused += result.verdict == "leak"
    assert accused <= 3


def test_few_records_are_inconclusive_not_reassuring() -> None:
    members, others = population(0, n=10)
    non_members, _ = population(50)
    release = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
    assert (
        NearestDistance(1000).run(release, members, others, np.random.default_rng(1)).verdict
        != "no excess risk found"
    )
    with pytest.raises(DataError, match="at least 2 members"):
        NearestDistance().run(release, members, others.take([0, 1]), np.random.default_rng(0))


def test_distances_are_taken_in_the_release_s_space() -> None:
    members, others = population(3)
    release = Identity(space="unit").fit(members.X * 7, members.y).release(no_dp=True)
    result = NearestDistance().run(release, members, others, np.random.default_rng(0))
    assert result.attack.value > 0.99


def test_a_feature_with_a_large_unit_does_not_hide_copies() -> None:
    """Measurements copied but for the four of the largest unit: seen, because features share one scale."""
    from locum.data import load_sample, split

    parts = split(load_sample("breast-cancer"), {"train": 0.5, "test": 0.5}, rng=np.random.default_rng(0))
    train = parts["train"]
    X = train.X.copy()
    largest = np.argsort(X.std(axis=0))[-4:]
    X[:, largest] = np.random.default_rng(1).permutation(X[:, largest])
    release = Identity().fit(X, train.y).release(no_dp=True)
    assert NearestDistance().run(release, train, parts["test"], np.random.default_rng(0)).verdict == "leak"


def test_members_among_the_non_members_are_an_error() -> None:
    members, others = population(0)
    release = KSame(k=2).fit(members.X, members.y).release(no_dp=True)
    with pytest.raises(DataError, match="equal a member"):
        NearestDistance().run(release, members, members.take(np.arange(50)), np.random.default_rng(0))
    subjects = np.arange(len(members))
    with_people = EmbeddingSet(members.X, members.y, subjects)
    with pytest.raises(DataError, match="both members and non-members"):
        NearestDistance().run(
            release, with_people, EmbeddingSet(others.X, others.y, subjects), np.random.default_rng(0)
        )


def test_real_records(real_data: Path) -> None:
    from locum.data import read_splits

    splits = read_splits(real_data / "breastmnist_efflite0.npz")
    train = splits["train"]
    release = Identity(0.01).fit(train.X, train.y).release(no_dp=True)
    assert NearestDistance().run(release, train, splits["test"], np.random.default_rng(0)).verdict == "leak"
