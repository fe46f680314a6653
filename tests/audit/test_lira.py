"""LiRA and RMIA catch a Gaussian of few records and an overfitted CVAE, and do not accuse one of fresh records."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import RMIA, LiRA
from locum.audit.attacks.lira import likelihood_ratio
from locum.audit.attacks.rmia import best_a, relative_ratio
from locum.audit.shadows.shadows import ShadowScores
from locum.errors import ConfigError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.metrics import auc_interval
from locum.types import Estimate


def population(seed: int, *sizes: int, d: int = 64) -> list[EmbeddingSet]:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    y = np.arange(n) % 2
    data = EmbeddingSet((rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 2 * y[:, None]).astype(np.float32), y)
    ends = np.cumsum([0, *sizes])
    return [data.take(np.arange(a, b)) for a, b in pairwise(ends)]


def auc(attack: LiRA | RMIA, release: object, members: EmbeddingSet, others: EmbeddingSet, seed: int = 0) -> Estimate:
    scores = attack.score(release, members, others, np.random.default_rng(seed))  # type: ignore[arg-type]
    return auc_interval(scores.inside, scores.outside)


@pytest.mark.parametrize("attack", [LiRA(32), RMIA(32), RMIA(32, a=0.5, margin=0.1)])
def test_a_gaussian_of_thirty_records_is_caught(attack: LiRA | RMIA) -> None:
    members, others = population(0, 30, 30)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    assert auc(attack, release, members, others).low > 0.7


@pytest.mark.parametrize("attack", [LiRA(8), RMIA(8)])
def test_a_gaussian_of_fresh_records_is_not_accused(attack: LiRA | RMIA) -> None:
    """At 95 % intervals one in forty is expected above; over 20 seeds four would be too many."""
    accused = 0
    for seed in range(20):
        members, others, non_members = population(seed, 30, 30, 30, d=16)
        release = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
        accused += auc(attack, release, members, others, seed).low > 0.5
    assert accused <= 3


def test_an_overfitted_cvae_is_caught() -> None:
    members, others = population(1, 20, 20, d=16)
    generator = CVAEGenerator("small", hidden=(48,), latent=8, beta=0.01, max_epochs=250, random_state=0)
    release = generator.fit(members.X, members.y).release(no_dp=True)
    assert auc(LiRA(8), release, members, others).low > 0.6


def test_swapping_members_and_non_members_swaps_the_scores() -> None:
    a, b, non_members = population(2, 20, 24, 30, d=8)
    release = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
    for attack in (LiRA(8, seed=1), RMIA(8, seed=1)):
        one, two = (attack.score(release, *pair, np.random.default_rng(0)) for pair in ((a, b), (b, a)))
        assert np.array_equal(one.inside, two.outside)
        assert np.array_equal(one.outside, two.inside)


def test_both_share_their_shadows(tmp_path: Path) -> None:
    members, others = population(3, 20, 20, d=8)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    told: list[tuple[int, int]] = []
    path = tmp_path / "state"
    LiRA(8, seed=1, state=path).score(release, members, others, np.random.default_rng(0))
    RMIA(8, seed=1, state=path, progress=lambda *d: told.append(d)).score(
        release, members, others, np.random.default_rng(5)
    )
    assert told == [(8, 8)]


def test_the_ratio_of_two_normal_densities_by_hand() -> None:
    """Equal spreads s on both sides: the log ratio is (own - middle) times the gap of the means over s squared."""
    inside = np.repeat([True, False], 100)[:, None]
    noise = np.tile([-1.0, 1.0], 100)[:, None]
    shadows = np.where(inside, 5.0, 3.0) + noise
    variance = 100 / 99
    for own in (2.0, 4.0, 5.5):
        found = likelihood_ratio(ShadowScores(np.array([own]), shadows, inside))
        assert found[0] == pytest.approx((own - 4.0) * 2.0 / variance, rel=1e-6, abs=1e-9)


def test_a_record_that_one_side_lacks_gets_nothing() -> None:
    shadows = np.array([[np.nan, 1.0], [np.nan, 0.0], [1.0, 2.0], [3.0, 1.0]])
    inside = np.array([[False, True], [False, True], [True, False], [True, False]])
    seen = ShadowScores(np.array([1.0, 1.0]), shadows, inside)
    assert likelihood_ratio(seen)[0] == 0.0
    assert relative_ratio(seen, 1.0, 0.0)[0] == 0.5


def test_the_share_of_records_that_are_beaten_by_hand() -> None:
    seen = ShadowScores(np.array([3.0, 1.0, 2.0]), np.zeros((2, 3)), np.zeros((2, 3), dtype=bool))
    assert relative_ratio(seen, 1.0, 0.0).tolist() == [1.0, 0.0, 0.5]
    assert relative_ratio(seen, 1.0, 1.5).tolist() == [0.5, 0.0, 0.0]
    assert 0 <= best_a(ShadowScores(np.zeros(40), *_random_shadows())) <= 1


def _random_shadows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 40)), rng.random((8, 40)) < 0.5


def test_wrong_settings() -> None:
    members, others = population(4, 20, 20, d=8)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    with pytest.raises(ConfigError, match="`a` must lie in"):
        RMIA(8, a=2.0).score(release, members, others, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="even number"):
        LiRA(2).score(release, members, others, np.random.default_rng(0))
