"""A plan that is paid for once and used up in parts: no step twice, none that is not paid for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from locum.accounting import Gaussian, Ledger, PaidPlan, PlanSteps, SGDPlan
from locum.errors import ConfigError, PrivacyError
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP

SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -1:]).sum(dim=1))
PLAN = SGDPlan(DP(50.0, 1e-5, n_public=100), 0.2, 20, 12, 1.0, 1.0, (Gaussian(5.0),))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_for(PLAN.privacy, "scans")
    return ledger


def a_net() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 1)


def rows(n: int = 60) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(1))


def run(
    part: PlanSteps, ledger: Ledger | None, module: nn.Module | None = None, plan: SGDPlan = PLAN, **more: object
) -> nn.Module:
    module = module or a_net()
    PrivateRun(module, rows(), SQUARED, plan, ledger, "scans", part=part, **more).run()
    return module


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def test_parts_add_up_to_the_plan_and_cost_as_much(ledger: Ledger) -> None:
    paid = PaidPlan.pay(PLAN, ledger, "scans", "a run")
    assert paid.charge is not None
    assert paid.charge.epsilon == PLAN.epsilon
    assert paid.epsilon_used == PLAN.epsilon_after(0)
    for steps in (5, 4, 3):
        part = paid.next(steps)
        run(part, ledger)
        paid = PaidPlan.reopen(PLAN, ledger, paid.charge.identity)
        assert paid.used == part.stop
        assert paid.epsilon_used == PLAN.epsilon_after(part.stop)
    assert paid.used == PLAN.steps
    assert paid.epsilon_used == PLAN.epsilon
    assert set(ledger.results(paid.charge)) == {"steps 0 to 5", "steps 5 to 9", "steps 9 to 12"}
    assert len(ledger.holding("scans").charges) == 1
    with pytest.raises(PrivacyError, match="12 of 12 are used up"):
        paid.next(1)


@given(st.lists(st.integers(1, 6), max_size=12))
def test_whatever_is_asked_for_parts_are_disjoint_and_paid(wishes: list[int]) -> None:
    used = 0
    for budget in wishes:
        paid = PaidPlan(PLAN, used=used)
        if used + budget > PLAN.steps:
            with pytest.raises(PrivacyError, match="not paid for"):
                paid.next(budget)
            continue
        part = paid.next(budget)
        assert (part.start, part.stop) == (used, used + budget)
        used = part.stop
    assert used <= PLAN.steps


@pytest.mark.parametrize("steps", [0, -3])
def test_a_part_has_a_step(steps: int) -> None:
    with pytest.raises(ConfigError, match="one step or more"):
        PaidPlan(PLAN, used=6).next(steps)


def test_parts_with_a_seed_do_what_one_run_would() -> None:
    """Plain descent has no memory: what the parts do in turn is what the whole plan does."""
    how = {"optimizer": "sgd", "learning_rate": 0.1, "insecure_seed": 5}
    whole, parts = a_net(), a_net()
    PrivateRun(whole, rows(), SQUARED, PLAN, **how).run()
    for used, steps in ((0, 7), (7, 1), (8, 4)):
        run(PaidPlan(PLAN, used=used).next(steps), None, parts, **how)
    torch.testing.assert_close(weights(parts), weights(whole))


def test_two_who_take_the_same_part_end_with_one_result(ledger: Ledger) -> None:
    """Two copies of a site that began at once: the ledger knows one of them."""
    identity = PaidPlan.pay(PLAN, ledger, "scans", "a run").charge.identity
    one, two = (PaidPlan.reopen(PLAN, ledger, identity).next(4) for _ in range(2))
    run(one, ledger)
    before = ledger.results(one.charge)
    with pytest.raises(PrivacyError, match="another result already"):
        run(two, ledger)
    assert ledger.results(one.charge) == before
    assert PaidPlan.reopen(PLAN, ledger, identity).used == 4


def test_killed_within_a_part_it_begins_again_where_the_ledger_says(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = PaidPlan.pay(PLAN, ledger, "scans", "a run")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "finish", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(paid.next(4), ledger)
    assert PaidPlan.reopen(PLAN, ledger, paid.charge.identity).used == 0


def test_what_was_not_paid_for_is_not_run(ledger: Ledger, tmp_path: Path) -> None:
    charge = PaidPlan.pay(PLAN, ledger, "scans", "a run").charge
    other = Ledger(tmp_path / "other.sqlite")
    other.open_for(PLAN.privacy, "scans")
    dearer = SGDPlan(PLAN.privacy, 0.2, 20, 12, 1.0, 0.5, PLAN.extra)
    wrong = [
        ({"part": PlanSteps(0, 13, charge)}, "not among"),
        ({"part": PlanSteps(-1, 3, charge)}, "not among"),
        ({"part": PlanSteps(4, 4, charge)}, "not among"),
        ({"part": PlanSteps(0, 4, None)}, "no charge"),
        ({"part": PlanSteps(0, 4, charge), "plan": dearer}, "does not know"),
        ({"part": PlanSteps(0, 4, charge), "ledger": other}, "does not know"),
        ({"part": PlanSteps(0, 4, charge), "ledger": None}, "needs a ledger"),
        ({"part": PlanSteps(0, 4, charge), "insecure_seed": 1}, "leave the ledger out"),
    ]
    for more, told in wrong:
        module = a_net()
        with pytest.raises(PrivacyError, match=told):
            run(**{"ledger": ledger, "module": module, **more})
        torch.testing.assert_close(weights(module), weights(a_net()))
    assert ledger.results(charge) == {}
    assert other.export() == other.export()[:1]


def test_a_budget_that_is_too_small_is_refused_before_anything(ledger: Ledger) -> None:
    PaidPlan.pay(PLAN, ledger, "scans", "a run")
    with pytest.raises(PrivacyError, match="left"):
        PaidPlan.pay(PLAN, ledger, "scans", "another")
    with pytest.raises(PrivacyError, match="does not know"):
        PaidPlan.reopen(PLAN, ledger, "f" * 32)


def test_a_part_has_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither"):
        run(PaidPlan(PLAN).next(1), None, insecure_seed=1, checkpoint=tmp_path / "c")
