"""PUPET's parameter count, columns that stay what they are, and images of their own size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from locum.nets import ColumnTypes, ImageExtractor, RecordAutoencoder, guesser, masker, noise_maker


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_generator_is_as_large_as_pupets() -> None:
    net = RecordAutoencoder(102)
    assert count(net) == 83_716
    # By hand, with biases: 102 to 128, 128, 128 and 30; 30 to 128, 128 and 102.
    assert count(net.encoder) == 103 * 128 + 2 * 129 * 128 + 129 * 30
    assert count(net.decoder) == 31 * 128 + 129 * 128 + 129 * 102


def test_a_variational_one_has_as_many_again_for_the_log_variance() -> None:
    net = RecordAutoencoder(102, variational=True)
    assert count(net) == 83_716 + 129 * 30
    mean, log_var = net.encode(torch.rand(4, 102))
    assert mean.shape == log_var.shape == (4, 30)
    assert RecordAutoencoder(102).encode(torch.rand(4, 102))[1].shape == (4, 0)


def test_blocks_are_shares_and_numbers_lie_between_0_and_1() -> None:
    types = ColumnTypes(7, (slice(1, 3), slice(3, 6)))
    scores = 3 * torch.randn(20, 7)
    out = types(scores)
    torch.testing.assert_close(out[:, 1:3], torch.softmax(scores[:, 1:3], dim=1))
    torch.testing.assert_close(out[:, 3:6].sum(dim=1), torch.ones(20))
    torch.testing.assert_close(out[:, [0, 6]], torch.sigmoid(scores[:, [0, 6]]))


def test_without_blocks_every_column_is_a_number() -> None:
    scores = torch.randn(5, 4)
    torch.testing.assert_close(ColumnTypes(4)(scores), torch.sigmoid(scores))


def test_a_pick_has_one_category_and_lets_gradients_through() -> None:
    types = ColumnTypes(4, (slice(0, 3),))
    values = torch.tensor([[0.2, 0.5, 0.3, 0.7]], requires_grad=True)
    picked = types.pick(values)
    torch.testing.assert_close(picked.detach(), torch.tensor([[0.0, 1.0, 0.0, 0.7]]))
    (picked * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([[1.0, 2.0, 3.0, 4.0]]))


def test_settled_rows_are_records_and_records_stay() -> None:
    types = ColumnTypes(4, (slice(1, 4),))
    record = torch.tensor([[0.3, 0.0, 1.0, 0.0]])
    assert torch.equal(types.settle(record), record)
    assert torch.equal(
        types.settle(record + torch.tensor([[2.0, 1.5, 0.0, 0.0]])), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    )
    assert torch.equal(ColumnTypes(4).settle(record + 5), record + 5)


@pytest.mark.parametrize("shape", [(9,), (1, 16, 16), (3, 32, 32), (3, 16, 48)])
def test_networks_take_rows_of_any_kind_and_start_by_adding_nothing(shape: tuple[int, ...]) -> None:
    x = torch.rand(3, *shape)
    assert guesser(shape, 5)(x).shape == (3, 5)
    assert torch.equal(masker(shape)(x, torch.cat([x, x], dim=1)), x)
    assert torch.equal(noise_maker(shape, 6)(x, torch.randn(3, 6)), x)


def test_an_extractor_gives_maps_that_decode_to_the_size_they_came_from() -> None:
    net = ImageExtractor(3)
    maps = net.encoder(torch.rand(2, 3, 16, 32))
    assert maps.shape == (2, 64, 4, 8)
    assert net(maps).shape == (2, 3, 16, 32)
    assert guesser((64, 4, 8), 2)(maps).shape == (2, 2)
