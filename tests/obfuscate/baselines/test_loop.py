"""Losses against figures that can be redone by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from locum.nets import ColumnTypes
from locum.obfuscate.baselines._loop import Rows, breach, confusion, gaussian_kl, guess_loss, reconstruction
from locum.obfuscate.baselines.vfae import mean_discrepancy


def test_confusion_is_nothing_for_an_attacker_who_guesses_by_frequency() -> None:
    prior = torch.tensor([0.25, 0.75])
    assert float(confusion(prior.log().repeat(5, 1), prior)) == pytest.approx(0, abs=1e-6)
    # By hand: the divergence of (1/4, 3/4) from (1/2, 1/2).
    by_hand = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert float(confusion(torch.zeros(5, 2), prior)) == pytest.approx(by_hand)


def test_an_absent_private_class_costs_nothing() -> None:
    assert torch.isfinite(confusion(torch.zeros(2, 3), torch.tensor([0.5, 0.0, 0.5])))


def test_guesses_of_several_attributes_are_added() -> None:
    loss = guess_loss(torch.zeros(4, 5), torch.tensor([[0, 2], [1, 0], [1, 1], [0, 0]]), (2, 3))
    assert float(loss) == pytest.approx(math.log(2) + math.log(3))


def test_reconstruction_by_column_type() -> None:
    types = ColumnTypes(3, (slice(0, 2),))
    x = torch.tensor([[1.0, 0.0, 0.5]])
    spread = torch.tensor([1.0, 1.0, 0.25])
    # A coin flip for the category; the number is right.
    assert float(reconstruction(torch.zeros(1, 3), x, types, spread)) == pytest.approx(math.log(2))
    # The category is right; the number is off by two standard deviations of its column: 4 nats for the square of one.
    sure = torch.tensor([[50.0, -50.0, 50.0]])
    assert float(reconstruction(sure, x, types, spread)) == pytest.approx(4 * 2**2, abs=1e-4)


def test_the_divergence_of_a_standard_normal_latent_is_nothing() -> None:
    zero = torch.zeros(3, 4)
    assert float(gaussian_kl(zero, zero)) == 0
    assert float(gaussian_kl(zero + 1, zero)) == pytest.approx(2)


def test_a_bound_costs_nothing_until_it_is_broken() -> None:
    assert float(breach(torch.tensor(0.2), 0.2, 0.5)) == 0
    assert float(breach(torch.tensor(0.4), 0.2, 0.9)) > float(breach(torch.tensor(0.4), 0.2, 0.1)) > 0


def test_mean_discrepancy_against_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    features, codes = torch.randn(30, 4, generator=rng), torch.arange(30) % 3
    naive = sum(float((features[codes == k].mean(0) - features.mean(0)).square().sum()) for k in range(3))
    # A class that is in no row of the batch adds nothing.
    assert float(mean_discrepancy(features, codes, 4)) == pytest.approx(naive, rel=1e-5)


def test_rows_know_their_classes_and_variance() -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows = Rows.of(X, [[0, 2], [1, 0], [0, 0], [1, 1]], [0, 0, 0, 1], ())
    assert (rows.kind, rows.shape, rows.utility_classes, rows.private_classes) == ("table", (2,), (2, 3), 2)
    assert rows.prior.tolist() == [0.75, 0.25]
    assert rows.variance == pytest.approx(0.5)
