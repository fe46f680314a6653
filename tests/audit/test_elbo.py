"""The attacker's own encoder: what an overfitted decoder makes likely are its records."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import EncoderELBO, LatentSearch
from locum.errors import ConfigError, NotApplicableError
from locum.generate import ClassGaussian, CVAEGenerator, KSame
from locum.metrics import auc_interval

QUICK = EncoderELBO(steps=250, batch=128, hidden=64, draws=16)


def population(seed: int, *sizes: int, d: int = 16) -> list[EmbeddingSet]:
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    y = np.arange(n) % 2
    data = EmbeddingSet((rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 2 * y[:, None]).astype(np.float32), y)
    ends = np.cumsum([0, *sizes])
    return [data.take(np.arange(a, b)) for a, b in pairwise(ends)]


def test_an_overfitted_decoder_is_caught_and_one_of_fresh_records_is_not() -> None:
    members, others, non_members = population(0, 20, 40, 20)
    generator = CVAEGenerator("small", hidden=(64,), latent=8, beta=0.01, max_epochs=400, random_state=0)
    release = generator.fit(members.X, members.y).release(no_dp=True)
    scores = QUICK.score(release, members, others, np.random.default_rng(0))
    assert auc_interval(scores.inside, scores.outside).low > 0.6
    fresh = QUICK.score(release, non_members, others, np.random.default_rng(0))
    assert auc_interval(fresh.inside, fresh.outside).low < 0.5 < auc_interval(fresh.inside, fresh.outside).high


def test_it_is_near_the_true_likelihood_where_that_is_known() -> None:
    """A network of one linear layer with noise is a Gaussian: the bound orders records as its density does."""
    from locum.release import NetworkSpec, build_release

    data, others = population(1, 60, 60, d=6)
    gaussian = ClassGaussian(rank=2, random_state=0).fit(data.X, data.y).release(no_dp=True)
    factor, means, scale = (gaussian.tensors[k] for k in ("factor", "means", "scale"))
    linear = {"op": "linear", "weight": "w", "bias": "b"}
    weight = np.concatenate([factor.T, np.zeros((6, 2), np.float32)], axis=1)
    network = build_release(
        generator="Linear",
        settings={},
        embedding=gaussian.manifest.embedding,
        classes=gaussian.manifest.classes,
        class_names=gaussian.manifest.class_names,
        joint=gaussian.manifest.joint,
        space="raw",
        decoder=NetworkSpec(latent_dim=len(factor), program=[linear], noise="diagonal"),
        tensors={
            "w": weight,
            "b": np.zeros(6),
            "span": np.ones(6),
            "offset": means,
            "noise_scale": scale,
        },
        claim=gaussian.claim,
    )
    bound = QUICK.score(network, data, others, np.random.default_rng(0)).outside
    truth = LatentSearch().score(gaussian, data, others, np.random.default_rng(0)).outside
    assert np.corrcoef(bound, truth)[0, 1] > 0.95


def test_a_gaussian_is_scored_by_its_density_and_a_table_not_at_all() -> None:
    members, others = population(2, 30, 30)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    a = QUICK.score(release, members, others, np.random.default_rng(0))
    b = LatentSearch().score(release, members, others, np.random.default_rng(0))
    np.testing.assert_allclose(np.diff(a.inside), np.diff(b.inside), rtol=1e-6)
    with pytest.raises(NotApplicableError, match="fixed table"):
        QUICK.score(
            KSame(k=2).fit(members.X, members.y).release(no_dp=True), members, others, np.random.default_rng(0)
        )
    with pytest.raises(ConfigError, match="`draws` must be 1 or more"):
        EncoderELBO(draws=0).score(release, members, others, np.random.default_rng(0))
