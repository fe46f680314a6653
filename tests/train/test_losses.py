"""Losses of several blocks against one call per block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.nn import functional

from locum.train import BlockCrossEntropy, seeded


def per_block(logits: Tensor, rows: Tensor, sizes: list[int]) -> Tensor:
    """The naive twin."""
    pairs = zip(logits.split(sizes, dim=1), rows.split(sizes, dim=1), strict=True)
    return torch.stack([functional.cross_entropy(a, b, reduction="none") for a, b in pairs]).sum(dim=0)


def gradient(losses: Tensor, logits: Tensor, weights: Tensor) -> Tensor:
    return torch.autograd.grad((losses * weights).sum(), logits)[0]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    n=st.integers(1, 9),
    spread=st.sampled_from([0.0, 1.0, 10.0, 200.0]),
    kind=st.sampled_from(["one-hot", "probabilities", "some blocks empty"]),
    seed=st.integers(0, 2**16),
)
def test_losses_and_gradients_are_those_of_one_call_per_block(
    sizes: list[int], n: int, spread: float, kind: str, seed: int
) -> None:
    rng = seeded(seed)
    logits = (spread * torch.randn(n, sum(sizes), generator=rng)).requires_grad_()
    blocks = [torch.randn(n, size, generator=rng) for size in sizes]
    rows = torch.cat([b.softmax(1) if kind == "probabilities" else (b == b.amax(1, True)).float() for b in blocks], 1)
    if kind == "some blocks empty":
        rows[:, : sizes[0]] = 0
    weights = torch.randn(n, generator=rng)
    fast, naive = BlockCrossEntropy(sizes)(logits, rows), per_block(logits, rows, sizes)
    # Logits of 200 are sums of large numbers: a float32 holds seven digits of the largest.
    torch.testing.assert_close(fast, naive, rtol=1e-5, atol=1e-5 * max(1.0, spread))
    torch.testing.assert_close(
        gradient(fast, logits, weights), gradient(naive, logits, weights), rtol=1e-5, atol=1e-5
    )


def test_a_block_far_below_another_keeps_its_loss() -> None:
    logits = torch.tensor([[500.0, 500.0, -500.0, -500.0]], requires_grad=True)
    losses = BlockCrossEntropy([2, 2])(logits, torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    assert losses.item() == pytest.approx(2 * 0.6931, abs=1e-3)
    assert gradient(losses, logits, torch.ones(1)).tolist() == [[-0.5, 0.5, 0.5, -0.5]]
