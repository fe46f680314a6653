"""The objective of training: one loss, class and row weights, and Remix, as the mean over a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from locum.errors import ConfigError
from locum.heads.balance import ClassBalance
from locum.heads.losses import CrossEntropy, Loss
from locum.heads.remix import Remix


class Batch(NamedTuple):
    """Scaled rows, class codes, and a weight per row if rows are weighted."""

    x: Tensor
    target: Tensor
    weight: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Objective:
    """The mean of `loss` over a batch, with class weights and row weights, on mixed rows if there is a `remix`.

    `sizes` are the records per class, from which Remix derives labels. For each of its labels, a mixed row has that
    label's weight.
    """

    loss: Loss
    class_weight: Tensor | None = None
    remix: Remix | None = None
    sizes: Tensor | None = None

    def __call__(self, module: Callable[[Tensor], Tensor], batch: Batch, rng: torch.Generator) -> Tensor:
        """The value for one batch."""
        if self.remix is None or self.sizes is None:
            return self.mean(module(batch.x), batch.target, batch.weight, rng)
        mixed = self.remix.mix(batch.x, self.sizes[batch.target], rng)
        logits = module(mixed.x)
        other = None if batch.weight is None else batch.weight[mixed.partner]
        own = self._rows(logits, batch.target, batch.weight, rng)
        partners = self._rows(logits, batch.target[mixed.partner], other, rng)
        return torch.lerp(partners, own, mixed.share).mean()

    def mean(self, logits: Tensor, target: Tensor, weight: Tensor | None, rng: torch.Generator) -> Tensor:
        """The value for logits, without mixing."""
        if weight is None and self.class_weight is None and type(self.loss) is CrossEntropy:
            # Torch's own mean is faster, and differs from the mean of single rows in the last digit.
            return functional.cross_entropy(logits, target)
        return self._rows(logits, target, weight, rng).mean()

    def _rows(self, logits: Tensor, target: Tensor, weight: Tensor | None, rng: torch.Generator) -> Tensor:
        rows = self.loss(logits, target, rng)
        if self.class_weight is not None:
            rows = rows * self.class_weight[target]
        return rows if weight is None else rows * weight


class Plan(NamedTuple):
    """The balance of classes, the objective of training, and what is added to the logits at the end."""

    balance: ClassBalance
    objective: Objective
    shift: npt.NDArray[np.float64] | None


def make_plan(balance: ClassBalance, loss: Any, counts: Any, remix: Any, prior: Any, tau: float) -> Plan:
    """Check the settings of a head and make them into objects."""
    made = balance.loss(loss, counts)
    weight = balance.scaled_weight
    mixer = (Remix() if remix is True else remix) if remix is not False else None
    if not isinstance(mixer, Remix | None):
        raise ConfigError(f"`remix` must be True, False or a Remix; got {remix!r}.")
    objective = Objective(
        made,
        None if weight is None else torch.from_numpy(weight).float(),
        mixer,
        torch.from_numpy(balance.records).float(),
    )
    return Plan(balance, objective, balance.shift(made, prior, tau))


def fold(module: nn.Module, scale: float, shift: npt.NDArray[np.float64] | None) -> None:
    """Change the last layer so that its logits are multiplied by `scale` and get `shift`: a saved head keeps both."""
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(scale)
        last.bias.mul_(scale)
        if shift is not None:
            last.bias.add_(torch.from_numpy(shift).to(last.bias.dtype))
