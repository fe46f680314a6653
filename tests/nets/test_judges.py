"""Layers and first weights of the networks that read a release."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from locum.errors import ConfigError
from locum.nets import image_judge, table_judge


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_table_network_has_the_seeds_layers() -> None:
    net = table_judge(102, 2)
    # By hand: 102 to 256 to 256 to 128 to 2, with biases.
    assert count(net) == 103 * 256 + 257 * 256 + 257 * 128 + 129 * 2
    assert [layer.p for layer in net if isinstance(layer, nn.Dropout)] == [0.2, 0.3, 0.4]
    assert net(torch.rand(5, 102)).shape == (5, 2)


@pytest.mark.parametrize(("channels", "side", "classes"), [(3, 64, 2), (1, 32, 10), (3, 16, 3)])
def test_the_image_network_has_the_seeds_layers_at_any_size(channels: int, side: int, classes: int) -> None:
    net = image_judge(channels, side, classes)
    convolutions = 16 * (channels * 64 + 64 * 64 + 64 * 64 + 64 * 128)
    norms = 2 * (64 + 64 + 128)
    flat = 128 * (side // 16) ** 2
    linear = (flat + 1) * 1024 + 1025 * 1024 + 1025 * 256 + 257 * 64 + 65 * classes
    assert count(net) == convolutions + norms + linear
    assert net(torch.rand(4, channels, side, side)).shape == (4, classes)


def test_first_weights_have_the_seeds_spread() -> None:
    torch.manual_seed(0)
    net = image_judge(3, 32, 2)
    for layer in net.requires_grad_(False):
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is None
            assert abs(float(layer.weight.mean())) < 0.002
            assert 0.018 < float(layer.weight.std()) < 0.022
        if isinstance(layer, nn.BatchNorm2d):
            assert abs(float(layer.weight.mean()) - 1) < 0.01
            assert 0.01 < float(layer.weight.std()) < 0.03
    assert {layer.negative_slope for layer in net if isinstance(layer, nn.LeakyReLU)} == {0.2}


@pytest.mark.parametrize("side", [0, 8, 20, 40])
def test_other_sides_are_refused(side: int) -> None:
    with pytest.raises(ConfigError, match="multiple of 16"):
        image_judge(3, side, 2)
