"""The closed-form likelihood ratio, and the default audit that relies on it and on shadows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from locum import EmbeddingSet
from locum.audit import DEFAULT_ATTACKS, AuditReport, LikelihoodRatio, LiRA, audit
from locum.generate import ClassGaussian, KSame
from locum.types import AttackResult


def population(seed: int, n: int, m: int, d: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d))
    y = rng.permutation(np.arange(n + m) % 2)
    data = EmbeddingSet((rng.normal(size=(n + m, d)) @ mix + 2 * y[:, None]).astype(np.float32), y)
    return data.take(np.arange(n)), data.take(np.arange(n, n + m))


def test_it_equals_the_textbook_formula(subjects: Callable[..., Any]) -> None:
    """Against scipy, with a full covariance on both sides and a reference of its own."""
    members, others, reference = subjects(0, n=320, d=6)
    release = ClassGaussian(rank=6, shrinkage=0.0).fit(members.X, members.y).release(no_dp=True)
    found = LikelihoodRatio(reference=reference).score(release, members, others, np.random.default_rng(0))

    def naive(known: EmbeddingSet, data: EmbeddingSet) -> np.ndarray:
        means = np.stack([known.X[known.y == c].mean(axis=0, dtype=np.float64) for c in (0, 1)])
        gaps = known.X - means[known.y]
        covariance = gaps.T @ gaps / (len(known) - 2)
        return multivariate_normal(np.zeros(6), covariance).logpdf(data.X - means[data.y])

    expected = naive(members, others) - naive(reference, others)
    assert np.corrcoef(found.outside, expected)[0, 1] > 0.99


@pytest.mark.parametrize("seed", range(2))
def test_the_default_audit_never_clears_the_default_generator(seed: int) -> None:
    """Sampled distances cleared it on most seeds, while the closed form told members from non-members."""
    members, others = population(seed, 3000, 1200, 64)
    release = ClassGaussian(random_state=seed).fit(members.X, members.y).release(no_dp=True)
    report = audit(release, members, others, random_state=seed)
    assert report.verdict == "leak"
    assert not report.may_leave
    found = {r.name: r for r in report.results}
    assert found["likelihood ratio"].attack.low > 0.6
    assert found["likelihood ratio"].p_value < 1e-30  # type: ignore[operator]
    assert found["LiRA"].attack.low > 0.6


def test_a_planted_table_is_found_and_fresh_records_accuse_nobody(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, fresh = subjects(3, n=400, d=32)
    attack = LikelihoodRatio()
    copied = attack.run(planted(members, None), members, others, np.random.default_rng(0))
    assert copied.verdict == "leak"
    assert copied.attack.low > copied.control.high
    groups = KSame(k=3).fit(members.X, members.y).release(no_dp=True)
    assert attack.run(groups, members, others, np.random.default_rng(0)).verdict == "leak"
    accused = 0
    for seed in range(12):
        members, others, fresh = subjects(300 + seed, n=100)
        for release in (planted(fresh, None), ClassGaussian().fit(fresh.X, fresh.y).release(no_dp=True)):
            accused += attack.run(release, members, others, np.random.default_rng(seed)).verdict == "leak"
    # 24 tests at 1 %: three leaks have a chance of 0.002.
    assert accused <= 2


def test_sets_are_treated_alike(subjects: Callable[..., Any]) -> None:
    one, other, fresh = subjects(4)
    release = ClassGaussian().fit(fresh.X, fresh.y).release(no_dp=True)
    there, back = (
        LikelihoodRatio().score(release, *s, np.random.default_rng(0)) for s in ((one, other), (other, one))
    )
    np.testing.assert_allclose(there.inside, back.outside, atol=1e-2)


def test_shadows_stop_in_time(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(5)
    release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    rng = np.random.default_rng(0)
    told: list[int] = []
    hurried = LiRA(shadows=2000, seconds=0.5, progress=lambda done, total, note="": told.append(done))
    (note,) = hurried.score(release, members, others, rng).notes
    assert 4 <= told[-1] < 2000
    assert note == f"there was time for {told[-1]} of 2000 shadows"
    assert LiRA(shadows=8, seconds=600).score(release, members, others, rng).notes == ()
    report = audit(release, members, others, attacks=[LiRA(seconds=0)], random_state=0)
    assert report.skipped == {"LiRA": "there was time for 2 shadows, and it needs 4; allow more minutes"}


def test_what_a_policy_needs_and_nobody_ran_is_said(subjects: Callable[..., Any]) -> None:
    members, others, fresh = subjects(6, n=600)
    release = ClassGaussian().fit(fresh.X, fresh.y).release(no_dp=True)
    asked = [name for name in DEFAULT_ATTACKS if name not in ("LiRA", "likelihood ratio")]
    report = audit(release, members, others, attacks=asked, random_state=0, required=())
    assert report.missing == ("likelihood ratio", "LiRA")
    assert report.verdict == "inconclusive"
    assert report.because.startswith("likelihood ratio was not run; LiRA was not run")
    assert not report.may_leave
    assert audit(release, members, others, random_state=0).missing == ()


def test_an_audit_without_results_or_rules_lets_nothing_leave() -> None:
    def report(results: tuple[AttackResult, ...]) -> AuditReport:
        return AuditReport(results=results, problems=(), skipped={}, policy="internal", findings=())

    assert not report(()).may_leave
    assert report(()).because == "no attack was run"
