"""Neighbor replay of a DP-CGAN: with the same seed, one unit more or less moves the first step by at most the clip.

Plain descent of rate 1 with an expected batch of 1 shows the noisy sum as it is; noise and what the trainer adds are
the same on both sides and cancel. The unit comes last, so that the random numbers of all others stay the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from locum.accounting import SGDPlan
from locum.data import Reference
from locum.generate import AS_REAL, CGANGenerator
from locum.generate.adversary import GeneratorTrainer, gradient_on_fakes
from locum.generate.private import unit_vectors
from locum.nets import CGAN, plain_cgan
from locum.train import seeded
from locum.train.dp import PrivateRun
from locum.types import DP

D = 4


def a_net(seed: int) -> CGAN:
    torch.manual_seed(seed)
    return plain_cgan(D, 2, 3, (6,), (6, 5))


def first_step(
    X: np.ndarray, y: np.ndarray, seed: int, clip: float, subject: np.ndarray | None = None
) -> tuple[Tensor, Tensor]:
    """How far the critic went in its first step, and where the generator stands after it."""
    net = a_net(seed)
    unit, _ = unit_vectors(X.astype(np.float32), Reference.plain(D))
    rows = net.join(torch.from_numpy(2 * unit).float(), torch.eye(2)[torch.from_numpy(y)])
    trainer = GeneratorTrainer(net, torch.eye(2), 1e-3, seeded(seed))
    trainer.centers = torch.zeros(2, D)
    plan = SGDPlan(DP(1.0, 1e-6, "record" if subject is None else "subject", n_public=1000), 0.6, 1, 1, clip, 1.0)
    before = flat(net.critic)
    PrivateRun(
        net.critic,
        rows,
        AS_REAL,
        plan,
        subject=subject,
        optimizer="sgd",
        learning_rate=1.0,
        insecure_seed=seed,
        public_gradient=gradient_on_fakes(net, trainer, plan),
    ).run()
    return before - flat(net.critic), flat(net.generator)


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]).double()


number = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 1e-30, 1e19, -1e30, float("nan"), float("inf")]))
row = st.tuples(st.lists(number, min_size=D, max_size=D), st.integers(0, 1))


@settings(max_examples=60)
@given(
    others=st.lists(row, max_size=8),
    unit=st.lists(row, min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
    clip=st.sampled_from([0.1, 1.0, 20.0]),
    by_subject=st.booleans(),
)
def test_one_unit_moves_the_first_step_by_the_clip_at_most(
    others: list, unit: list, seed: int, clip: float, by_subject: bool
) -> None:
    new = unit if by_subject else unit[:1]
    both = others + new
    X = np.array([x for x, _ in both], dtype=np.float32).reshape(-1, D)
    y = np.array([c for _, c in both], dtype=np.int64)
    codes = np.append(np.arange(len(others)) // 2, np.full(len(new), 99)) if by_subject else None
    n = len(others)
    with_it = first_step(X, y, seed, clip, codes)
    without = first_step(X[:n], y[:n], seed, clip, None if codes is None else codes[:n])
    assert float((with_it[0] - without[0]).norm()) <= clip * (1 + 1e-4) + 1e-6
    # The generator has seen neither.
    assert torch.equal(with_it[1], without[1])


def test_the_bound_is_reached_and_comes_from_the_clip() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, D)), rng.integers(0, 2, 12)
    for clip, reached in ((0.1, True), (1e6, False)):
        moved = max(
            float((first_step(X, y, seed, clip)[0] - first_step(X[:-1], y[:-1], seed, clip)[0]).norm())
            for seed in range(8)
        )
        assert (abs(moved / clip - 1) < 1e-3) == reached
        assert moved > 0.09


@pytest.mark.parametrize("scaling", ["class", "public"])
def test_a_huge_record_is_no_more_than_any_other(scaling: str) -> None:
    """Only its direction is seen, and only through noisy sums: with the same seed two fits stay finite and near."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, D)).astype(np.float32), np.arange(60) % 2
    far = X.copy()
    far[0] *= np.float32(1e20)
    options = {"latent": 3, "generator_hidden": (6,), "critic_hidden": (6,), "max_epochs": 2, "random_state": 0}
    releases = [
        CGANGenerator(
            scaling=scaling, privacy=DP(1.0, 1e-4, n_public=100), classes=[0, 1], insecure_seed=1, **options
        ).fit(data, y).release()
        for data in (X, far)
    ]  # fmt: skip
    near, other = (r.sample(200, random_state=0)[0] for r in releases)
    assert np.abs(near - other).max() < 3 * np.abs(near).max()
