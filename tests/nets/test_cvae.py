"""Sizes of the seeds' networks, as their texts and code give them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from locum.nets import CVAE, ResidualBlock, plain_cvae, residual_cvae


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (plain_cvae(768, 100, (512,), 100, sigmoid=True), 1_044_424),
        (plain_cvae(768, 10, (512,), 100, sigmoid=True), 952_264),
        (residual_cvae(768, 100, 100, sigmoid=True), 3_120_584),
        (plain_cvae(768, 11, (256, 256, 256), 100, sigmoid=True), 740_296),
    ],
    ids=["small, 100 classes", "small, 10 classes", "large", "federated"],
)
def test_parameter_counts_are_the_seeds(net: CVAE, expected: int) -> None:
    assert count(net) == expected


def test_the_federated_decoder_has_its_size() -> None:
    assert count(plain_cvae(768, 11, (256, 256, 256), 100, sigmoid=True).decoder) == 357_632


def test_latent_is_mean_plus_scaled_noise() -> None:
    net = plain_cvae(4, 2, (8,), 3, sigmoid=False)
    x, c, noise = torch.randn(5, 4), torch.eye(2)[torch.tensor([0, 1, 0, 1, 1])], torch.randn(5, 3)
    out, mean, log_var = net(torch.cat([x, c], dim=1), noise, 0.5)
    torch.testing.assert_close(out, net.decode(mean + noise * log_var.exp().sqrt(), c))


def test_without_condition_it_is_a_vae() -> None:
    net = plain_cvae(4, 0, (8,), 3, sigmoid=True)
    out, _, _ = net(torch.randn(5, 4), torch.zeros(5, 3), 0.5)
    assert out.shape == (5, 4)
    assert ((out > 0) & (out < 1)).all()


def test_a_block_of_equal_sizes_has_no_projection() -> None:
    assert len(ResidualBlock(4, 4).shortcut) == 0
    assert len(ResidualBlock(4, 5).shortcut) == 2
