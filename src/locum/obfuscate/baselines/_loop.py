"""What baselines share in training: rows as tensors, losses, and the game of an obfuscator against an attacker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locum.errors import DataError, DivergedError
from locum.nets import ColumnTypes
from locum.train import shuffled_batches
from locum.types import Progress

_RATE = {"table": 3e-3, "image": 1e-3}
# Cost, in nats, of an error of one standard deviation in a number. With more, the PUPETs' latent loses categories;
# with less, capital gains.
_NUMBERS = 4.0
# Cost, in nats, of exceeding a bound by the full variance, at the end of training.
_BREACH = 30.0


class Batch(NamedTuple):
    """Some rows with their codes; `done` is the share of training that is over."""

    x: Tensor
    utility: Tensor
    private: Tensor
    done: float


class Move(NamedTuple):
    """What the attacker sees of a batch, and what it costs the obfuscator, apart from what the attacker learns."""

    shown: Tensor
    cost: Tensor


@dataclass(frozen=True)
class Rows:
    """The rows that a baseline learns from."""

    x: Tensor
    utility: Tensor
    private: Tensor
    blocks: tuple[slice, ...]

    @classmethod
    def of(
        cls, X: npt.ArrayLike, utility: npt.ArrayLike, private: npt.ArrayLike | None, blocks: Sequence[slice]
    ) -> Rows:
        """Checked; `utility` may have several columns."""
        x = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
        if x.ndim not in (2, 4) or len(x) < 2:
            raise DataError(
                f"Rows must be (n, d) or (n, c, h, w), with n of 2 or more; got the shape {tuple(x.shape)}."
            )
        if x.ndim == 4 and (x.shape[2] % 8 or x.shape[3] % 8):
            raise DataError(
                f"The sides of images must be multiples of 8; got {x.shape[2]} x {x.shape[3]}. Resize them."
            )
        u = torch.from_numpy(np.asarray(utility, dtype=np.int64).reshape(len(x), -1))
        hidden = np.zeros(len(x), dtype=np.int64) if private is None else np.asarray(private, dtype=np.int64)
        if len(hidden) != len(x):
            raise DataError(
                f"There must be as many labels as rows; got {len(x)} rows and {len(hidden)} private labels."
            )
        return cls(x, u, torch.from_numpy(hidden), tuple(blocks))

    @property
    def kind(self) -> str:
        return "table" if self.x.ndim == 2 else "image"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    @property
    def batch_size(self) -> int:
        """256 records or 64 images; fewer for small data, so that an epoch still has about 30 steps."""
        return min(256 if self.kind == "table" else 64, max(32, len(self.x) // 32))

    @cached_property
    def utility_classes(self) -> tuple[int, ...]:
        return tuple(int(c) + 1 for c in self.utility.max(dim=0).values)

    @cached_property
    def private_classes(self) -> int:
        return int(self.private.max()) + 1

    @cached_property
    def prior(self) -> Tensor:
        """The frequency of each private class."""
        return torch.bincount(self.private, minlength=self.private_classes) / len(self.private)

    @cached_property
    def spread(self) -> Tensor:
        """Standard deviation of each column."""
        return self.x.std(dim=0, correction=0).clamp_min(0.01)

    @cached_property
    def variance(self) -> float:
        """Mean squared distance of a row from the mean row."""
        return float(self.x.flatten(1).var(dim=0, correction=0).sum())


def guess_loss(logits: Tensor, codes: Tensor, classes: Sequence[int]) -> Tensor:
    """Cross-entropy, summed over attributes: `codes` has a column per attribute, `logits` one per class of each."""
    parts = [cross_entropy(part, codes[:, i]) for i, part in enumerate(logits.split(list(classes), dim=1))]
    return torch.stack(parts).sum()


def confusion(logits: Tensor, prior: Tensor) -> Tensor:
    """Divergence of an attacker's guess from the class frequencies: 0 if the attacker has learned nothing.

    Baselines minimize this where their papers maximize the attacker's loss. Both have the same optimum, but the
    papers' loss can go past it, to a confidently wrong attacker; the next attacker is then confidently right.
    """
    return -(prior * (torch.log_softmax(logits, dim=1) - prior.clamp_min(1e-9).log())).sum(dim=1).mean()


def reconstruction(scores: Tensor, x: Tensor, types: ColumnTypes, spread: Tensor) -> Tensor:
    """Negative log-likelihood of records, in nats each: categorical in a block, Gaussian for a number.

    Errors of a number are in units of its column's standard deviation, `spread`, so that a narrow column matters as
    much as a wide one.
    """
    total = scores.new_zeros(())
    for block in types.blocks:
        total = total - (x[:, block] * torch.log_softmax(scores[:, block], dim=1)).sum()
    for stretch in types.numbers:
        total = (
            total + ((torch.sigmoid(scores[:, stretch]) - x[:, stretch]) / spread[stretch]).square().sum() * _NUMBERS
        )
    return total / len(x)


def gaussian_kl(mean: Tensor, log_var: Tensor) -> Tensor:
    """KL divergence of the encoder's Gaussians from the standard normal, in nats per row."""
    return 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum() / len(mean)


def breach(distortion: Tensor, bound: float, done: float) -> Tensor:
    """Penalty for a distortion above its bound; it grows during training, and is 0 at the bound."""
    excess = torch.relu(distortion - bound)
    return _BREACH * (0.1 + done) * (excess + excess.square())


def noise_like(x: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal numbers with the shape of a tensor."""
    return torch.randn(x.shape, generator=rng)


def play(
    rows: Rows,
    move: Callable[[Batch, torch.Generator], Move],
    ours: Iterable[nn.Module],
    rng: torch.Generator,
    *,
    attacker: nn.Module | None = None,
    hide: Callable[[Tensor, Batch], Tensor] = lambda logits, batch: logits.new_zeros(()),
    epochs: int,
    progress: Progress | None = None,
) -> None:
    """Train an obfuscator and an attacker in turns, one step each per batch.

    `move` makes a release of a batch. The attacker first takes a step to guess the private attribute from it; then
    `ours` take a step to lower the move's cost plus `hide`, the cost of the attacker's guesses. Networks that help
    the obfuscator, such as a utility provider, are among `ours`. The learning rate falls to 0 over the last third, so
    that the result does not depend on the last batch.
    """
    rate = _RATE[rows.kind]
    own = torch.optim.Adam([p for m in ours for p in m.parameters()], lr=rate, fused=True)
    theirs = None if attacker is None else torch.optim.Adam(attacker.parameters(), lr=rate, fused=True)
    batches = shuffled_batches(len(rows.x), rows.batch_size)
    for epoch in range(epochs):
        done = epoch / epochs
        own.param_groups[0]["lr"] = rate * min(1.0, 3 * (1 - done))
        total, count = torch.zeros(()), 0
        for i in batches(rng):
            batch = Batch(rows.x[i], rows.utility[i], rows.private[i], done)
            shown, cost = move(batch, rng)
            if attacker is not None and theirs is not None:
                theirs.zero_grad(set_to_none=True)
                cross_entropy(attacker(shown.detach()), batch.private).backward()
                theirs.step()
                # Its weights are fixed while the obfuscator takes its step.
                attacker.requires_grad_(False)
                cost = cost + hide(attacker(shown), batch)
                attacker.requires_grad_(True)
            own.zero_grad(set_to_none=True)
            cost.backward()
            own.step()
            total, count = total + cost.detach(), count + 1
        if not math.isfinite(loss := float(total) / count):
            raise DivergedError("Training diverged: the loss is no longer finite. Lower `strength`.")
        if progress is not None:
            progress(epoch + 1, epochs, f"loss {loss:.4g}")
