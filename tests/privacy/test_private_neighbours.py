"""Neighbor replay: with the same seed, one unit more or less moves a step by at most the clip.

Plain descent of rate 1 with an expected batch of 1 shows each step's noisy sum as it is; equal seeds cancel the
noise. The unit comes last, so that the random numbers of all others stay the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import Tensor, nn

from locum.accounting import SGDPlan
from locum.nets import plain_cvae
from locum.train import CVAELoss, RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP

SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -out.shape[1] :]).sum(dim=1))
COLUMNS = 5


def build(kind: str, seed: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(seed)
    nets = {
        "linear": lambda: nn.Linear(COLUMNS, 2),
        "mlp": lambda: nn.Sequential(nn.Linear(COLUMNS, 6), nn.ReLU(), nn.Linear(6, 3), nn.Sigmoid()),
        "norm": lambda: nn.Sequential(nn.Linear(COLUMNS, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)),
        "cvae": lambda: plain_cvae(COLUMNS - 2, 2, (6,), 3, sigmoid=False),
    }
    return nets[kind]().to(dtype)


def one_step(
    module: nn.Module, rows: Tensor, clip: float, rate: float, rng: int, subject: np.ndarray | None = None
) -> Tensor:
    """The noisy sum of one step of a real run; the module moves by it."""
    unit = "record" if subject is None else "subject"
    plan = SGDPlan(DP(1.0, 1e-6, unit, n_public=1000), rate, 1, 1, clip, 1.0)
    before = weights(module)
    loss = CVAELoss() if hasattr(module, "decoder") else SQUARED
    PrivateRun(module, rows, loss, plan, subject=subject, optimizer="sgd", learning_rate=1.0, insecure_seed=rng).run()
    return before - weights(module)


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


ordinary = st.floats(-10, 10)
extreme = st.sampled_from(
    [0.0, -0.0, 1e-320, 1e-30, 1e6, -1e12, 1e19, -1e30, 1e150, float("nan"), float("inf"), -float("inf")]
)
row = st.lists(st.one_of(ordinary, extreme), min_size=COLUMNS, max_size=COLUMNS)


@settings(max_examples=120)
@given(
    kind=st.sampled_from(["linear", "mlp", "norm", "cvae"]),
    others=st.lists(row, max_size=8),
    unit=row,
    seed=st.integers(0, 2**16),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    rate=st.sampled_from([0.3, 1.0]),
)
@example(kind="cvae", others=[[0.0] * COLUMNS], unit=[float("nan")] * COLUMNS, seed=0, clip=1.0, rate=1.0)
@example(kind="mlp", others=[], unit=[1e300] * COLUMNS, seed=0, clip=1.0, rate=1.0)
def test_one_record_moves_a_step_by_the_clip_at_most(
    kind: str, others: list[list[float]], unit: list[float], seed: int, clip: float, rate: float
) -> None:
    without = torch.tensor(others, dtype=torch.float64).reshape(-1, COLUMNS)
    with_it = torch.cat([without, torch.tensor([unit], dtype=torch.float64)])
    steps = [one_step(build(kind, seed, torch.float64), rows, clip, rate, seed) for rows in (without, with_it)]
    assert torch.isfinite(steps[0]).all()
    assert float((steps[1] - steps[0]).norm()) <= clip * (1 + 1e-9) + 1e-12


@settings(max_examples=80)
@given(
    kind=st.sampled_from(["linear", "mlp", "norm", "cvae"]),
    others=st.lists(st.tuples(row, st.integers(0, 3)), max_size=8),
    unit=st.lists(row, min_size=1, max_size=6),
    seed=st.integers(0, 2**16),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    rate=st.sampled_from([0.3, 1.0]),
)
def test_one_subject_moves_a_step_by_the_clip_at_most(
    kind: str, others: list[tuple[list[float], int]], unit: list[list[float]], seed: int, clip: float, rate: float
) -> None:
    # Latent noise is dealt by row and rows come by size: the new subject must not come before the others.
    padding = max([sum(code == c for _, c in others) for _, code in others], default=1)
    new = (unit * padding)[: max(len(unit), padding)]
    without = torch.tensor([x for x, _ in others], dtype=torch.float64).reshape(-1, COLUMNS)
    with_it = torch.cat([without, torch.tensor(new, dtype=torch.float64)])
    codes = np.array([c for _, c in others] + [9] * len(new), dtype=np.int64)
    steps = [
        one_step(build(kind, seed, torch.float64), rows, clip, rate, seed, codes[: len(rows)])
        for rows in (without, with_it)
    ]
    assert torch.isfinite(steps[0]).all()
    # Within a subject huge gradients may cancel, and what is left of them is rounding.
    assert float((steps[1] - steps[0]).norm()) <= clip * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["mlp", "norm", "cvae"])
@pytest.mark.parametrize("by_subject", [False, True])
def test_every_step_of_a_longer_fit(kind: str, by_subject: bool) -> None:
    """In float32, as fits are: the same weights before each step, on data with and without an outlier."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(203, COLUMNS)).astype(np.float32))
    rows[200:] = 100.0
    codes = np.append(np.arange(200) // 2, [999, 999, 999]) if by_subject else None
    smaller = 200 if by_subject else 202
    module, clip, largest = build(kind, 1, torch.float32), 0.7, 0.0
    for step in range(30):
        twin = build(kind, 1, torch.float32)
        twin.load_state_dict(module.state_dict())
        few = one_step(twin, rows[:smaller], clip, 0.5, step, None if codes is None else codes[:smaller])
        twin.load_state_dict(module.state_dict())
        many = one_step(twin, rows, clip, 0.5, step, codes)
        largest = max(largest, float((many - few).norm()))
        with torch.no_grad():
            for p, q in zip(module.parameters(), twin.parameters(), strict=True):
                p.add_(q - p, alpha=0.01)
    assert 0.999 * clip < largest <= clip * (1 + 1e-4)


def test_the_bound_is_not_there_by_chance() -> None:
    """Without the clip the same outlier moves a step much further."""
    rows = torch.randn(20, COLUMNS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[-1] = 100.0
    steps = [one_step(build("mlp", 0, torch.float64), r, 1e9, 1.0, 0) for r in (rows[:-1], rows)]
    assert float((steps[1] - steps[0]).norm()) > 100
