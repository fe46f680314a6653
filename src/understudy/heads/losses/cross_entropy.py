"""Softmax cross entropy: every record counts the same, so frequent classes rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from understudy.heads.losses.base import Loss

__all__ = ["CrossEntropy"]


@dataclass(frozen=True, eq=False)
class CrossEntropy(Loss):
    """The negative log-probability of the right class; it does not look at `counts`.

    >>> import math, torch
    >>> value = CrossEntropy([9, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(2), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
        """One value a row."""
        return functional.cross_entropy(logits, target, reduction="none")
