"""The attack on noisy sums: its product, what it finds, and the limit that it must keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import attack_limit
from locum.audit import SumLiRA
from locum.audit.attacks.sum_lira import _Query
from locum.audit.shadows.shadows import Pool
from locum.data import load_reference
from locum.errors import NotApplicableError
from locum.generate import ClassGaussian
from locum.generate.private import Shares, query_sums
from locum.metrics import auc_interval
from locum.release import Release
from locum.types import DP


def private(data: EmbeddingSet, seed: int, epsilon: float = 1.0, mechanism: str = "covariance") -> Release:
    budget = DP(epsilon, 1e-6, n_public=len(data))
    made = ClassGaussian(privacy=budget, classes=[0, 1], mechanism=mechanism, insecure_seed=seed)
    return made.fit(data.X, data.y).release()


@pytest.mark.parametrize("mechanism", ["covariance", "means"])
def test_products_with_sums_equal_those_of_each_record_alone(mechanism: str, subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=20, d=5)
    release = private(members, 0, mechanism=mechanism)
    spec, pool = release.manifest.decoder.statistics, Pool.of(release, members, others)
    reference, shares = load_reference("none", 5), Shares(*spec.shares)
    query = _Query(pool, 2, reference, spec, by_subject=False)
    sums = np.random.default_rng(0).normal(size=shares.size(2, 5))
    alone = [
        query_sums(pool.X[i : i + 1], pool.codes[i : i + 1, 0], None, 2, reference, shares)
        for i in range(len(pool.X))
    ]
    np.testing.assert_allclose(query.products(sums), [own @ sums for own in alone], atol=1e-4)
    np.testing.assert_allclose(query.square(), [own @ own for own in alone], atol=1e-4)


def test_a_mean_over_many_fits_keeps_the_limit_and_is_not_chance(subjects: Callable[..., Any]) -> None:
    """One release lies above its limit half of the time where the attack is as good as the limit allows."""
    found, fits = [], 12
    for seed in range(fits):
        members, others, _ = subjects(seed, n=400, d=40)
        attack = SumLiRA(shadows=16)
        scores = attack.score(private(members, seed), members, others, np.random.default_rng(seed))
        found.append(auc_interval(scores.inside, scores.outside).value)
    limit = attack_limit(ClassGaussian(privacy=DP(1.0, 1e-6, n_public=400), classes=[0, 1]).plan().events)
    margin = 3 * np.std(found, ddof=1) / np.sqrt(fits)
    assert np.mean(found) - margin <= limit
    assert np.mean(found) - margin > 0.53


def test_a_loud_release_is_found_and_fresh_data_are_silent(subjects: Callable[..., Any]) -> None:
    members, others, fresh = subjects(1, n=600, d=48)
    loud = SumLiRA(shadows=16).run(private(members, 0, epsilon=50.0), members, others, np.random.default_rng(0))
    assert loud.verdict == "leak"
    assert loud.attack.low > loud.control.high
    accused = 0
    for seed in range(10):
        members, others, fresh = subjects(50 + seed, n=200, d=24)
        silent = SumLiRA(shadows=8).run(private(fresh, seed), members, others, np.random.default_rng(seed))
        accused += silent.verdict == "leak"
    assert accused <= 1


def test_subjects_are_found_as_a_whole(tmp_path: Path) -> None:
    """Several records each, summed and cut: a score per subject, and the leak of a loud release is found."""
    rng = np.random.default_rng(0)
    people = rng.normal(size=(400, 24))
    X = np.repeat(people, 4, axis=0) + rng.normal(size=(1600, 24))
    data = EmbeddingSet(X.astype(np.float32), np.repeat(np.arange(400) % 2, 4), subject=np.repeat(np.arange(400), 4))
    members, others = data.take(np.arange(800)), data.take(np.arange(800, 1600))
    budget = DP(50.0, 1e-6, unit="subject", n_public=200)
    # Paid for: a test with an insecure seed claims nothing, not even a unit.
    made = ClassGaussian(privacy=budget, classes=[0, 1], mechanism="covariance", ledger=tmp_path / "ledger.sqlite")
    release = made.fit(members.X, members.y, members.subject).release()
    scores = SumLiRA(shadows=16).score(release, members, others, rng)
    unit = scores.inside.reshape(-1, 4)
    assert release.claim.unit == "subject"
    assert (unit == unit[:, :1]).all()
    assert SumLiRA(shadows=16).run(release, members, others, rng).verdict == "leak"


def test_a_release_without_sums_has_none(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(2)
    release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    with pytest.raises(NotApplicableError, match="no noisy sums"):
        SumLiRA().score(release, members, others, np.random.default_rng(0))
