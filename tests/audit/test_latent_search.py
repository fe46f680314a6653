"""An overfitted decoder says its records again; one trained on others does not know them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import logsumexp

from locum import EmbeddingSet
from locum.audit import LatentSearch, Search
from locum.errors import ConfigError, DataError, NotApplicableError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.metrics import auc_interval
from locum.release import MixturePart, MixtureSpec, Release, build_release

QUICK = LatentSearch(Search(steps=40, candidates=64))


def population(seed: int, *sizes: int, d: int = 16) -> list[EmbeddingSet]:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    y = np.arange(n) % 2
    data = EmbeddingSet((rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 2 * y[:, None]).astype(np.float32), y)
    ends = np.cumsum([0, *sizes])
    return [data.take(np.arange(a, b)) for a, b in pairwise(ends)]


def overfitted(data: EmbeddingSet, **settings: object) -> Release:
    generator = CVAEGenerator("small", hidden=(64,), latent=8, beta=0.01, max_epochs=400, random_state=0, **settings)
    return generator.fit(data.X, data.y).release(no_dp=True)


def test_an_overfitted_decoder_is_caught_and_one_of_fresh_records_is_not() -> None:
    members, others, non_members = population(0, 20, 40, 20)
    release = overfitted(members)
    scores = QUICK.score(release, members, others, np.random.default_rng(0))
    assert auc_interval(scores.inside, scores.outside).low > 0.7
    fresh = QUICK.score(release, non_members, others, np.random.default_rng(0))
    assert auc_interval(fresh.inside, fresh.outside).low < 0.5 < auc_interval(fresh.inside, fresh.outside).high


def test_swapping_two_sets_of_non_members_swaps_the_scores() -> None:
    members, a, b = population(1, 20, 15, 18)
    release = overfitted(members)
    one, two = (QUICK.score(release, *pair, np.random.default_rng(3)) for pair in ((a, b), (b, a)))
    np.testing.assert_allclose(one.inside, two.outside, rtol=1e-3)
    np.testing.assert_allclose(one.outside, two.inside, rtol=1e-3)


def test_of_a_mixture_the_nearest_network_counts() -> None:
    members, others, non_members = population(2, 20, 20, 20)
    parts = [overfitted(members), overfitted(non_members)]
    mixed = _mixture(parts)
    alone = [QUICK.score(p, members, others, np.random.default_rng(0)).inside for p in parts]
    found = QUICK.score(mixed, members, others, np.random.default_rng(0))
    assert auc_interval(found.inside, found.outside).low > 0.7
    assert np.corrcoef(found.inside, np.max(alone, axis=0))[0, 1] > 0.8


def test_gaussians_have_their_log_density() -> None:
    members, others, non_members = population(3, 30, 30, 30)
    parts = [ClassGaussian(random_state=0).fit(s.X, s.y).release(no_dp=True) for s in (members, non_members)]
    a, b = (LatentSearch().score(p, members, others, np.random.default_rng(0)).outside for p in parts)
    mixed = LatentSearch().score(_mixture(parts), members, others, np.random.default_rng(0)).outside
    np.testing.assert_allclose(mixed, logsumexp([a, b], axis=0) + np.log(0.5), rtol=1e-5)


def test_where_it_cannot_be_made() -> None:
    members, others = population(4, 20, 20)
    table = KSame(k=2).fit(members.X, members.y).release(no_dp=True)
    with pytest.raises(NotApplicableError, match="fixed table"):
        LatentSearch().score(table, members, others, np.random.default_rng(0))
    mixed = _mixture([overfitted(members), ClassGaussian().fit(members.X, members.y).release(no_dp=True)])
    with pytest.raises(NotApplicableError, match="the ELBO attack can"):
        LatentSearch().score(mixed, members, others, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="`steps` must be 1 or more"):
        Search(steps=0)
    sex = {"sex": np.where(np.arange(20) // 2 % 2, "f", "m")}
    generator = CVAEGenerator(max_epochs=1, condition_on=["sex"], random_state=0)
    release = generator.fit(members.X, members.y, attributes=sex).release(no_dp=True)
    with pytest.raises(DataError, match="conditioned on 'sex'"):
        LatentSearch().score(release, members, others, np.random.default_rng(0))
    told = [EmbeddingSet(s.X, s.y, attributes=sex) for s in (members, others)]
    assert len(QUICK.score(release, *told, np.random.default_rng(0)).inside) == 20


def _mixture(parts: list[Release]) -> Release:
    tensors = {f"part{i}.{name}": value for i, part in enumerate(parts) for name, value in part.tensors.items()}
    manifest = parts[0].manifest
    return build_release(
        generator="Mixture",
        settings={},
        embedding=manifest.embedding,
        classes=manifest.classes,
        class_names=manifest.class_names,
        joint=manifest.joint,
        space="raw",
        decoder=MixtureSpec(parts=tuple(MixturePart(decoder=p.manifest.decoder) for p in parts)),
        tensors={**tensors, "weights": np.full((len(parts), len(manifest.classes)), 1 / len(parts), np.float32)},
        claim=parts[0].claim,
    )
