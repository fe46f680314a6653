"""The noisy sum before training: paid with the steps, drawn once, kept by a fit that is killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from locum.accounting import Gaussian, Laplace, Ledger, SGDPlan
from locum.errors import ConfigError, PrivacyError
from locum.mechanisms import ExactSums
from locum.train import RowLossByAutograd
from locum.train.dp import InitialQuery, PrivateRun
from locum.types import DP

SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -1:]).sum(dim=1))
ROWS = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))


class KilledError(RuntimeError):
    pass


def stop_at_once(done: int, total: int, note: str = "") -> None:
    raise KilledError


def sums(numbers: np.ndarray) -> ExactSums:
    out = ExactSums(np.full(len(numbers), 2.0**-30))
    out.add(numbers.astype(np.int64) << 30)
    return out


def plan(noise: float = 2.0, **changed: object) -> SGDPlan:
    given = {"extra": (Gaussian(noise),), **changed}
    return SGDPlan(DP(200.0, 1e-5, n_public=50), 0.2, 10, 20, 1.0, 1.0, **given)


def a_run(initial_query: InitialQuery, **options: object) -> PrivateRun:
    torch.manual_seed(0)
    given = {"plan": plan(), "insecure_seed": 3, **options}
    return PrivateRun(nn.Linear(3, 1), ROWS, SQUARED, initial_query=initial_query, **given)


def test_the_noise_has_the_size_that_was_paid_for() -> None:
    """Ten per cent more or less would be seen."""
    for noise in (0.5, 4.0):
        run = a_run(InitialQuery(sums(np.full(4000, 7)), lambda _: ROWS), plan=plan(noise))
        run.run()
        assert run.noisy is not None
        assert stats.kstest((run.noisy - 7.0) / noise, "norm").pvalue > 1e-4
        assert abs(run.noisy.std() / noise - 1) < 0.05


def test_the_noise_is_not_that_of_a_step() -> None:
    run = a_run(InitialQuery(sums(np.zeros(4)), lambda _: ROWS), plan=plan(1.0))
    run.run()
    from locum.mechanisms import SecureRandom

    for step in range(20):
        other = SecureRandom(np.ones(1, np.int64), 1.0, 4, 1.0, insecure_seed=3).draw(step).noise
        assert not np.allclose(run.noisy, other)


def test_rows_come_from_the_noisy_sums() -> None:
    seen: list[np.ndarray] = []

    def rows(noisy: np.ndarray) -> Tensor:
        seen.append(noisy.copy())
        return ROWS - float(noisy[0])

    run = a_run(InitialQuery(sums(np.array([5])), rows))
    run.run()
    np.testing.assert_array_equal(seen, [run.noisy])
    with pytest.raises(ConfigError, match="keep the shape"):
        a_run(InitialQuery(sums(np.array([5])), lambda _: ROWS[:3])).run()


def test_it_is_paid_once_and_kept_when_the_fit_is_killed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_budget("scans", epsilon=1000.0, delta=1e-3)
        looks: list[np.ndarray] = []

        def rows(noisy: np.ndarray) -> Tensor:
            looks.append(noisy.copy())
            return ROWS

        given = {"ledger": ledger, "holding": "scans", "checkpoint": tmp_path / "c", "insecure_seed": None}
        with pytest.raises(KilledError):
            a_run(InitialQuery(sums(np.zeros(3)), rows), checkpoint_seconds=0.0, progress=stop_at_once, **given).run()
        run = a_run(InitialQuery(sums(np.zeros(3)), rows), **given)
        run.run()
        # The same noise again: two draws would tell twice as much as was paid for.
        np.testing.assert_array_equal(looks[0], looks[1])
        (charge,) = ledger.holding("scans").charges
        assert run.charge == charge
        assert charge.events == plan().events
        assert Gaussian(2.0) in charge.events


@pytest.mark.parametrize("extra", [(), (Laplace(1.0),), (Gaussian(1.0), Gaussian(1.0))])
def test_sums_that_the_plan_does_not_pay_for_are_refused(extra: tuple) -> None:
    with pytest.raises(PrivacyError, match="paid for"):
        a_run(InitialQuery(sums(np.zeros(3)), lambda _: ROWS), plan=plan(extra=extra))
