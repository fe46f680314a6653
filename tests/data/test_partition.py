"""Sites: every record at one, no subject at two, none too small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import load_sample, partition_by, partition_dirichlet, partition_iid
from locum.data.partition import _draw
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingSet

seeds = st.integers(0, 2**32 - 1)


def numbered(n: int, classes: int, seed: int, persons: int | None = None) -> EmbeddingSet:
    """A set whose only feature is the record's number; subjects are synthetic."""
    rng = np.random.default_rng(seed)
    subject = None if persons is None else np.concatenate([np.arange(persons), rng.integers(0, persons, n - persons)])
    return EmbeddingSet(np.arange(n, dtype=float)[:, None], rng.integers(0, classes, n), subject)


def assert_parted(data: EmbeddingSet, parts: dict[str, EmbeddingSet], sites: int) -> None:
    assert list(parts) == [f"site-{i}" for i in range(sites)]
    where = [i for p in parts.values() for i in p.X[:, 0].astype(int).tolist()]
    assert sorted(where) == list(range(len(data)))
    if data.subject is not None:
        homes = [set(p.subject.tolist()) for p in parts.values() if p.subject is not None]
        assert sum(len(h) for h in homes) == len(set(data.subject.tolist()))


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 80), st.integers(1, 8), seeds)
def test_iid_sites_are_equal_within_one(n: int, sites: int, seed: int) -> None:
    data = numbered(n, 3, seed)
    parts = partition_iid(data, sites, np.random.default_rng(seed))
    assert_parted(data, parts, sites)
    sizes = [len(p) for p in parts.values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 80), st.integers(1, 8), seeds)
def test_iid_by_subject_keeps_persons_whole_and_sizes_close(n: int, sites: int, seed: int) -> None:
    data = numbered(n, 3, seed, persons=12)
    parts = partition_iid(data, sites, np.random.default_rng(seed))
    assert_parted(data, parts, sites)
    sizes = [len(p) for p in parts.values()]
    assert max(sizes) - min(sizes) <= np.bincount(data.subject).max()


@settings(max_examples=60, deadline=None)
@given(st.integers(40, 120), st.integers(1, 8), st.sampled_from([0.01, 0.1, 1.0, 100.0]), seeds)
def test_dirichlet_sites_hold_every_record_once_and_enough(n: int, sites: int, alpha: float, seed: int) -> None:
    data = numbered(n, 4, seed)
    parts = partition_dirichlet(data, sites, alpha, np.random.default_rng(seed), min_records=5)
    assert_parted(data, parts, sites)
    assert min(len(p) for p in parts.values()) >= 5


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 120), st.integers(1, 4), st.sampled_from([0.01, 0.1, 1.0, 100.0]), seeds)
def test_dirichlet_by_subject_keeps_persons_whole(n: int, sites: int, alpha: float, seed: int) -> None:
    data = numbered(n, 4, seed, persons=30)
    parts = partition_dirichlet(data, sites, alpha, np.random.default_rng(seed), min_records=3)
    assert_parted(data, parts, sites)
    assert min(len(p) for p in parts.values()) >= 3


def test_the_draw_equals_its_slow_twin() -> None:
    rng = np.random.default_rng(0)
    kind, size = rng.integers(0, 3, 200), rng.integers(1, 9, 200)
    fast = _draw(kind, size, 5, 0.7, np.random.default_rng(1))
    twin_rng = np.random.default_rng(1)
    slow = [-1] * 200
    for c in range(3):
        members = twin_rng.permutation([i for i in range(200) if kind[i] == c])
        shares = twin_rng.dirichlet([0.7] * 5)
        total, before = sum(size[i] for i in members), 0
        for i in members:
            middle, site = (before + size[i] / 2) / total, 0
            while site < 4 and sum(shares[: site + 1]) <= middle:
                site += 1
            slow[i], before = site, before + size[i]
    assert fast.tolist() == slow


def test_small_alpha_makes_sites_differ_and_large_alpha_makes_them_alike() -> None:
    digits = load_sample("digits")

    def spread(alpha: float) -> float:
        parts = partition_dirichlet(digits, 5, alpha, np.random.default_rng(0), min_records=20)
        return float(np.mean([(p.counts / len(p)).max() for p in parts.values()]))

    assert spread(1000) < 0.15
    assert spread(0.05) > 0.3


def test_each_wrong_wish_gets_its_own_sentence() -> None:
    data, rng = numbered(10, 2, 0), np.random.default_rng(0)
    for sites in (0, -1):
        with pytest.raises(ConfigError, match="`sites` must be 1 or more"):
            partition_iid(data, sites, rng)
    with pytest.raises(DataError, match="11 sites need at least 11 records; got 10"):
        partition_iid(data, 11, rng)
    with pytest.raises(DataError, match="4 sites need at least 4 subjects; got 3"):
        partition_iid(numbered(10, 2, 0, persons=3), 4, rng)
    for alpha in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="`alpha` must be above 0"):
            partition_dirichlet(data, 2, alpha, rng)
    with pytest.raises(ConfigError, match="`min_records` must be 1 or more"):
        partition_dirichlet(data, 2, 1.0, rng, min_records=0)
    with pytest.raises(DataError, match="3 sites of 4 records or more need 12 records; got 10"):
        partition_dirichlet(data, 3, 1.0, rng, min_records=4)


def test_a_wish_that_would_cut_a_subject_is_refused() -> None:
    giant = EmbeddingSet(np.ones((10, 1)), np.array([0, 1] * 5), np.array([0] * 9 + [1]))
    with pytest.raises(DataError, match="without splitting a subject"):
        partition_dirichlet(giant, 2, 1.0, np.random.default_rng(0), min_records=5)


def test_by_attribute_sites_are_as_the_data_have_them() -> None:
    X = np.arange(4.0)[:, None]
    data = EmbeddingSet.from_arrays(X, [*"aabb"], attributes={"site": [2, 10, 2, 2], "sex": [b"m", b"f", b"f", b"f"]})
    assert {k: p.X[:, 0].tolist() for k, p in partition_by(data, "site").items()} == {"2": [0, 2, 3], "10": [1]}
    assert list(partition_by(data, "sex")) == ["f", "m"]
    with pytest.raises(DataError, match="no attribute 'town'; these data have 'site', 'sex'"):
        partition_by(data, "town")
