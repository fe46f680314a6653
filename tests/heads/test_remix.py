"""Remix: the rule for labels by hand, mixes against a loop, and what a soft target would give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from locum.errors import ConfigError
from locum.heads import Remix
from locum.heads.losses import CrossEntropy
from locum.heads.objective import Batch, Objective
from locum.train import seeded


@pytest.mark.parametrize(
    ("weight", "size", "partner", "share"),
    [
        (0.4, 300, 100, 0.0),  # three times as large, weighs less than a half: the small class takes the label
        (0.4, 299, 100, 0.4),  # not quite three times
        (0.5, 900, 100, 0.5),  # weighs a half: no longer less
        (0.6, 900, 100, 0.6),
        (0.6, 100, 300, 1.0),  # the other way round: the small class keeps it
        (0.5, 100, 300, 0.5),
        (0.4, 100, 900, 0.4),
        (0.2, 100, 100, 0.2),
        (0.8, 100, 100, 0.8),
        (0.0, 900, 100, 0.0),
        (1.0, 100, 900, 1.0),
    ],
)
def test_label_share_by_hand(weight: float, size: float, partner: float, share: float) -> None:
    arguments = (torch.tensor([float(v)], dtype=torch.float64) for v in (weight, size, partner))
    assert Remix().label_share(*arguments).tolist() == [share]


def test_mixed_rows_are_what_a_loop_makes() -> None:
    n = 200
    sizes = torch.tensor([900.0, 250.0, 10.0]).repeat(n)[:n]
    # Rows of an identity show the weights in the mix itself.
    mixed = Remix().mix(torch.eye(n, dtype=torch.float64), sizes, seeded(4))
    assert sorted(mixed.partner.tolist()) == list(range(n))
    weights = []
    for i in range(n):
        j = int(mixed.partner[i])
        weight = float(mixed.x[i, i]) if i != j else None
        if weight is None:
            continue
        assert float(mixed.x[i, j]) == pytest.approx(1 - weight)
        assert float(mixed.x[i].sum()) == pytest.approx(1)
        expected = weight
        if sizes[i] / sizes[j] >= 3 and weight < 0.5:
            expected = 0.0
        elif sizes[j] / sizes[i] >= 3 and 1 - weight < 0.5:
            expected = 1.0
        assert float(mixed.share[i]) == pytest.approx(expected)
        weights.append(weight)
    assert len(set(weights)) == len(weights), "each row has a weight of its own"
    assert np.mean(weights) == pytest.approx(0.5, abs=0.1)


def test_without_tau_it_is_mixup() -> None:
    sizes = torch.tensor([900.0, 1.0]).repeat(50)
    mixed = Remix(tau=0.0).mix(torch.eye(100), sizes, seeded(0))
    moved = mixed.partner != torch.arange(100)
    torch.testing.assert_close(mixed.share[moved], mixed.x.diagonal()[moved])


def test_alpha_says_how_even_mixes_are() -> None:
    spread = [
        float(Remix(alpha=alpha, tau=0).mix(torch.zeros(4000, 1), torch.ones(4000), seeded(0)).share.var())
        for alpha in (0.1, 1.0, 10.0)
    ]
    # The variance of Beta(a, a) is 1 / (4 (2 a + 1)).
    assert spread == pytest.approx([1 / 4.8, 1 / 12, 1 / 84], rel=0.1)


def test_for_cross_entropy_two_labels_are_one_soft_target() -> None:
    torch.manual_seed(0)
    layer, x, target = nn.Linear(5, 3), torch.randn(40, 5), torch.randint(3, (40,))
    sizes = torch.tensor([900.0, 90.0, 9.0])
    objective = Objective(CrossEntropy([900, 90, 9]), remix=Remix(), sizes=sizes)
    mixed = Remix().mix(x, sizes[target], seeded(3))
    hot = functional.one_hot(target, 3).float()
    soft = mixed.share[:, None] * hot + (1 - mixed.share[:, None]) * hot[mixed.partner]
    expected = functional.cross_entropy(layer(mixed.x), soft)
    torch.testing.assert_close(objective(layer, Batch(x, target), seeded(3)), expected)


def test_a_mixed_row_takes_the_weight_of_each_label() -> None:
    torch.manual_seed(0)
    layer, x, target, weight = nn.Linear(5, 2), torch.randn(30, 5), torch.randint(2, (30,)), torch.rand(30)
    sizes, classes = torch.tensor([90.0, 9.0]), torch.tensor([0.5, 2.0])
    objective = Objective(CrossEntropy([90, 9]), classes, Remix(), sizes)
    mixed = Remix().mix(x, sizes[target], seeded(1))
    total = 0.0
    for i, logits in enumerate(layer(mixed.x)):
        for row, share in ((i, mixed.share[i]), (int(mixed.partner[i]), 1 - mixed.share[i])):
            own = functional.cross_entropy(logits, target[row])
            total = total + share * own * weight[row] * classes[target[row]] / len(x)
    torch.testing.assert_close(objective(layer, Batch(x, target, weight), seeded(1)), total)


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"kappa": 0.5}, {"tau": 1.5}, {"kappa": float("nan")}])
def test_wrong_settings_name_themselves(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Remix(**wrong)
