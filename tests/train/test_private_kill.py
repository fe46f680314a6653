"""Real processes, real SIGKILLs: what was paid stays paid, once, and every planned step is done once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from locum.accounting import Ledger

SCRIPT = """
import json, os, signal, time
import torch
from torch import nn
from locum.accounting import Ledger, SGDPlan
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP

torch.set_num_threads(1)
torch.manual_seed(0)

class Dying(Ledger):
    def charge(self, *given, **named):
        out = super().charge(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return out

def log(done, total, note=""):
    time.sleep(0.03)

plan = SGDPlan(DP(100.0, 1e-5, n_public=100), 0.1, 10, 300, 1.0, 1.0)
rows = torch.randn(100, 3)
loss = RowLossByAutograd(lambda out, rows: torch.square(out).sum(dim=1))
with (Dying if mode == "at charge" else Ledger)(folder + "/ledger") as ledger:
    run = PrivateRun(
        nn.Linear(3, 2), rows, loss, plan, ledger, "scans",
        checkpoint=folder + "/fit", checkpoint_seconds=0.02, progress=log,
    )
    history = run.run()
    run.remove_checkpoint()
    with open(folder + "/told", "w") as file:
        json.dump([history.steps, run.charge.identity], file)
"""


Start = Callable[..., BaseProcess]


@pytest.fixture
def start(run_apart: Start, folder: Path) -> Start:
    return lambda mode="": run_apart(SCRIPT, folder=str(folder), mode=mode)


def ended(process: BaseProcess, seconds: float) -> int | None:
    process.join(seconds)
    return process.exitcode


def told(folder: Path) -> str:
    return (folder / "told").read_text()


def charges(folder: Path) -> list[str]:
    with Ledger(folder / "ledger") as ledger:
        return [charge.identity for charge in ledger.holding("scans").charges]


def steps_done(folder: Path) -> int:
    """What the checkpoint says, while another process may be replacing it."""
    try:
        with safe_open(folder / "fit", framework="pt") as f:
            return int(f.metadata()["epoch"])
    except (FileNotFoundError, SafetensorError):
        return -1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.set_budget("scans", epsilon=1000.0, delta=1e-3)
    return tmp_path


def test_killed_in_the_middle_and_resumed(start: Start, folder: Path) -> None:
    done = 0
    for target in (1, 120):
        process = start()
        deadline = time.monotonic() + 600
        while steps_done(folder) < target and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        assert ended(process, 60) == -signal.SIGKILL, "it was over before it could be killed"
        assert len(charges(folder)) == 1
        # It went on from where it was: no step is done twice, none is left out.
        assert done <= steps_done(folder) < 300
        done = steps_done(folder)
        assert done >= target
    assert ended(start(), 600) == 0
    assert told(folder) == f'[300, "{charges(folder)[0]}"]'
    assert len(charges(folder)) == 1
    assert not (folder / "fit").exists()


def test_killed_right_after_the_charge(start: Start, folder: Path) -> None:
    """Before the receipt was written: the charge is lost, never taken back, and the next fit pays for itself."""
    assert ended(start("at charge"), 600) == -signal.SIGKILL
    assert len(charges(folder)) == 1
    assert ended(start(), 600) == 0
    lost, paid = charges(folder)
    assert told(folder) == f'[300, "{paid}"]'
    assert lost != paid
