"""Softmax equalization loss (Tan et al., 2020): records of other classes do not push rare classes down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ConfigError
from understudy.heads.losses.base import Loss

__all__ = ["Equalization"]


@dataclass(frozen=True, eq=False)
class Equalization(Loss):
    """Cross entropy in which a rare class is left out of the rows of others, with probability `gamma` each time.

    A class is rare where its share of all records is below `lambda_`; where none is, this is cross entropy. One coin
    is thrown for each row and class.
    """

    lambda_: float = 1e-3
    gamma: float = 0.95

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        if len(self._rare):
            ignored = torch.zeros(logits.shape, dtype=torch.bool)
            ignored[:, self._rare] = torch.rand(len(logits), len(self._rare), generator=coins) < self.gamma
            ignored.scatter_(1, target[:, None], False)
            logits = logits.masked_fill(ignored, -torch.inf)
        return functional.cross_entropy(logits, target, reduction="none")

    @cached_property
    def _rare(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.counts / self.counts.sum() < self.lambda_))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lambda_", "gamma"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError(f"`{name}` must be from 0 to 1; got {value!r}.")
