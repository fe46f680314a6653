"""Class-balanced loss (Cui et al., 2019): classes weigh by the inverse of their effective number of records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ConfigError
from understudy.heads.losses.base import Floats, Loss

__all__ = ["ClassBalanced"]


@dataclass(frozen=True, eq=False)
class ClassBalanced(Loss):
    """Cross entropy times (1 - beta) / (1 - beta ** n) for a class of n records, scaled to a mean of 1 over classes.

    `beta=0` is cross entropy, `beta` near 1 weighs by 1 / n. With 0.99 classes of a few hundred records or more
    weigh the same: the effective number ends at 100.
    """

    beta: float = 0.99

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        return functional.cross_entropy(logits, target, reduction="none") * self._weights[target]

    @property
    def tilt(self) -> Floats:
        """A class's weight acts as if it had that many times its records."""
        effective = 1 - self.beta**self.counts
        out: Floats = 1 / effective / np.mean(1 / effective)
        return out

    @cached_property
    def _weights(self) -> Tensor:
        return torch.from_numpy(self.tilt).float()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < 1:
            raise ConfigError(f"`beta` must be 0 or more and below 1; got {self.beta!r}. 0.99 is usual.")
