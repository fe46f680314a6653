"""Remix (Chou et al., 2020): rows are mixed, and a mix with a small class takes the small class's label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from locum.errors import ConfigError


class Mixed(NamedTuple):
    """Mixed rows: row i is charged `share[i]` for its own label and the rest for that of row `partner[i]`."""

    x: Tensor
    partner: Tensor
    share: Tensor


@dataclass(frozen=True, slots=True)
class Remix:
    """Mix each row of a batch with another one of it, by a weight from Beta(alpha, alpha) for each row.

    The label's share is that weight, but for two cases: where a row's class is at least `kappa` times as large as
    its partner's and the row weighs less than `tau`, all goes to the partner; where it is at least `kappa` times as
    small and the partner weighs less than `tau`, all stays with the row. `tau=0` is Mixup.

    Small classes so get more than their share of the labels, by a quarter at most with these settings: a prior
    correction of a head does not count that.

    >>> sizes = torch.tensor([[900.0, 100.0], [100.0, 900.0], [150.0, 100.0]])
    >>> weight = torch.tensor([0.4, 0.6, 0.4])
    >>> [round(float(v), 3) for v in Remix().label_share(weight, sizes[:, 0], sizes[:, 1])]
    [0.0, 1.0, 0.4]
    """

    alpha: float = 1.0
    kappa: float = 3.0
    tau: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha < math.inf:
            raise ConfigError(f"`alpha` must be above 0; got {self.alpha!r}. 1 mixes evenly.")
        if not self.kappa >= 1:
            raise ConfigError(f"`kappa` must be 1 or more; got {self.kappa!r}. 3 is usual.")
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"`tau` must be from 0 to 1; got {self.tau!r}. 0.5 is usual, 0 is Mixup.")

    def label_share(self, weight: Tensor, size: Tensor, partner_size: Tensor) -> Tensor:
        """Which share of the label a row of `weight` keeps, by the sizes of its class and of its partner's."""
        lost = (size >= self.kappa * partner_size) & (weight < self.tau)
        kept = (partner_size >= self.kappa * size) & (1 - weight < self.tau)
        return weight.masked_fill(lost, 0.0).masked_fill(kept, 1.0)

    def mix(self, x: Tensor, sizes: Tensor, draws: torch.Generator) -> Mixed:
        """Mix the rows `x`; `sizes` holds, for each, how many records its class has."""
        partner = torch.randperm(len(x), generator=draws)
        # Torch has no beta distribution that takes a generator: numpy's is seeded with our coins.
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=draws)))
        weight = torch.from_numpy(rng.beta(self.alpha, self.alpha, size=len(x))).to(x.dtype)
        mixed = torch.lerp(x[partner], x, weight[:, None])
        return Mixed(mixed, partner, self.label_share(weight, sizes, sizes[partner]))
