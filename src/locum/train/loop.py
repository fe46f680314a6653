"""The training loop without privacy: tensors in memory, no Python per record, best weights kept, resumable."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from locum.errors import ConfigError, DivergedError
from locum.train.checkpoint import Checkpoint, History
from locum.types import Progress

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Public settings of a fit.

    Parameters
    ----------
    max_epochs
        The most passes over the data, 1 or more.
    batch_size
        The number of records in a batch, 1 or more. `run_loop` does not use it: `batches` decides.
    learning_rate
        The learning rate of Adam, above 0.
    weight_decay
        Decoupled weight decay (AdamW), 0 or more; 0 is Adam.
    patience
        Stop after this many epochs without a better validation loss; None, or no validation: run every epoch.
    betas
        Adam's two decay rates.

    Examples
    --------
    >>> from locum.train import LoopSettings
    >>> LoopSettings(max_epochs=10, patience=3).learning_rate
    0.001
    """

    max_epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = None
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        for name, least in (("max_epochs", 1), ("batch_size", 1), ("patience", 1)):
            value = getattr(self, name)
            if value is None and name == "patience":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"`{name}` must be a whole number, {least} or more; got {value!r}.")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"`learning_rate` must be above 0; got {self.learning_rate!r}. 0.001 is usual.")
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(f"`weight_decay` must be 0 or more; got {self.weight_decay!r}.")


def batch_sizes(n: int, batch_size: int) -> list[int]:
    """The sizes of batches of `n` records; a last batch of one record joins the one before it."""
    stops = [*range(batch_size, n, batch_size), n]
    if len(stops) > 1 and n - stops[-2] == 1:
        del stops[-2]
    return [b - a for a, b in pairwise([0, *stops])]


def shuffled_batches(n: int, batch_size: int) -> Callable[[torch.Generator], Iterator[Tensor]]:
    """Batches of positions in a new random order for each epoch; the last one may be smaller.

    A last batch of one record joins the one before it: batch normalization cannot use a single record.

    Parameters
    ----------
    n
        The number of records.
    batch_size
        The number of positions in a batch.

    Returns
    -------
    callable
        A function of a torch generator that gives the batches of one epoch, each a tensor of positions.

    Examples
    --------
    >>> from locum.train import seeded, shuffled_batches
    >>> [len(positions) for positions in shuffled_batches(9, 4)(seeded(0))]
    [4, 5]
    """
    sizes = batch_sizes(n, batch_size)

    def batches(rng: torch.Generator) -> Iterator[Tensor]:
        yield from torch.randperm(n, generator=rng).split(sizes)

    return batches


def run_loop(
    module: nn.Module,
    batches: Callable[[torch.Generator], Iterable[Any]],
    loss: Callable[[Any, torch.Generator], Tensor],
    settings: LoopSettings,
    rng: torch.Generator,
    *,
    validate: Callable[[], float] | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> History:
    """Train `module` in place and leave it in evaluation mode with its best weights.

    A run that was killed and resumed ends with the same weights as an uninterrupted one (on the same machine, with
    the same number of threads), if `batches` and `loss` draw from the given generator only.

    Parameters
    ----------
    module
        The network to train.
    batches
        A function of the generator that gives the batches of one epoch; see `shuffled_batches`.
    loss
        A function of a batch and the generator that gives the mean loss over the batch.
    settings
        Epochs, learning rate and patience.
    rng
        The generator that all draws come from.
    validate
        Gives the validation loss after each epoch; the weights of the best epoch are kept. None: those of the last.
    checkpoint
        Where to save, and to resume from if it holds an earlier run of the same fit. The caller removes it.
    progress
        Called after each epoch.

    Returns
    -------
    History
        Losses by epoch, and how training ended. It depends on records: it stays local.

    Raises
    ------
    DataError
        If the loss is no longer finite.

    Examples
    --------
    >>> import torch
    >>> from locum.train import LoopSettings, run_loop, seeded, shuffled_batches
    >>> x, net = torch.linspace(-1, 1, 64)[:, None], torch.nn.Linear(1, 1)
    >>> loss = lambda i, rng: (net(x[i]) - 2 * x[i]).square().mean()
    >>> history = run_loop(net, shuffled_batches(64, 16), loss, LoopSettings(50, learning_rate=0.1), seeded(0))
    >>> history.best_epoch, round(net.weight.item(), 1)
    (50, 2.0)
    """
    with _threads_for(module, settings.batch_size):
        return _run(module, batches, loss, settings, rng, validate, checkpoint, progress)


# Multiply-adds of a step. Below, threads wait for each other longer than they work.
_WORTH_SHARING = 2**26


@contextmanager
def _threads_for(module: nn.Module, rows: int) -> Iterator[None]:
    """One thread for the steps of a small network, and as many as before afterwards."""
    # A convolution uses each weight many times.
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in module.modules())
    work = sum(p.numel() for p in module.parameters()) * rows
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < _WORTH_SHARING and not convolves else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(
    module: nn.Module,
    batches: Callable[[torch.Generator], Iterable[Any]],
    loss: Callable[[Any, torch.Generator], Tensor],
    settings: LoopSettings,
    rng: torch.Generator,
    validate: Callable[[], float] | None,
    checkpoint: Checkpoint | None,
    progress: Progress | None,
) -> History:
    optimizer = _optimizer(module, settings)
    history, best, epoch = History(), dict[str, Tensor](), 0
    if checkpoint is not None and (state := checkpoint.load()) is not None:
        epoch, best = state.restore(module, optimizer, rng, history)
    saved_at = time.monotonic()
    while epoch < settings.max_epochs and not _patience_over(history, settings, epoch):
        module.train()
        total, count = torch.zeros(()), 0
        for batch in batches(rng):
            optimizer.zero_grad(set_to_none=True)
            value = loss(batch, rng)
            value.backward()
            optimizer.step()
            total, count = total + value.detach(), count + 1
        epoch += 1
        history.train_loss.append(_finite(float(total) / max(count, 1), settings))
        module.eval()
        if validate is not None:
            with torch.no_grad():
                history.validation_loss.append(_finite(validate(), settings))
        if validate is None:
            history.best_epoch = epoch
        elif _is_best(history.validation_loss):
            history.best_epoch, best = epoch, _copy(module)
        if progress is not None:
            progress(epoch, settings.max_epochs, f"loss {history.train_loss[-1]:.4g}")
        if checkpoint is not None and time.monotonic() - saved_at >= checkpoint.every_seconds:
            checkpoint.save(module, optimizer, rng, history, epoch, best)
            saved_at = time.monotonic()
    history.stopped_early = epoch < settings.max_epochs
    if history.stopped_early and progress is not None:
        progress(epoch, epoch, "stopped early")
    _log.info("trained for %d epochs; the best was %d", epoch, history.best_epoch)
    if best:
        module.load_state_dict(best)
    module.eval()
    return history


def seeded(seed: int) -> torch.Generator:
    """A new torch generator on the CPU: torch's global one is not touched.

    Parameters
    ----------
    seed
        A whole number.

    Returns
    -------
    torch.Generator
        It always draws the same numbers for the same seed.

    Examples
    --------
    >>> import torch
    >>> from locum.train import seeded
    >>> torch.equal(torch.rand(3, generator=seeded(0)), torch.rand(3, generator=seeded(0)))
    True
    """
    rng = torch.Generator()
    rng.manual_seed(seed)
    return rng


def _optimizer(module: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if settings.weight_decay else torch.optim.Adam
    parameters = list(module.parameters())
    return kind(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in module.state_dict().items()}


def _is_best(losses: list[float]) -> bool:
    return losses[-1] <= min(losses)


def _patience_over(history: History, settings: LoopSettings, epoch: int) -> bool:
    if settings.patience is None or not history.validation_loss:
        return False
    return epoch - history.best_epoch >= settings.patience


def _finite(value: float, settings: LoopSettings) -> float:
    if not math.isfinite(value):
        raise DivergedError(
            "Training diverged: the loss is no longer finite. "
            f"Lower `learning_rate` (now {settings.learning_rate!r}) or check the data for extreme values."
        )
    return value
