"""Time of a private step compared with a plain one and with Opacus, in one run, in turn.

A CVAE of 476,616 weights on 20,000 records of 768 features in 10 classes. "plain" is `run_loop`, "private" is
`PrivateRun` as it is used, with its ledger and a cryptographic rng, or with an insecure seed. Opacus runs with hooks
(one gradient per record in memory) and in ghost mode, both with torch's ordinary rng and batches of fixed size, which
favors Opacus. A step's time is the mean over eight consecutive steps; the best of all rounds counts.

    OMP_NUM_THREADS=1 python benchmarks/dp_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from locum.accounting import Ledger, SGDPlan
from locum.nets import CVAE, plain_cvae
from locum.train import CVAELoss, LoopSettings, run_loop, seeded
from locum.train.dp import PrivateRun
from locum.types import DP

N, DIM, CLASSES, HIDDEN, LATENT = 20_000, 768, 10, 256, 100
# Noise is drawn two steps ahead: a window must be longer than that, or it would not include the drawing.
WARM, WINDOW = 3, 8
# Opacus with hooks holds one gradient per record: 7.8 GB at 4096.
HOOKS_UP_TO = 1024
Timer = Callable[[int, int], float]


def build() -> CVAE:
    torch.manual_seed(0)
    return plain_cvae(DIM, CLASSES, (HIDDEN,), LATENT, sigmoid=False)


def records() -> Tensor:
    rng = seeded(0)
    y = torch.arange(N) % CLASSES
    X = torch.randn(N, DIM, generator=rng) + torch.randn(CLASSES, DIM, generator=rng)[y]
    return torch.cat([X, torch.eye(CLASSES)[y]], dim=1)


def row_losses(outputs: tuple[Tensor, Tensor, Tensor], rows: Tensor) -> Tensor:
    out, mean, log_var = outputs
    kl = 0.5 * (torch.exp(log_var) + torch.square(mean) - log_var - 1)
    return torch.square(out - rows[:, :DIM]).sum(dim=1) + kl.sum(dim=1)


def per_step(stamps: list[float]) -> float:
    """The best mean over WINDOW consecutive steps, timed at their losses; the first steps are warm-up."""
    steps = np.diff(stamps[WARM:])
    window = min(WINDOW, len(steps))
    return float(np.convolve(steps, np.full(window, 1 / window), mode="valid").min())


def plain(rows: Tensor) -> Timer:
    def run(batch: int, steps: int) -> float:
        module, stamps = build(), []

        def batches(rng: torch.Generator) -> Iterator[Tensor]:
            order = torch.cat([torch.randperm(N, generator=rng) for _ in range(-(-batch * steps // N))])
            yield from order.split(batch)[:steps]

        def loss(i: Tensor, rng: torch.Generator) -> Tensor:
            stamps.append(time.perf_counter())
            x = rows[i]
            return row_losses(module(x, torch.randn(len(x), LATENT, generator=rng), 0.5), x).mean()

        run_loop(module, batches, loss, LoopSettings(max_epochs=1, batch_size=batch), seeded(0))
        return per_step(stamps)

    return run


class Clock:
    """A loss that looks at the time."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self.loss = CVAELoss()

    def __call__(self, outputs: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        self.stamps.append(time.perf_counter())
        return self.loss(outputs, rows)


def private(rows: Tensor, ledger: Ledger | None) -> Timer:
    def run(batch: int, steps: int) -> float:
        clock = Clock()
        plan = SGDPlan(DP(100.0, 1e-6, n_public=N), batch / N, batch, steps, 1.0, 1.0)
        fit = PrivateRun(build(), rows, clock, plan, ledger, "bench", insecure_seed=None if ledger else 0)
        clock.stamps.clear()
        fit.run()
        return per_step(clock.stamps)

    return run


def opacus(rows: Tensor, *, ghost: bool) -> Timer:
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    def run(batch: int, steps: int) -> float:
        module, rng, stamps = build(), seeded(0), []
        adam = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
        shared = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
        if ghost:
            wrapped = GradSampleModuleFastGradientClipping(module, loss_reduction="sum", max_grad_norm=1.0)
            optimizer = DPOptimizerFastGradientClipping(adam, loss_reduction="sum", generator=rng, **shared)
        else:
            wrapped = GradSampleModule(module, loss_reduction="sum")
            optimizer = DPOptimizer(adam, loss_reduction="sum", generator=rng, **shared)
        for _ in range(steps):
            x = rows[torch.randint(N, (batch,), generator=rng)]
            losses = row_losses(wrapped(x, torch.randn(batch, LATENT, generator=rng), 0.5), x)
            stamps.append(time.perf_counter())
            optimizer.zero_grad(set_to_none=True)
            value = DPTensorFastGradientClipping(wrapped, optimizer, losses, "sum") if ghost else losses.sum()
            value.backward()
            optimizer.step()
        return per_step(stamps)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds; says so")
    quick = parser.parse_args().quick
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    warnings.simplefilter("ignore")
    rounds = 4 if quick else 10
    rows = records()
    print(
        f"{torch.get_num_threads()} threads, best of {rounds} rounds in turn" + (" (quick setting)" if quick else "")
    )
    print("batch   plain ms   private   private, seeded rng   Opacus ghost   Opacus hooks   (times plain)")
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger") as ledger:
        ledger.set_budget("bench", epsilon=1e9, delta=0.9)
        baselines = {
            "plain": plain(rows),
            "private": private(rows, ledger),
            "test": private(rows, None),
            "ghost": opacus(rows, ghost=True),
            "hooks": opacus(rows, ghost=False),
        }
        for batch in (64, 256, 1024, 4096):
            best = dict.fromkeys(baselines, np.inf)
            for turn in range(rounds):
                for name, timer in baselines.items():
                    # Hooks take as long as fifty of the others; two rounds are enough.
                    if name == "hooks" and (batch > HOOKS_UP_TO or turn > 1):
                        continue
                    steps = 2 if name == "hooks" else max(8, min(40, 8000 // batch))
                    best[name] = min(best[name], timer(batch, steps + WARM + 1))
            ratios = {name: value / best["plain"] for name, value in best.items()}
            hooks = f"{ratios['hooks']:12.1f}" if np.isfinite(ratios["hooks"]) else " " * 11 + "-"
            print(
                f"{batch:5d}   {1000 * best['plain']:8.2f}   {ratios['private']:7.2f}   {ratios['test']:19.2f}   "
                f"{ratios['ghost']:12.2f}   {hooks}",
                flush=True,
            )


if __name__ == "__main__":
    main()
