"""Each loss against values done by hand, and against cross entropy where it must equal it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional

from locum.errors import ConfigError
from locum.heads import LOSSES, Loss
from locum.heads.losses import LDAM, BalancedSoftmax, ClassBalanced, CrossEntropy, Equalization, Focal
from locum.train import seeded

LOG2 = math.log(2)


def values(loss: Loss, logits: list[list[float]], target: list[int]) -> list[float]:
    return loss(torch.tensor(logits), torch.tensor(target), seeded(0)).tolist()


@pytest.mark.parametrize(
    ("loss", "logits", "target", "expected"),
    [
        (CrossEntropy([9, 1]), [[0.0, 0.0], [math.log(3), 0.0]], [1, 0], [LOG2, math.log(4 / 3)]),
        # Equal logits are probabilities of 3/4 and 1/4 in training.
        (BalancedSoftmax([3, 1]), [[0.0, 0.0], [0.0, 0.0]], [0, 1], [math.log(4 / 3), math.log(4)]),
        # Effective numbers 1 and 1.5: inverses 1 and 2/3, with mean 5/6.
        (ClassBalanced([1, 2], beta=0.5), [[0.0, 0.0], [0.0, 0.0]], [0, 1], [1.2 * LOG2, 0.8 * LOG2]),
        # Probabilities 1/2 and 9/10 of the right class.
        (
            Focal([1, 1]),
            [[0.0, 0.0], [math.log(9), 0.0]],
            [0, 0],
            [0.25 * LOG2, 0.01 * math.log(10 / 9)],
        ),
        # Classes 1 and 2 are rare: out of sight for rows of class 0, and for each other.
        (Equalization([998, 1, 1], lambda_=0.01, gamma=1.0), [[0.0] * 3] * 3, [0, 1, 2], [0.0, LOG2, LOG2]),
        # Margins 1/4 and 1/2, doubled by s.
        (
            LDAM([16, 1], s=2.0),
            [[0.0, 0.0], [0.0, 0.0]],
            [0, 1],
            [math.log(1 + math.exp(0.5)), math.log(1 + math.exp(1.0))],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Loss) else "",
)
def test_by_hand(loss: Loss, logits: list[list[float]], target: list[int], expected: list[float]) -> None:
    assert values(loss, logits, target) == pytest.approx(expected, rel=1e-5)


PLAIN: dict[str, Callable[[np.ndarray], Loss]] = {
    "equal counts": lambda n: BalancedSoftmax(np.full(len(n), 7)),
    "beta 0": partial(ClassBalanced, beta=0.0),
    "no size above another": lambda n: ClassBalanced(np.full(len(n), 7)),
    "gamma 0": partial(Focal, gamma=0.0),
    "nothing rare": partial(Equalization, lambda_=0.0),
    "nothing ignored": partial(Equalization, lambda_=1.0, gamma=0.0),
    "no margin": partial(LDAM, max_m=0.0, s=1.0),
}


@pytest.mark.parametrize("case", PLAIN)
@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(1, 5000), min_size=2, max_size=12))
def test_limits_are_cross_entropy(case: str, seed: int, counts: list[int]) -> None:
    rng = seeded(seed)
    logits = 5 * torch.randn(9, len(counts), generator=rng)
    target = torch.randint(len(counts), (9,), generator=rng)
    expected = functional.cross_entropy(logits, target, reduction="none")
    loss = PLAIN[case](np.array(counts))(logits, target, rng)
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)


@given(counts=st.lists(st.integers(1, 300), min_size=2, max_size=12))
def test_class_balanced_goes_from_even_weights_to_inverse_counts(counts: list[int]) -> None:
    n = np.array(counts)
    inverse = 1 / n / np.mean(1 / n)
    np.testing.assert_allclose(ClassBalanced(n, beta=1 - 1e-9).tilt, inverse, rtol=1e-4)
    tilt = ClassBalanced(n).tilt
    assert tilt.mean() == pytest.approx(1)
    assert (np.diff(tilt[np.argsort(n)]) <= 1e-12).all(), "a larger class never weighs more"


def test_equalization_draws_independently_per_row_and_class() -> None:
    n = 4000
    loss = Equalization([990, 5, 5], lambda_=0.01, gamma=0.95)
    value = loss(torch.zeros(n, 3), torch.zeros(n, dtype=torch.int64), seeded(0))
    # Each of two classes stays in the sum with probability .05: log 1, log 2 or log 3.
    shares = [float((value.exp().round() == k).double().mean()) for k in (1, 2, 3)]
    assert shares == pytest.approx([0.9025, 0.095, 0.0025], abs=0.02)


def test_equalization_keeps_frequent_rows_from_pushing_rare_classes_down() -> None:
    logits = torch.zeros(5, 3, requires_grad=True)
    Equalization([990, 9, 1], lambda_=0.005, gamma=1.0)(
        logits, torch.zeros(5, dtype=torch.int64), seeded(0)
    ).sum().backward()
    assert (logits.grad[:, 2] == 0).all()
    assert (logits.grad[:, 1] > 0).all(), "class 1 is not rare"


def test_ldam_margins_are_widest_for_the_smallest_class() -> None:
    counts = [5000, 500, 50]
    rows = [values(LDAM(counts, s=1.0), [[0.0] * 3], [c])[0] for c in range(3)]
    assert rows == sorted(rows)
    assert rows[2] == pytest.approx(math.log(2 * math.exp(0.5) + 1), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [1e4, 0.0])
def test_values_and_slopes_stay_finite(name: str, size: float) -> None:
    logits = (size * torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])).requires_grad_()
    value = LOSSES[name]([1000, 1])(logits, torch.tensor([0, 0, 1]), seeded(0))
    assert value.shape == (3,)
    assert torch.isfinite(value).all()
    assert (value >= 0).all()
    value.sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_focal_has_a_slope_where_a_row_is_surely_right(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    Focal([1, 1], gamma=gamma)(logits, torch.tensor([0]), seeded(0)).sum().backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("counts", [[3, 0], [3, -1], [], [[1, 2]], [1, math.nan], ["a", "b"], None])
def test_counts_are_above_zero(counts: object) -> None:
    with pytest.raises(ConfigError, match="`counts` must"):
        CrossEntropy(counts)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ClassBalanced, {"beta": 1.0}),
        (Focal, {"gamma": -1.0}),
        (Equalization, {"lambda_": -0.1}),
        (Equalization, {"gamma": 1.5}),
        (LDAM, {"max_m": -0.5}),
        (LDAM, {"s": 0.0}),
    ],
)
def test_wrong_settings_name_themselves(kind: type[Loss], wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        kind([2, 1], **wrong)


def test_counts_that_were_given_stay_as_they_are() -> None:
    given_counts = np.array([3.0, 1.0])
    loss = BalancedSoftmax(given_counts)
    given_counts[:] = 1
    assert loss.counts.tolist() == [3, 1]
    with pytest.raises(ValueError, match="read-only"):
        loss.counts[0] = 5
