"""What training makes small: the distance of rebuilt records, and the errors of the classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from understudy.nets import Obfuscator

__all__ = ["Objective"]

# Now and then the label is withheld in training, so that a weak `lambda_` means something to the decoder.
_WITHHELD = 0.1
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of a batch. Without `beta` it is the seed's: the mean squared error and the classifier's.

    With it, the decoder is told the true labels, the rest comes under normal noise of variance 1, and is kept short:
    the variational bound with a fixed spread, weighed by `beta`.
    """

    module: Obfuscator
    rebuilding: Callable[[Tensor, Tensor], Tensor]
    beta: float | None

    def __call__(self, x: Tensor, y: Tensor, coins: torch.Generator) -> Tensor:
        """The mean over rows `x` with the codes `y`, one column an attribute."""
        needed, rest = self.module.split(x)
        groups = needed.split(self.module.classes, dim=1)
        named = torch.stack([functional.nll_loss(g, y[:, i]) for i, g in enumerate(groups)]).sum()
        if self.beta is None:
            return self.rebuilding(self.module.join(needed, rest), x).mean() + named
        withheld = torch.rand(len(x), 1, generator=coins) < _WITHHELD
        told = torch.where(withheld, self._even(len(x)), self._told(y))
        blurred = rest + torch.randn(rest.shape, generator=coins)
        length = 0.5 * rest.square().sum(dim=1)
        return (self.rebuilding(self.module.join(told, blurred), x) + self.beta * length).mean() + named

    def mean(self, x: Tensor, y: Tensor, coins: torch.Generator) -> float:
        """The same over many rows, in parts."""
        parts = zip(x.split(_CHUNK), y.split(_CHUNK), strict=True)
        return sum(float(self(a, b, coins)) * len(a) for a, b in parts) / len(x)

    def _told(self, y: Tensor) -> Tensor:
        sizes = self.module.classes
        return torch.cat([functional.one_hot(y[:, i], n).float() for i, n in enumerate(sizes)], dim=1)

    def _even(self, n: int) -> Tensor:
        return torch.cat([torch.full((n, size), 1 / size) for size in self.module.classes], dim=1)
