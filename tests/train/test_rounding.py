"""Gradients made so that rounding adds up: one unit must still move the sum by no more than noise is scaled to."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from locum.accounting import SGDPlan
from locum.errors import PrivacyError
from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator
from locum.train import RowLossByAutograd
from locum.train.dp import ASSUMPTIONS, ClippedNetwork, PrivateRun
from locum.train.dp.clipping import MAX_ROWS, Subjects
from locum.train.dp.layers import Block
from locum.types import DP

# The gradient of the bias is the row's second column, and that of the weight is 0.
GIVEN = RowLossByAutograd(lambda out, rows: out[:, 0] * rows[:, 1])


def one_record(power: int, bits: int = 24) -> np.ndarray:
    """Gradients whose first record decides how each pair at the end is rounded, in sums of `bits` bits.

    The first half adds up to 2**power, where each pair of a little more and a little less than half a unit in the
    last place rounds to one unit. One record less, and the pairs cancel.
    """
    unit = 2.0 ** (power + 1 - bits)
    small = min(6, bits - 19)
    pairs = np.tile([unit / 2 * (1 + 2.0**-small), -unit / 2 * (1 - 2.0**-small)], 2**power // 2)
    return np.concatenate([np.ones(2**power), pairs])


def cancelling(pairs: int, scale: float, bits: int = 24, share: float = 1e-6) -> np.ndarray:
    """The gradients of one subject: a large one, pairs that are rounded up beside it, and its opposite.

    `share` is the part of the rows' lengths that counts in the subject's norm: 1e-6 before, 2**-8 now.
    """
    first = scale * 1e6
    dtype = np.float32 if bits == 24 else np.float64
    g = np.concatenate([[first], np.zeros(2 * pairs), [-first]])
    for _ in range(4):
        # What the rows are multiplied with decides where they are rounded, and depends on the rows.
        weight = 1 / math.hypot(g.sum(), share * np.abs(g).sum())
        unit = float(np.spacing(dtype(first * weight))) / weight
        g[1:-1] = np.tile([unit / 2 * (1 + 2.0**-5), -unit / 2 * (1 - 2.0**-5)], pairs)
    return g


def clipped(gradients: np.ndarray, subject: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    network, blocks = ClippedNetwork(nn.Linear(1, 1).to(dtype)), None
    given = torch.from_numpy(gradients).to(dtype)[:, None]
    if subject is not None:
        subjects = Subjects(subject)
        index, blocks = subjects.rows(np.arange(len(subjects)))
        given = given[torch.from_numpy(index)]
    with torch.no_grad():
        network.forward(torch.zeros(len(given), 1, dtype=dtype), torch.zeros(len(given), 0, dtype=dtype))
        network.backward([given])
        network.clipped_sum(1.0, blocks)
    return network.sums.double().clone()


def sensitivity(unit: str = "record") -> float:
    return ClippedNetwork(nn.Linear(1, 1)).sensitivity(1.0, unit)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [11, 13, 14])
def test_one_record_moves_the_sum_by_its_clipped_gradient(power: int, dtype: torch.dtype) -> None:
    """Summed in float32, it moved the sum by 17 times the clip at 32,768 rows."""
    g = one_record(power)
    moved = float((clipped(g, dtype=dtype) - clipped(g[1:], dtype=dtype)).norm())
    assert moved <= sensitivity()


def test_the_attack_on_float64_itself_stays_within_the_bound() -> None:
    """The same gradients, made for one long chain of sums of 53 bits. Blocks break the chain, so they do nothing."""
    g = one_record(14, bits=53)
    moved = float((clipped(g, dtype=torch.float64) - clipped(g[1:], dtype=torch.float64)).norm())
    assert moved <= sensitivity()


@pytest.mark.parametrize("pairs", [50, 200, 600])
def test_one_subject_with_cancelling_rows_moves_the_sum_by_no_more(pairs: int) -> None:
    """Summed in float32, 1,202 rows moved the sum by 19 times the clip."""
    worst = 0.0
    for scale in np.linspace(1, 2, 32, endpoint=False):
        rows = cancelling(pairs, scale)
        worst = max(worst, float(clipped(rows, np.zeros(len(rows), dtype=np.int64)).norm()))
    assert worst <= sensitivity("subject")


def test_cancelling_rows_made_for_float64_and_the_present_clip_stay_within_the_bound() -> None:
    worst = 0.0
    for scale in np.linspace(1, 2, 16, endpoint=False):
        rows = cancelling(600, scale, bits=53, share=2.0**-8)
        worst = max(worst, float(clipped(rows, np.zeros(len(rows), dtype=np.int64), torch.float64).norm()))
    assert worst <= sensitivity("subject")


def neighbors(gradients: np.ndarray, others: np.ndarray, subject: np.ndarray | None) -> float:
    """How far the weights of one noisy step move with a unit, in multiples of the clip: noise is the same."""
    plan = SGDPlan(DP(1.0, 1e-5, "record" if subject is None else "subject"), 1.0, 1, 1, 1.0, 5.0)
    found = []
    for kept in (slice(None), slice(len(gradients) - len(others), None)):
        g = torch.from_numpy(gradients[kept]).float()
        module = nn.Linear(1, 1)
        nn.init.zeros_(module.bias)
        who = None if subject is None else subject[kept]
        rows = torch.stack([torch.zeros(len(g)), g], dim=1)
        PrivateRun(module, rows, GIVEN, plan, subject=who, insecure_seed=3, optimizer="sgd", learning_rate=1.0).run()
        found.append(module.bias.item())
    return abs(found[0] - found[1])


def test_a_private_run_and_its_replay_without_a_record() -> None:
    g = one_record(14)
    # Weights near 16,384 are float32 too; their last place is 0.002.
    assert neighbors(g, g[1:], None) <= sensitivity() + 0.002


def test_a_private_run_and_its_replay_without_a_subject() -> None:
    others = np.linspace(-1, 1, 50)
    for scale in np.linspace(1, 2, 8, endpoint=False):
        rows = cancelling(200, scale)
        subject = np.concatenate([np.full(len(rows), 50), np.arange(50)])
        assert neighbors(np.concatenate([rows, others]), others, subject) <= sensitivity("subject") + 1e-5


def test_more_rows_than_the_bound_is_for_are_refused() -> None:
    rows = torch.zeros(1, 2).expand(MAX_ROWS + 1, 2)
    with pytest.raises(PrivacyError, match="4,194,304 rows"):
        PrivateRun(nn.Linear(1, 1), rows, GIVEN, SGDPlan(DP(1.0, 1e-5), 1.0, 1, 1, 1.0, 5.0), insecure_seed=1)


def test_the_noise_covers_the_rounding() -> None:
    """By hand: what is added to the clip, and that it depends on public numbers alone."""
    roundings = (2 + 512 + 2**13) * 2.0**-53
    norms = (1 + 1 + 20) * 2.0**-24
    assert sensitivity() == pytest.approx((1 + norms) * (1 + 2 * 2**22 * roundings), rel=1e-12)
    assert sensitivity("subject") == pytest.approx((1 + norms) * (1 + 2 * 2**21 * 2**8 * roundings), rel=1e-12)
    flat = RowLossByAutograd(lambda out, rows: 0.0 * out[:, 0])
    module, twice = nn.Linear(1, 1).double(), []
    for noise in (5.0, 10.0):
        before = module.bias.item()
        plan = SGDPlan(DP(1.0, 1e-5), 1.0, 1, 1, 1.0, noise)
        PrivateRun(module, torch.zeros(3, 2), flat, plan, insecure_seed=1, optimizer="sgd", learning_rate=1.0).run()
        twice.append(before - module.bias.item())
    assert twice[1] == pytest.approx(2 * twice[0])


@pytest.mark.parametrize("kind", [CVAEGenerator, CGANGenerator, ClassGaussian])
def test_a_claim_about_steps_names_what_they_assume(kind: type, tmp_path: Path, rng: np.random.Generator) -> None:
    """Sums need no such assumption: each record is taken by itself there."""
    steps = kind is not ClassGaussian
    options = {"batch_size": 30, "max_epochs": 1} if steps else {}
    made = kind(privacy=DP(6.0, 1e-4, n_public=60), classes=[0, 1], ledger=tmp_path / "ledger.sqlite", **options)
    claim = made.fit(rng.standard_normal((60, 4)), np.arange(60) % 2).release().claim
    assert claim.kind == "dp"
    assert claim.assumptions == (ASSUMPTIONS if steps else ())
    assert any("batch invariance" in line for line in ASSUMPTIONS)


@pytest.mark.parametrize("rows", [2, 8, 100])
def test_a_subject_whose_norm_overflows_counts_as_nothing(rows: int) -> None:
    """Each row's square is finite, their sum is not; the weight used to come from the largest finite number."""
    network = ClippedNetwork(nn.Linear(1, 1, bias=False).double())
    network.forward(torch.full((rows, 1), 1.3e154, dtype=torch.float64), torch.empty(rows, 0))
    network.backward([torch.ones(rows, 1, dtype=torch.float64)])
    network.clipped_sum(1.0, [Block(0, rows, rows)])
    assert abs(network.sums.item()) <= 1
