"""The seed's networks, counted."""

from __future__ import annotations

import pytest
import torch

from locum.errors import ConfigError
from locum.nets import image_obfuscator, table_obfuscator


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_as_many_parameters_as_the_seed() -> None:
    assert {count(table_obfuscator(102, [2], ends=ends)) for ends in ("paper", "linear")} == {86_494}
    assert count(image_obfuscator(3, 64, [2])) == 9_204_032


@pytest.mark.parametrize(("channels", "side"), [(1, 16), (3, 32), (1, 48)])
def test_images_come_back_in_their_size(channels: int, side: int) -> None:
    net = image_obfuscator(channels, side, [2, 3]).eval()
    x = torch.rand(4, channels, side, side)
    rebuilt, needed = net(x)
    assert rebuilt.shape == x.shape
    assert needed.shape == (4, 5)


def test_each_attribute_has_probabilities_of_its_own() -> None:
    needed, rest = table_obfuscator(7, [2, 4]).split(torch.rand(5, 7))
    assert torch.allclose(needed[:, :2].exp().sum(dim=1), torch.ones(5))
    assert torch.allclose(needed[:, 2:].exp().sum(dim=1), torch.ones(5))
    assert rest.shape == (5, 64 - 6)


def test_linear_ends_have_no_bounds() -> None:
    torch.manual_seed(0)
    net = table_obfuscator(7, [2], ends="linear")
    rest = net.split(torch.rand(200, 7))[1]
    assert (rest < 0).any()
    assert (net(10 * torch.randn(200, 7))[0] < 0).any()
    assert (table_obfuscator(7, [2]).split(torch.rand(200, 7))[1] >= 0).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: table_obfuscator(4, [1]), "two or more values"),
        (lambda: table_obfuscator(4, [64]), "do not fit"),
        (lambda: image_obfuscator(3, 40, [2]), "multiple of 16"),
    ],
)
def test_what_cannot_be_built_is_refused(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()  # type: ignore[operator]
