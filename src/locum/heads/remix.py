"""Remix (Chou et al., 2020): rows are mixed, and a mix with a small class gets the small class's label."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from locum.errors import ConfigError


class Mixed(NamedTuple):
    """Mixed rows: row i has its own label with weight `share[i]`, and that of row `partner[i]` with the rest."""

    x: Tensor
    partner: Tensor
    share: Tensor


@dataclass(frozen=True, slots=True)
class Remix:
    """Mix each row of a batch with another one, with a weight from Beta(alpha, alpha) per row.

    The label's share is that weight, except in two cases: if a row's class is at least `kappa` times as large as its
    partner's and the row's weight is below `tau`, the partner gets the whole label; if it is at least `kappa` times
    as small and the partner's weight is below `tau`, the row keeps the whole label.

    Small classes thus get more than their share of the labels, by at most a quarter with the default settings; a
    head's prior correction does not account for that.

    Parameters
    ----------
    alpha
        Both parameters of the beta distribution, above 0; 1 draws all weights equally often.
    kappa
        How many times larger a class must be to lose its label, 1 or more.
    tau
        Below which weight a row loses its label, from 0 to 1; 0 is Mixup.

    Examples
    --------
    >>> import torch
    >>> from locum.heads import Remix
    >>> sizes, partner_sizes = torch.tensor([900.0, 100.0, 150.0]), torch.tensor([100.0, 900.0, 100.0])
    >>> shares = Remix().label_share(torch.tensor([0.4, 0.6, 0.4]), sizes, partner_sizes)
    >>> [round(share, 3) for share in shares.tolist()]
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
        """The share of the label that a row of `weight` keeps, given the sizes of its class and of its partner's."""
        lost = (size >= self.kappa * partner_size) & (weight < self.tau)
        kept = (partner_size >= self.kappa * size) & (1 - weight < self.tau)
        return weight.masked_fill(lost, 0.0).masked_fill(kept, 1.0)

    def mix(self, x: Tensor, sizes: Tensor, draws: torch.Generator) -> Mixed:
        """Mix the rows `x`; `sizes` holds the number of records in each row's class."""
        partner = torch.randperm(len(x), generator=draws)
        # Torch has no beta distribution that takes a generator: seed numpy's from ours.
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=draws)))
        weight = torch.from_numpy(rng.beta(self.alpha, self.alpha, size=len(x))).to(x.dtype)
        mixed = torch.lerp(x[partner], x, weight[:, None])
        return Mixed(mixed, partner, self.label_share(weight, sizes, sizes[partner]))
