"""Draws: what each sampler guarantees, and the fast draw against a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from locum.errors import ConfigError
from locum.heads import SAMPLERS, augment_probability, class_shares
from locum.heads.sampling import drawn_rows, row_batches, row_probability
from locum.train import seeded

counts_strategy = st.lists(st.integers(1, 10_000), min_size=2, max_size=20)
CODES = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)


def frequencies(batches: object, epochs: int, seed: int = 0) -> np.ndarray:
    rng = seeded(seed)
    rows = torch.cat([i for _ in range(epochs) for i in batches(rng)])
    return np.bincount(CODES[rows].numpy(), minlength=3) / len(rows)


def test_shares_by_hand() -> None:
    assert class_shares("instance", [900, 90, 10]).tolist() == [0.9, 0.09, 0.01]
    assert class_shares("class_balanced", [900, 90, 10]) == pytest.approx([1 / 3] * 3)
    assert class_shares("square_root", [16, 9, 1]) == pytest.approx([4 / 8, 3 / 8, 1 / 8])
    assert class_shares("progressive", [30, 10], progress=0.0).tolist() == [0.75, 0.25]
    assert class_shares("progressive", [30, 10], progress=1.0).tolist() == [0.5, 0.5]


@given(counts=counts_strategy, sampler=st.sampled_from(SAMPLERS), progress=st.floats(0, 1))
def test_shares_sum_to_one_and_keep_the_order_of_sizes(counts: list[int], sampler: str, progress: float) -> None:
    shares = class_shares(sampler, counts, progress)
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    assert (np.diff(shares[np.argsort(counts)]) >= -1e-12).all()


def test_a_row_of_balanced_classes_has_one_over_c_n() -> None:
    p = row_probability(CODES, class_shares("class_balanced", [900, 90, 10]))
    for c, n in enumerate((900, 90, 10)):
        assert p[CODES.eq(c)].tolist() == pytest.approx([1 / (3 * n)] * n)
    weighted = row_probability(torch.tensor([0, 0, 1]), np.array([0.5, 0.5]), torch.tensor([1.0, 3.0, 9.0]))
    assert weighted.tolist() == [0.125, 0.375, 0.5]


@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=30), seed=st.integers(0, 1000))
def test_the_fast_draw_equals_a_loop(weights: list[float], seed: int) -> None:
    p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    expected = []
    for u in torch.rand(40, dtype=torch.float64, generator=seeded(seed)).tolist():
        passed, total = 0, float(p.cumsum(0)[-1])
        while passed < len(p) - 1 and float(p.cumsum(0)[passed]) <= u * total:
            passed += 1
        expected.append(passed)
    assert drawn_rows(p, 40, seeded(seed)).tolist() == expected


def test_instance_takes_every_row_once() -> None:
    batches = row_batches(CODES, 3, 64, "instance", epochs=1)
    rows = torch.cat(list(batches(seeded(0))))
    assert sorted(rows.tolist()) == list(range(1000))
    assert rows.tolist() != list(range(1000))


@pytest.mark.parametrize("sampler", ["class_balanced", "square_root"])
def test_an_epoch_has_as_many_draws_as_rows_and_the_expected_shares(sampler: str) -> None:
    batches = row_batches(CODES, 3, 64, sampler, epochs=20)
    first = [len(i) for i in batches(seeded(1))]
    assert sum(first) == 1000
    assert set(first[:-1]) == {64}
    expected = class_shares(sampler, [900, 90, 10])
    # Five standard errors of 20,000 draws.
    assert frequencies(batches, 20) == pytest.approx(expected, abs=5 * math.sqrt(0.25 / 20_000))


def test_progressive_starts_as_instance_and_ends_balanced() -> None:
    batches = row_batches(CODES, 3, 64, "progressive", epochs=11)
    each = [frequencies(batches, 1, seed) for seed in range(11)]
    assert each[0] == pytest.approx([0.9, 0.09, 0.01], abs=0.05)
    assert each[5] == pytest.approx(class_shares("progressive", [900, 90, 10], 0.5), abs=0.08)
    assert each[10] == pytest.approx([1 / 3] * 3, abs=0.08)


def test_weights_act_within_a_class() -> None:
    weight = torch.ones(1000)
    weight[:450] = 3.0
    batches = row_batches(CODES, 3, 1000, "class_balanced", weight=weight, epochs=1)
    rng = seeded(0)
    rows = torch.cat([i for _ in range(20) for i in batches(rng)])
    assert np.bincount(CODES[rows].numpy()) / len(rows) == pytest.approx([1 / 3] * 3, abs=0.02)
    mine = rows[CODES[rows] == 0]
    assert float((mine < 450).double().mean()) == pytest.approx(0.75, abs=0.03)


def test_augment_probability_by_hand() -> None:
    # 1/n is .01, .02, .05: scaled 0, .25, 1.
    assert augment_probability([100, 50, 20]) == pytest.approx([0.01, 0.25, 0.7])
    assert augment_probability([100, 50, 20], p_min=0.3, p_max=1.0) == pytest.approx([0.3, 0.3, 1.0])


@given(counts=counts_strategy)
def test_augment_probability_grows_with_rarity(counts: list[int]) -> None:
    p = augment_probability(counts)
    assert ((p >= 0.01) & (p <= 0.7)).all()
    assert (np.diff(p[np.argsort(counts)]) <= 1e-12).all()
    assert p[np.argmax(counts)] == 0.01
    if len(set(counts)) > 1:
        assert p[np.argmin(counts)] == 0.7


def test_balanced_classes_need_no_more_than_the_least() -> None:
    assert augment_probability([40, 40, 40]).tolist() == [0.01] * 3
    assert augment_probability(np.array([0.1 + 0.2, 0.3])).tolist() == [0.01] * 2


@pytest.mark.parametrize("wrong", [{"p_min": -0.1}, {"p_max": 1.1}, {"p_min": 0.8, "p_max": 0.7}])
def test_probabilities_must_be_in_order(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="`p_min` and `p_max`"):
        augment_probability([2, 1], **wrong)


def test_an_unknown_sampler_is_named() -> None:
    with pytest.raises(ConfigError, match="'balanced'"):
        class_shares("balanced", [2, 1])
