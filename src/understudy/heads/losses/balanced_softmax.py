"""Balanced softmax (Ren et al., 2020): training sees the classes as they come, the logits do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.heads.losses.base import Floats, Loss

__all__ = ["BalancedSoftmax"]


@dataclass(frozen=True, eq=False)
class BalancedSoftmax(Loss):
    """Cross entropy of logits plus the log of the class counts: what is learnt fits classes of equal size.

    The counts must be those of the rows that the loss sees. Where a sampler has balanced them already, the records'
    own counts would correct a second time, and the frequent classes would pay.

    >>> import math, torch
    >>> value = BalancedSoftmax([3, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(4), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        return functional.cross_entropy(logits + self._log_shares, target, reduction="none")

    @property
    def tilt(self) -> Floats:
        """Each class is divided by its count."""
        return 1 / self.counts

    @cached_property
    def _log_shares(self) -> Tensor:
        return torch.from_numpy(np.log(self.counts / self.counts.sum())).float()
