from __future__ import annotations

import math
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from locum.accounting import Gaussian, Ledger, SGDPlan, plan_sgd
from locum.errors import CheckpointError, ConfigError, DataError, PrivacyError
from locum.nets import plain_cvae, residual_cvae
from locum.train import CVAELoss, RowLossByAutograd
from locum.train.dp import PrivateHistory, PrivateRun
from locum.types import DP

SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -out.shape[1] :]).sum(dim=1))
FLAT = RowLossByAutograd(lambda out, rows: 0.0 * out.sum(dim=1))


def a_plan(
    steps: int = 20, rate: float = 0.2, batch: int = 20, clip: float = 1.0, noise: float = 1.0, unit: str = "record"
) -> SGDPlan:
    return SGDPlan(DP(200.0, 1e-5, unit, n_public=100), rate, batch, steps, clip, noise)


def a_ledger(folder: Path, epsilon: float = 1000.0, unit: str = "record") -> Ledger:
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.set_budget("scans", epsilon=epsilon, delta=1e-3, unit=unit)
    return ledger


def a_net(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).to(dtype)


def some_rows(n: int = 100, columns: int = 4) -> Tensor:
    return torch.randn(n, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def moved(module: nn.Module, plan: SGDPlan, rows: Tensor, loss: object, **options: object) -> Tensor:
    """How far plain gradient descent of rate 1 moved the weights: minus the noisy means of all steps."""
    before = weights(module)
    PrivateRun(module, rows, loss, plan, optimizer="sgd", learning_rate=1.0, **options).run()
    return before - weights(module)


def test_a_step_is_the_clipped_sum_plus_noise_over_the_expected_size() -> None:
    """By hand: everybody joins, a linear layer, one step."""
    rows, clip, noise, batch = some_rows(), 0.5, 2.0, 37
    plan = a_plan(steps=1, rate=1.0, batch=batch, clip=clip, noise=noise)
    module = nn.Linear(4, 1).double()
    linear = RowLossByAutograd(lambda out, rows: out[:, 0])
    step = moved(module, plan, rows, linear, insecure_seed=3)
    gradients = torch.cat([rows, torch.ones(100, 1, dtype=torch.float64)], dim=1)
    clipped = gradients / torch.clamp(gradients.norm(dim=1, keepdim=True) / clip, min=1.0)
    only_noise = moved(nn.Linear(4, 1).double(), plan, rows, FLAT, insecure_seed=3)
    torch.testing.assert_close(step, only_noise + clipped.sum(dim=0) / batch)
    assert abs(float(only_noise.norm()) * batch / (clip * noise)) < 5


@pytest.mark.parametrize("by_subject", [False, True])
def test_the_share_of_clipped_rows(by_subject: bool) -> None:
    """The gradient of each row is the row and a 1; everybody joins, so the shares of all steps are the same."""
    rows, clip = some_rows(), 3.5 if by_subject else 2.0
    plan = a_plan(steps=3, rate=1.0, batch=100, clip=clip, noise=1.0, unit="subject" if by_subject else "record")
    linear = RowLossByAutograd(lambda out, rows: out[:, 0])
    codes = np.arange(100) // 2
    options = {"subject": codes} if by_subject else {}
    run = PrivateRun(nn.Linear(4, 1).double(), rows, linear, plan, insecure_seed=3, **options)
    assert run.clipped is None
    history = run.run()
    gradients = torch.cat([rows, torch.ones(100, 1, dtype=torch.float64)], dim=1).numpy()
    if by_subject:
        gradients = np.stack([gradients[codes == c].sum(axis=0) for c in codes])
    share = np.mean(np.linalg.norm(gradients, axis=1) > clip)
    assert run.clipped == pytest.approx(share)
    assert 0.1 < share < 0.9
    # It is not part of what a checkpoint or a caller keeps.
    assert not hasattr(history, "clipped")


@pytest.mark.parametrize("changed", [{}, {"clip": 1.1}, {"noise": 1.1}, {"batch": 22}])
def test_the_noise_has_the_planned_size_to_a_percent(changed: dict) -> None:
    """A change of a tenth in clip, noise or divisor would show."""
    plan = a_plan(steps=40, **changed)
    module = nn.Sequential(nn.Linear(60, 60), nn.Linear(60, 60))
    total = moved(module, plan, some_rows(50, 60), FLAT, insecure_seed=8).numpy()
    planned = plan.noise_multiplier * plan.clip / plan.batch * np.sqrt(plan.steps)
    assert abs(total.std() / planned - 1) < 0.03
    usual = 1.0 * 1.0 / 20 * np.sqrt(40)
    assert (abs(total.std() / usual - 1) > 0.05) == bool(changed)
    assert stats.kstest(total / planned, "norm").pvalue > 1e-4


@pytest.mark.parametrize("rate", [0.2, 0.22])
def test_units_join_at_the_planned_rate(rate: float) -> None:
    """A row that joins adds 1 to the only weight: the weight counts."""
    plan = a_plan(steps=300, rate=rate, batch=1, clip=1.0, noise=1e-9)
    counted = RowLossByAutograd(lambda out, rows: out[:, 0])
    module = nn.Linear(1, 1, bias=False).double()
    joined = float(moved(module, plan, torch.ones(200, 1), counted, insecure_seed=4))
    error = 5 * np.sqrt(rate * (1 - rate) * 300 * 200)
    assert abs(joined - rate * 300 * 200) < error
    assert (abs(joined - 0.2 * 300 * 200) < error) == (rate == 0.2)


def test_empty_batches_count_and_get_noise() -> None:
    module = a_net()
    plan = a_plan(steps=50, rate=1e-9)
    seen: list[int] = []

    def loss(out: Tensor, rows: Tensor) -> Tensor:
        seen.append(len(rows))
        return out.sum(dim=1)

    run = PrivateRun(
        module, some_rows(), RowLossByAutograd(loss), plan, insecure_seed=1, optimizer="sgd", learning_rate=1.0
    )
    seen.clear()
    before = weights(module)
    history = run.run()
    assert seen == [0] * 50
    assert history.steps == 50
    assert abs(float((weights(module) - before).std()) * 20 / np.sqrt(50) - 1) < 0.5


def test_no_rows_at_all_is_a_fit_like_any_other() -> None:
    assert PrivateRun(a_net(), some_rows(0), SQUARED, a_plan(), insecure_seed=1).run().steps == 20


def test_what_leaves_does_not_depend_on_rows_that_are_not_finite() -> None:
    rows = some_rows()
    broken = torch.cat([rows, torch.full((3, 4), float("nan"))])
    broken[-1] = float("inf")
    one, two = a_net(), a_net()
    history = PrivateRun(one, broken, SQUARED, a_plan(), insecure_seed=2).run()
    PrivateRun(two, rows, SQUARED, a_plan(), insecure_seed=2).run()
    torch.testing.assert_close(weights(one), weights(two), rtol=1e-9, atol=1e-12)
    assert history.ignored > 0
    assert np.isfinite(history.train_loss).all()


def test_seeded_noise_repeats_and_secure_noise_does_not(tmp_path: Path) -> None:
    def fit(**options: object) -> Tensor:
        module = a_net(torch.float32)
        PrivateRun(module, some_rows(), SQUARED, a_plan(), **options).run()
        return weights(module)

    assert torch.equal(fit(insecure_seed=1), fit(insecure_seed=1))
    assert not torch.equal(fit(insecure_seed=1), fit(insecure_seed=2))
    with a_ledger(tmp_path) as ledger:
        assert not torch.equal(fit(ledger=ledger, holding="scans"), fit(ledger=ledger, holding="scans"))
        assert len(ledger.holding("scans").charges) == 2


def test_a_cvae_learns(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    scaled = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    rows = torch.cat([scaled, torch.eye(3)[torch.from_numpy(y)]], dim=1)
    plan = plan_sgd(DP(50.0, 1e-4, n_public=200), batch=60, epochs=150, clip=3.0)
    torch.manual_seed(0)
    module = plain_cvae(8, 3, (32,), 4, sigmoid=False)
    with a_ledger(tmp_path) as ledger:
        run = PrivateRun(module, rows, CVAELoss(0.1), plan, ledger, "scans", learning_rate=5e-3)
        history = run.run()
        assert run.charge is not None
        assert run.charge == ledger.paid(history.paid, plan.events)
        assert run.charge.epsilon <= 50.0
    assert not run.is_test
    assert history.steps == plan.steps
    assert len(history.train_loss) == math.ceil(plan.steps / 3)
    assert np.mean(history.train_loss[-10:]) < 0.5 * np.mean(history.train_loss[:3])
    assert not module.training


def test_by_subject_a_fit_learns() -> None:
    rows, codes = some_rows(600), np.arange(600) // 3
    rows[:, 3] = rows[:, :3].sum(dim=1)
    module = nn.Linear(3, 1).double()
    plan = a_plan(steps=300, rate=0.3, batch=60, clip=2.0, noise=0.5, unit="subject")
    history = PrivateRun(module, rows, SQUARED, plan, subject=codes, insecure_seed=0, learning_rate=0.05).run()
    assert history.train_loss[-1] < 0.05 * history.train_loss[0]


def test_adam_is_adam_on_the_noisy_gradient() -> None:
    """Post-processing: fed with what plain descent shows, torch's Adam ends at the same weights."""
    rows, plan = some_rows(), a_plan(steps=1)
    twin = a_net()
    gradient = moved(a_net(), plan, rows, SQUARED, insecure_seed=6)
    flat = nn.Parameter(weights(twin))
    flat.grad = gradient
    torch.optim.AdamW([flat], lr=0.1, weight_decay=0.2).step()
    PrivateRun(twin, rows, SQUARED, plan, insecure_seed=6, learning_rate=0.1, weight_decay=0.2).run()
    torch.testing.assert_close(weights(twin), flat.detach())


def test_the_charge_comes_first(tmp_path: Path) -> None:
    module, spent = a_net(), []
    with a_ledger(tmp_path) as ledger:

        def loss(out: Tensor, rows: Tensor) -> Tensor:
            spent.append(ledger.holding("scans").spent[0])
            return out.sum(dim=1)

        run = PrivateRun(module, some_rows(), RowLossByAutograd(loss), a_plan(), ledger, "scans", purpose="weights")
        assert run.charge is None
        spent.clear()
        run.run()
        assert min(spent) > 0
        (charge,) = ledger.holding("scans").charges
    assert charge == run.charge
    assert charge.purpose == "weights"
    assert charge.events == a_plan().events


def test_extra_events_are_paid_with_the_steps(tmp_path: Path) -> None:
    plan = replace(a_plan(), extra=(Gaussian(3.0),))
    with a_ledger(tmp_path) as ledger:
        run = PrivateRun(a_net(), some_rows(), SQUARED, plan, ledger, "scans")
        run.run()
        assert ledger.holding("scans").charges[0].events == plan.events
        assert Gaussian(3.0) in plan.events


def refused(folder: Path, error: type[Exception], words: str, ledger: Ledger | None, **options: object) -> None:
    """It must raise before anything is spent, trained or written."""
    given = {"module": a_net(), "rows": some_rows(), "loss": SQUARED, "plan": a_plan(), "holding": "scans"}
    given |= {"checkpoint": folder / "c", **options}
    before = weights(given["module"])
    spent = None if ledger is None else ledger.export()
    with pytest.raises(error, match=words):
        PrivateRun(ledger=ledger, **given).run()
    assert torch.equal(weights(given["module"]), before)
    assert not (folder / "c").exists()
    assert spent is None or ledger.export() == spent


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ConfigError, "no holding", {"holding": "nothing"}),
        (PrivacyError, "more than the", {"plan": replace(a_plan(), privacy=DP(0.1, 1e-5, n_public=100))}),
        (PrivacyError, "Batch norm", {"module": nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).double()}),
        (PrivacyError, "Batch norm", {"module": residual_cvae(3, 1, 2, sigmoid=False)}),
        (PrivacyError, "frozen", {"module": nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2).requires_grad_(False))}),
        (PrivacyError, "no rule", {"module": nn.Sequential(nn.Linear(4, 2), nn.Dropout())}),
        (DataError, "4 columns", {"rows": some_rows(columns=3)}),
        (DataError, "4 columns", {"rows": torch.zeros(3)}),
        (ConfigError, "optimizer", {"optimizer": "lion"}),
        (ConfigError, "learning_rate", {"learning_rate": 0.0}),
        (ConfigError, "weight_decay", {"weight_decay": -1.0}),
        (ConfigError, "subject", {"subject": np.zeros(100, dtype=int)}),
        (ConfigError, "subject", {"plan": a_plan(unit="subject"), "insecure_seed": 1, "ledger": None}),
        (PrivacyError, "counts by record", {"plan": a_plan(unit="subject"), "subject": np.zeros(100, dtype=int)}),
        (PrivacyError, "counts by record", {"plan": replace(a_plan(), privacy=DP(200.0, 1e-5, n_public=100,
                                                                               relation="replace-one"))}),
        (PrivacyError, "leave the ledger out", {"insecure_seed": 1}),
        (ConfigError, "insecure_seed", {"insecure_seed": -1}),
        (ConfigError, "insecure_seed", {"insecure_seed": True}),
        (PrivacyError, "needs a ledger", {"ledger": None}),
        (PrivacyError, "one number per row", {"loss": RowLossByAutograd(lambda out, rows: out.sum())}),
        (PrivacyError, "one number per row", {"loss": RowLossByAutograd(lambda out, rows: out)}),
        (PrivacyError, "one number per row", {"loss": RowLossByAutograd(
            lambda out, rows: torch.square(out - out.mean(dim=0)).sum(dim=1))}),
        (PrivacyError, "one number per row", {"loss": RowLossByAutograd(
            lambda out, rows: out.sum(dim=1) * rows.mean())}),
        (ConfigError, "cannot be written", {"checkpoint": "/proc/nothing/c"}),
    ],
)  # fmt: skip
def test_what_is_wrong_costs_nothing(tmp_path: Path, error: type[Exception], words: str, options: dict) -> None:
    with a_ledger(tmp_path) as ledger:
        refused(tmp_path, error, words, **{"ledger": ledger, **options})


@pytest.mark.parametrize("codes", [np.zeros(99, dtype=int), np.zeros(100), np.zeros((100, 1), dtype=int)])
def test_subjects_are_whole_numbers_one_a_row(codes: np.ndarray) -> None:
    with pytest.raises(DataError, match="one whole number for each row"):
        PrivateRun(a_net(), some_rows(), SQUARED, a_plan(unit="subject"), subject=codes, insecure_seed=1)


def test_a_budget_too_small_is_refused(tmp_path: Path) -> None:
    with a_ledger(tmp_path, epsilon=0.5) as ledger:
        refused(tmp_path, PrivacyError, "does not allow", ledger)


def test_a_run_is_run_once(tmp_path: Path) -> None:
    with a_ledger(tmp_path) as ledger:
        run = PrivateRun(a_net(), some_rows(), SQUARED, a_plan(), ledger, "scans")
        run.run()
        with pytest.raises(PrivacyError, match="once"):
            run.run()
        assert len(ledger.holding("scans").charges) == 1


class KilledError(Exception):
    """Stands for a kill between two passes."""


class StopAfter:
    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self, done: int, total: int, note: str = "") -> None:
        assert 0 < done <= total
        assert math.isfinite(float(note.removeprefix("loss ")))
        if done == self.passes:
            raise KilledError


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_test_that_is_resumed_equals_an_unbroken_one(tmp_path: Path, optimizer: str) -> None:
    def run(**options: object) -> tuple[Tensor, PrivateHistory]:
        torch.manual_seed(0)
        module = plain_cvae(3, 1, (5,), 2, sigmoid=False)
        given = {"insecure_seed": 5, "optimizer": optimizer, **options}
        history = PrivateRun(module, some_rows(), CVAELoss(), a_plan(steps=40), **given).run()
        return weights(module), history

    whole, history = run()
    with pytest.raises(KilledError):
        run(checkpoint=tmp_path / "c", checkpoint_seconds=0.0, progress=StopAfter(4))
    again, resumed = run(checkpoint=tmp_path / "c")
    assert torch.equal(whole, again)
    # Losses of the pass that was cut are of its rest.
    assert (resumed.steps, resumed.train_loss[4:]) == (40, history.train_loss[4:])
    with pytest.raises(CheckpointError, match="other data or settings"):
        run(checkpoint=tmp_path / "c", insecure_seed=6)


def test_a_resumed_fit_keeps_its_charge(tmp_path: Path) -> None:
    with a_ledger(tmp_path) as ledger:

        def run(**options: object) -> PrivateRun:
            given = {"ledger": ledger, "holding": "scans", "checkpoint": tmp_path / "c", **options}
            out = PrivateRun(a_net(), some_rows(), SQUARED, a_plan(steps=30), **given)
            out.history = out.run()
            return out

        for stop in (1, 3):
            with pytest.raises(KilledError):
                run(checkpoint_seconds=0.0, progress=StopAfter(stop))
        (charge,) = ledger.holding("scans").charges
        assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o600
        done = run()
        assert done.charge == charge
        assert done.history.steps == 30
        # Finished and not yet removed: the same weights once more, for nothing.
        assert run().charge == charge
        assert ledger.holding("scans").charges == (charge,)
        done.remove_checkpoint()
        assert run().charge != charge
    # A receipt that the ledger does not know pays for nothing.
    (tmp_path / "other").mkdir()
    with a_ledger(tmp_path / "other") as other, pytest.raises(PrivacyError, match="does not know"):
        PrivateRun(a_net(), some_rows(), SQUARED, a_plan(steps=30), other, "scans", checkpoint=tmp_path / "c").run()


def test_the_receipt_is_there_before_the_first_step(tmp_path: Path) -> None:
    """Killed in its first step, long before the first checkpoint is due: the charge is not lost."""
    armed = False

    def loss(out: Tensor, rows: Tensor) -> Tensor:
        if armed:
            raise KilledError
        return out.sum(dim=1)

    with a_ledger(tmp_path) as ledger:
        options = {"ledger": ledger, "holding": "scans", "checkpoint": tmp_path / "c"}
        first = PrivateRun(a_net(), some_rows(), RowLossByAutograd(loss), a_plan(), **options)
        armed = True
        with pytest.raises(KilledError):
            first.run()
        armed = False
        second = PrivateRun(a_net(), some_rows(), RowLossByAutograd(loss), a_plan(), **options)
        assert second.run().steps == 20
        assert second.charge == first.charge
        assert len(ledger.holding("scans").charges) == 1


@pytest.mark.parametrize(
    "changed",
    [{"clip": 1.1}, {"noise": 1.1}, {"rate": 0.22}, {"steps": 21}, {"batch": 21}],
    ids=lambda c: next(iter(c)),
)
def test_a_receipt_pays_for_one_plan(tmp_path: Path, changed: dict) -> None:
    with a_ledger(tmp_path) as ledger:
        options = {"ledger": ledger, "holding": "scans", "checkpoint": tmp_path / "c"}
        PrivateRun(a_net(), some_rows(), SQUARED, a_plan(), **options).run()
        with pytest.raises(CheckpointError, match="other data or settings"):
            PrivateRun(a_net(), some_rows(), SQUARED, a_plan(**changed), **options).run()
