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
from locum.audit.shadows.draws import HeadDraws, SumDraw, Units, next_query
from locum.data import load_reference
from locum.errors import NotApplicableError
from locum.generate import ClassGaussian
from locum.generate.private import (
    FIRST,
    MEANS,
    MEANS_AND_PRODUCTS,
    Descent,
    HeadQuery,
    Shares,
    paid_sums,
    query_sums,
)
from locum.metrics import auc_interval
from locum.release import Release
from locum.types import DP, PrivacyClaim


def private(data: EmbeddingSet, seed: int, epsilon: float = 1.0, mechanism: str = "covariance") -> Release:
    budget = DP(epsilon, 1e-6, n_public=len(data))
    made = ClassGaussian(privacy=budget, classes=[0, 1], mechanism=mechanism, insecure_seed=seed)
    return made.fit(data.X, data.y).release()


def records(subject: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, classes and units: records, or subjects of one to seven records in no order."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(3, size=60)
    return X, y, rng.permutation(np.repeat(np.arange(15), np.arange(15) % 7 + 1)) if subject else np.arange(60)


@pytest.mark.parametrize("subject", [False, True])
@pytest.mark.parametrize("shares", [MEANS, MEANS_AND_PRODUCTS, FIRST], ids=["means", "products", "pooled"])
def test_contributions_to_sums_equal_those_of_each_unit_alone(shares: Shares, subject: bool) -> None:
    X, y, of = records(subject)
    X, y, reference = X[: len(of)], y[: len(of)], load_reference("none", 5)
    draw = SumDraw(X, y, Units(of), 3, reference, shares)
    alone = [
        query_sums(X[of == k], y[of == k], of[of == k] if subject else None, 3, reference, shares)
        for k in range(of.max() + 1)
    ]
    agree(draw, np.stack(alone))


@pytest.mark.parametrize("subject", [False, True])
def test_contributions_to_a_head_equal_those_of_each_unit_alone(subject: bool) -> None:
    """At every draw: the twin in floating point against the integers of the mechanism."""
    X, y, of = records(subject)
    X, y, reference = X[: len(of)], y[: len(of)], load_reference("none", 5)
    twin, rng = HeadDraws(X, y, Units(of), 3, reference), np.random.default_rng(0)
    queries = [
        HeadQuery(X[of == k], y[of == k], of[of == k] if subject else None, 3, reference) for k in range(of.max() + 1)
    ]
    descent = Descent(0.3, 3, 5)
    while not descent.done:
        alone = np.stack([next_query(query, descent).to_array() for query in queries])
        agree(next_query(twin, descent), alone)
        descent.take(alone.sum(axis=0) + rng.normal(size=descent.size))
    assert descent.taken > 6


def agree(draw: Any, alone: np.ndarray) -> None:
    """Sums over some units, products and lengths, from a naive table of contributions."""
    rng = np.random.default_rng(1)
    inside, sums = rng.random(len(alone)) < 0.5, rng.normal(size=alone.shape[1])
    np.testing.assert_allclose(draw.sums(inside), alone[inside].sum(axis=0), atol=1e-3)
    np.testing.assert_allclose(draw.products(sums), alone @ sums, atol=1e-3)
    np.testing.assert_allclose(draw.squares(), np.square(alone).sum(axis=1), atol=1e-3)
    np.testing.assert_allclose(draw.gram(), alone @ alone.T, atol=1e-3)


def test_only_the_first_records_of_a_large_subject_count() -> None:
    rng, reference = np.random.default_rng(0), load_reference("none", 5)
    X, y, of = rng.normal(size=(100, 5)).astype(np.float32), rng.integers(2, size=100), np.repeat([0, 1], [90, 10])
    twin = HeadDraws(X, y, Units(of), 2, reference)
    alone = [HeadQuery(X[of == k], y[of == k], of[of == k], 2, reference).first(FIRST).to_array() for k in (0, 1)]
    agree(twin.first(FIRST), np.stack(alone))


def head(data: EmbeddingSet, seed: int, epsilon: float) -> Release:
    return private(data, seed, epsilon, "head")


def auc(release: Release, members: EmbeddingSet, others: EmbeddingSet, seed: int) -> float:
    scores = SumLiRA(shadows=16).score(release, members, others, np.random.default_rng(seed))
    return auc_interval(scores.inside, scores.outside).value


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_mean_over_many_heads_keeps_the_limit_and_is_not_chance(
    epsilon: float, subjects: Callable[..., Any]
) -> None:
    found, fits = [], 12
    for seed in range(fits):
        members, others, _ = subjects(seed, n=400, d=40)
        release = head(members, seed, epsilon)
        assert release.manifest.decoder.head.steps > 0
        found.append(auc(release, members, others, seed))
    limit = attack_limit(ClassGaussian(privacy=DP(epsilon, 1e-6), classes=[0, 1]).plan().events)
    margin = 3 * np.std(found, ddof=1) / np.sqrt(fits)
    assert np.mean(found) - margin <= limit
    assert np.mean(found) - margin > 0.5


@pytest.mark.parametrize("stage", [0, 1, 5])
def test_one_draw_without_noise_is_far_above_the_limit(
    stage: int, subjects: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first query, class sums, or a step: one of eight draws or more."""
    honest = paid_sums.noisy

    def leaky(sums: Any, noise: float, *, insecure_seed: int, step: int) -> Any:
        return sums if step == stage else honest(sums, noise, insecure_seed=insecure_seed, step=step)

    monkeypatch.setattr(paid_sums, "noisy", leaky)
    found = []
    for seed in range(6):
        members, others, _ = subjects(seed, n=100, d=200)
        release = head(members, seed, 3.0)
        assert release.manifest.decoder.head.steps >= 6
        found.append(auc(release, members, others, seed))
    limit = attack_limit(ClassGaussian(privacy=DP(3.0, 1e-6), classes=[0, 1]).plan().events)
    assert np.mean(found) - 3 * np.std(found, ddof=1) / np.sqrt(6) > limit


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


@pytest.mark.parametrize("mechanism", ["covariance", "head"])
def test_a_loud_release_is_found_and_fresh_data_are_silent(mechanism: str, subjects: Callable[..., Any]) -> None:
    members, others, fresh = subjects(1, n=600, d=48)
    loud = SumLiRA(shadows=16).run(private(members, 0, 50.0, mechanism), members, others, np.random.default_rng(0))
    assert loud.verdict == "leak"
    assert loud.attack.low > loud.control.high
    accused = 0
    for seed in range(10):
        members, others, fresh = subjects(50 + seed, n=200, d=24)
        made = private(fresh, seed, mechanism=mechanism)
        silent = SumLiRA(shadows=8).run(made, members, others, np.random.default_rng(seed))
        accused += silent.verdict == "leak"
    assert accused <= 1


@pytest.mark.parametrize("seed", [None, 0], ids=["paid", "test"])
@pytest.mark.parametrize("mechanism", ["covariance", "head"])
def test_subjects_are_found_as_a_whole(mechanism: str, seed: int | None, tmp_path: Path) -> None:
    """Several records each, summed and cut: a score per subject, and the leak of a loud release is found."""
    rng = np.random.default_rng(0)
    people = rng.normal(size=(400, 24))
    X = np.repeat(people, 4, axis=0) + rng.normal(size=(1600, 24))
    data = EmbeddingSet(X.astype(np.float32), np.repeat(np.arange(400) % 2, 4), subject=np.repeat(np.arange(400), 4))
    members, others = data.take(np.arange(800)), data.take(np.arange(800, 1600))
    budget = DP(50.0, 1e-6, unit="subject", n_public=200)
    # A test with an insecure seed claims no guarantee, but says by what it counted.
    paid = {"ledger": tmp_path / "ledger.sqlite"} if seed is None else {"insecure_seed": seed}
    made = ClassGaussian(privacy=budget, classes=[0, 1], mechanism=mechanism, **paid)
    release = made.fit(members.X, members.y, members.subject).release()
    scores = SumLiRA(shadows=16).score(release, members, others, rng)
    unit = scores.inside.reshape(-1, 4)
    assert (release.claim.unit, release.claim.test) == ("subject", seed is not None)
    assert (unit == unit[:, :1]).all()
    assert SumLiRA(shadows=16).run(release, members, others, rng).verdict == "leak"


def test_a_release_without_sums_has_none(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(2)
    release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    with pytest.raises(NotApplicableError, match="no noisy sums"):
        SumLiRA().score(release, members, others, np.random.default_rng(0))


def test_what_a_release_claims_does_not_matter(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(3, n=60)
    release = head(members, 0, 3.0)
    claims = [PrivacyClaim("none", ("all",)), PrivacyClaim("k-anonymity", ("all",), k=5), release.claim]
    found = []
    for claim in claims:
        forged = Release(release.manifest.model_copy(update={"claim": claim}), release.tensors)
        found.append(SumLiRA(shadows=8, seed=0).score(forged, members, others, np.random.default_rng(0)).inside)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"start": 0.95, "steps": 4}, "more precision than there is"), ({"learning_rate": 1e9}, "not finite")],
)
def test_a_schedule_that_makes_no_sense_is_refused_in_one_sentence(
    changed: dict[str, Any], said: str, subjects: Callable[..., Any]
) -> None:
    members, others, _ = subjects(4, n=60)
    release = head(members, 0, 3.0)
    spec = release.manifest.decoder.head.model_copy(update={"decay": 0.9} | changed)
    decoder = release.manifest.decoder.model_copy(update={"head": spec.model_copy(update={"steps": 60})})
    size = spec.model_copy(update={"steps": 60}).size(2, members.dim)
    tensors = release.tensors | {"transcript": np.random.default_rng(0).normal(size=size).astype(np.float32)}
    forged = Release(release.manifest.model_copy(update={"decoder": decoder}), tensors)
    with pytest.raises(NotApplicableError, match=said):
        SumLiRA(shadows=4).score(forged, members, others, np.random.default_rng(0))
