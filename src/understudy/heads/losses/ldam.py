"""LDAM (Cao et al., 2019): the fewer records a class has, the wider the margin it is given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ConfigError
from understudy.heads.losses.base import Loss

__all__ = ["LDAM"]


@dataclass(frozen=True, eq=False)
class LDAM(Loss):
    """Cross entropy of `s` times the logits, after a margin is taken off the right class's.

    The margin goes with n ** -1/4 and is `max_m` for the smallest class. It answers to how few records a class has,
    however often they are drawn: it uses the records' counts. The paper measures angles: it scales weights and inputs
    to length 1. Here the logits are a plain layer's, so that the margin is a distance between scores.
    """

    max_m: float = 0.5
    s: float = 30.0
    COUNTS: ClassVar[Literal["drawn", "records"]] = "records"

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        off = torch.zeros_like(logits).scatter_(1, target[:, None], self._margins[target][:, None])
        return functional.cross_entropy(self.s * (logits - off), target, reduction="none")

    @property
    def scale(self) -> float:
        """`s`."""
        return float(self.s)

    @cached_property
    def _margins(self) -> Tensor:
        narrow = self.counts**-0.25
        return torch.from_numpy(self.max_m * narrow / narrow.max()).float()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.max_m < math.inf:
            raise ConfigError(f"`max_m` must be 0 or more; got {self.max_m!r}. 0.5 is usual.")
        if not 0 < self.s < math.inf:
            raise ConfigError(f"`s` must be above 0; got {self.s!r}. 30 is usual.")
