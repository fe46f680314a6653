"""The one door for gradients that need no record: asked once a step, added after the noise, blind to the batch."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from locum.accounting import Ledger, SGDPlan
from locum.errors import ConfigError
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP

PLAN = SGDPlan(DP(200.0, 1e-5, n_public=100), rate=0.3, batch=20, steps=12, clip=0.5, noise_multiplier=1.0)
SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -out.shape[1] :]).sum(dim=1))


def a_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


ROWS = torch.randn(100, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
COUNT = len(weights(a_net()))


def fitted(plan: SGDPlan = PLAN, rows: Tensor = ROWS, **options: object) -> Tensor:
    module = a_net()
    PrivateRun(module, rows, SQUARED, plan, insecure_seed=3, **options).run()
    return weights(module)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_zeros_change_nothing(optimizer: str) -> None:
    def nothing() -> Tensor:
        return torch.zeros(COUNT, dtype=torch.float64)

    assert torch.equal(fitted(optimizer=optimizer), fitted(optimizer=optimizer, public_gradient=nothing))


def test_it_is_asked_once_a_step_and_after_the_payment(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_budget("scans", epsilon=1000.0, delta=1e-3)
        spent = []

        def ask() -> Tensor:
            spent.append(ledger.holding("scans").spent[0])
            return torch.zeros(COUNT, dtype=torch.float64)

        run = PrivateRun(a_net(), ROWS, SQUARED, PLAN, ledger, "scans", public_gradient=ask)
        assert spent == []
        run.run()
        assert len(spent) == PLAN.steps
        assert min(spent) > 0


def test_it_is_added_as_it_is_after_noise_and_division() -> None:
    """Plain descent of rate 1 shows the gradient: neither the clip nor the batch size touches what is added."""
    one = SGDPlan(PLAN.privacy, PLAN.rate, PLAN.batch, 1, PLAN.clip, PLAN.noise_multiplier)
    added = torch.linspace(-300, 400, COUNT, dtype=torch.float64)
    options = {"plan": one, "optimizer": "sgd", "learning_rate": 1.0}
    without, with_it = fitted(**options), fitted(**options, public_gradient=lambda: added)
    torch.testing.assert_close(without - with_it, added)


def test_it_meets_the_weights_of_each_step_and_no_batch() -> None:
    """It is asked before a step's batch is drawn on: what it saw is all there is between two steps."""
    order, seen, module = [], [], a_net()

    def loss(out: Tensor, rows: Tensor) -> Tensor:
        order.append("batch")
        return torch.square(out).sum(dim=1)

    def ask() -> Tensor:
        order.append("public")
        seen.append(weights(module))
        assert not torch.is_grad_enabled()
        assert all(p.grad is None for p in module.parameters())
        return torch.zeros(COUNT, dtype=torch.float64)

    run = PrivateRun(module, ROWS, RowLossByAutograd(loss), PLAN, insecure_seed=3, public_gradient=ask)
    order.clear()
    run.run()
    assert order == ["public", "batch"] * PLAN.steps
    torch.testing.assert_close(seen[0], weights(a_net()))
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))


def test_what_it_is_given_does_not_hang_on_the_batch() -> None:
    """With other records but the same seed, the first call sees the same state."""
    states = []
    for rows in (ROWS, ROWS + 5):
        module, mine = a_net(), []

        def ask(module: nn.Module = module, mine: list[Tensor] = mine) -> Tensor:
            mine.append(weights(module))
            return torch.zeros(COUNT, dtype=torch.float64)

        PrivateRun(module, rows, SQUARED, PLAN, insecure_seed=3, public_gradient=ask).run()
        states.append(mine)
    assert torch.equal(states[0][0], states[1][0])
    assert not torch.equal(states[0][-1], states[1][-1])


@pytest.mark.parametrize("shape", [(), (1,), (COUNT - 1,), (COUNT, 1)])
def test_a_gradient_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"one number per weight .{COUNT}.*got shape"):
        fitted(public_gradient=lambda: torch.zeros(shape, dtype=torch.float64))


def test_no_checkpoint_beside_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave one of them out"):
        fitted(checkpoint=tmp_path / "c", public_gradient=lambda: torch.zeros(COUNT))
    assert not list(tmp_path.iterdir())
