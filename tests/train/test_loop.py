from __future__ import annotations

import signal
import stat
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.numpy import load_file
from torch import Tensor, nn

from locum.errors import CheckpointError, ConfigError, DivergedError
from locum.train import Checkpoint, LoopSettings, fingerprint, run_loop, seeded, shuffled_batches


def regression(seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    rng = seeded(seed)
    x = torch.randn(64, 3, generator=rng)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(3, 1), x, y


def fit(settings: LoopSettings, **options: object) -> tuple[nn.Module, object]:
    module, x, y = regression()

    def loss(i: Tensor, _: torch.Generator) -> Tensor:
        return torch.square(module(x[i]) - y[i]).mean()

    history = run_loop(module, shuffled_batches(64, settings.batch_size), loss, settings, seeded(1), **options)
    return module, history


@given(n=st.integers(1, 200), size=st.integers(1, 70))
def test_an_epoch_visits_every_record_once(n: int, size: int) -> None:
    parts = list(shuffled_batches(n, size)(seeded(0)))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    if n > 1 and size > 1:
        assert min(len(p) for p in parts) > 1


def test_the_loss_falls() -> None:
    _, history = fit(LoopSettings(max_epochs=60, batch_size=16, learning_rate=0.05))
    assert history.train_loss[-1] < 0.01 * history.train_loss[0]
    assert history.best_epoch == 60
    assert not history.stopped_early


def test_the_best_weights_are_kept_and_patience_ends_it() -> None:
    module, x, y = regression()
    values = iter([3.0, 1.0, 2.0, 2.5, 2.6, 0.0])
    seen: list[Tensor] = []

    def validate() -> float:
        seen.append(module.weight.detach().clone())
        return next(values)

    history = run_loop(
        module,
        shuffled_batches(64, 16),
        lambda i, _: torch.square(module(x[i]) - y[i]).mean(),
        LoopSettings(max_epochs=50, batch_size=16, patience=3),
        seeded(0),
        validate=validate,
    )
    assert len(seen) == 5
    assert history.best_epoch == 2
    assert history.stopped_early
    torch.testing.assert_close(module.weight.detach(), seen[1])


def test_a_diverging_fit_says_so() -> None:
    module, x, _ = regression()
    with pytest.raises(DivergedError, match="diverged"):
        run_loop(
            module,
            shuffled_batches(64, 16),
            lambda i, _: (module(x[i]) * float("nan")).mean(),
            LoopSettings(max_epochs=2),
            seeded(0),
        )


@pytest.mark.parametrize(
    "wrong", [{"max_epochs": 0}, {"batch_size": 0}, {"patience": 0}, {"learning_rate": 0.0}, {"weight_decay": -1.0},
              {"batch_size": True}, {"max_epochs": 1.5}]
)  # fmt: skip
def test_wrong_settings_name_themselves(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        fit(LoopSettings(**wrong))


class KilledError(Exception):
    """Stands for a kill between two epochs."""


class StopAfter:
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if done == self.epochs:
            raise KilledError


@pytest.mark.parametrize("at", [2, 7])
def test_a_resumed_fit_equals_an_unbroken_one(tmp_path: Path, at: int) -> None:
    settings = LoopSettings(max_epochs=12, batch_size=16, weight_decay=0.01)
    whole, history = fit(settings)
    checkpoint = Checkpoint(tmp_path / "c", "id", every_seconds=0)
    with pytest.raises(KilledError):
        fit(settings, checkpoint=checkpoint, progress=StopAfter(at))
    resumed, again = fit(settings, checkpoint=checkpoint)
    assert torch.equal(whole.weight, resumed.weight)
    assert history.train_loss == again.train_loss


def test_checkpoints_are_private_and_of_one_fit(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "c"
    fit(LoopSettings(max_epochs=2), checkpoint=Checkpoint(path, "one", every_seconds=0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="other data or settings"):
        fit(LoopSettings(max_epochs=2), checkpoint=Checkpoint(path, "two", every_seconds=0))
    assert path.read_bytes() == before
    path.write_bytes(before[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        fit(LoopSettings(max_epochs=2), checkpoint=Checkpoint(path, "one"))


def test_fingerprints_tell_data_and_settings_apart() -> None:
    x = torch.zeros(3)
    base = fingerprint({"a": 1}, x)
    assert base == fingerprint({"a": 1}, torch.zeros(3))
    assert len({base, fingerprint({"a": 2}, x), fingerprint({"a": 1}, x + 1), fingerprint({"a": 1}, x[None])}) == 4


SCRIPT = """
import numpy as np, torch
torch.set_num_threads(1)
from locum.generate import cvae
from locum.train import checkpoint
checkpoint.Checkpoint.__dataclass_fields__  # the real class, saving after every epoch
real = cvae.Checkpoint
cvae.Checkpoint = lambda path, id: real(path, id, every_seconds=0.0)
rng = np.random.default_rng(0)
X, y = rng.normal(size=(400, 20)), np.arange(400) % 3
g = cvae.CVAEGenerator(max_epochs=80, patience=0, checkpoint=saved, random_state=0).fit(X, y)
from safetensors.numpy import save_file
save_file(dict(g.release(no_dp=True).tensors), out)
"""


def test_killed_fits_resume_to_the_same_release(run_apart: Callable[..., BaseProcess], tmp_path: Path) -> None:
    """A real process, a real SIGKILL at two moments, then the release of an unbroken run."""

    def start(name: str, out: str) -> BaseProcess:
        return run_apart(SCRIPT, saved=str(tmp_path / name), out=str(tmp_path / out))

    def ended(process: BaseProcess) -> int | None:
        process.join(120)
        return process.exitcode

    assert ended(start("unbroken.ckpt", "unbroken")) == 0
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(2):
        process = start("killed.ckpt", "killed")
        deadline = time.monotonic() + 60
        while not (tmp_path / "killed.ckpt").exists() and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.15)))
        process.kill()
        kills += ended(process) == -signal.SIGKILL
    assert kills > 0
    assert ended(start("killed.ckpt", "killed")) == 0
    a, b = load_file(tmp_path / "unbroken"), load_file(tmp_path / "killed")
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert not (tmp_path / "killed.ckpt").exists()
