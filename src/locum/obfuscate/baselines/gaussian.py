"""Gaussian noise on every column or pixel: the simplest baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locum.obfuscate.baselines._loop import Rows, noise_like
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress


class GaussianNoise(Baseline):
    """Rows with independent normal noise of standard deviation `strength`; it hides all attributes alike.

    The classical additive perturbation (Agrawal and Srikant, 2000). It learns nothing, so it needs no private
    attribute. Values can leave the range 0..1, except in tables with one-hot blocks. Averaging repeated releases of a
    row removes the noise.
    """

    name = "gaussian"
    needs_private = False

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        return nn.Identity(), nn.ModuleDict()

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        return

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return self.types_.settle(x + self.strength * noise_like(x, rng))
