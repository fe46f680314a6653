"""Sizes of the seed's GAN, and vectors of order one from the start."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from locum.nets import plain_cgan
from locum.train.dp import ClippedNetwork


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_parameter_count_is_the_seeds() -> None:
    net = plain_cgan(768, 11)
    assert count(net) == 2_693_889
    # By hand: 111 to 512 to 1024 to 768, and 779 to 1024 to 512 to 1, with biases.
    assert count(net.generator) == 112 * 512 + 513 * 1024 + 1025 * 768
    assert count(net.critic) == 780 * 1024 + 1025 * 512 + 513


def test_sizes_are_settings() -> None:
    net = plain_cgan(6, 2, 3, (5,), (4, 7))
    assert [layer.out_features for layer in net.generator if isinstance(layer, nn.Linear)] == [5, 6]
    assert [layer.out_features for layer in net.critic if isinstance(layer, nn.Linear)] == [4, 7, 1]


@pytest.mark.parametrize("hidden", [(512, 1024), (64,), (32, 32, 32)])
def test_the_first_vectors_have_numbers_of_order_one(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = plain_cgan(40, 3, 100, hidden)
    condition = torch.eye(3)[torch.arange(600) % 3]
    with torch.no_grad():
        x = net.generate(torch.randn(600, 100), condition)
    assert x.shape == (600, 40)
    assert 0.5 < float(x.square().mean()) < 2


def test_with_a_sigmoid_it_stays_between_0_and_1() -> None:
    x = plain_cgan(4, 2, 3, (8,), (8,), sigmoid=True).generate(5 * torch.randn(50, 3), torch.zeros(50, 2))
    assert ((x >= 0) & (x <= 1)).all()


def test_the_critic_sees_a_label_as_well_as_a_vector() -> None:
    """A label of length 1 among vectors of length 28 would be nothing to it."""
    net = plain_cgan(768, 2, 3, (8,), (8,))
    x = torch.randn(5, 768)
    rows = net.join(x, torch.eye(2)[[0, 1, 0, 1, 1]])
    torch.testing.assert_close(rows[:, :768], x)
    assert (rows[:, 768:].norm(dim=1) > x.norm(dim=1)).all()
    assert net(rows).shape == (5,)


def test_the_critic_can_be_clipped() -> None:
    assert ClippedNetwork(plain_cgan(6, 2, 3, (5,), (4,)).critic).inputs == 8
