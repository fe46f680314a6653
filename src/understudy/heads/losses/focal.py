"""Focal loss (Lin et al., 2017): rows that are right already count less."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ConfigError
from understudy.heads.losses.base import Loss

__all__ = ["Focal"]


@dataclass(frozen=True, eq=False)
class Focal(Loss):
    """Cross entropy times (1 - p) ** gamma, with p the probability of the right class; `gamma=0` is cross entropy.

    It does not look at `counts`: rare classes gain only as far as they are harder. Probabilities come out too modest.
    """

    gamma: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        plain = functional.cross_entropy(logits, target, reduction="none")
        # A row that is surely right must not have a slope of infinity, which a power below 1 has at 0.
        wrong = -torch.expm1(-plain)
        return wrong.clamp_min(torch.finfo(wrong.dtype).tiny) ** self.gamma * plain

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < math.inf:
            raise ConfigError(f"`gamma` must be 0 or more; got {self.gamma!r}. 2 is usual, 0 is cross entropy.")
