"""A small network in which each canary's gradient is one weight, or one in each half of a CVAE, that is its own.

A linear layer's gradient is what came in times the gradient by what went out. A canary is a row with a large number
in one input column, which records leave at 0, and a switch that lets one hidden number pass: so its gradient lies at
one place of the first layer, and is so long that clipping decides how much of it counts.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from understudy.errors import ConfigError
from understudy.generate.adversary import AS_REAL
from understudy.nets import CVAE, plain_cgan, plain_cvae
from understudy.train import CVAELoss, RowLoss

__all__ = ["CanaryNetwork", "NetworkKind"]

NetworkKind = Literal["cvae", "critic"]
Floats = npt.NDArray[np.float64]

_DIM, _CLASSES, _LATENT = 8, 2, 4
# Hidden numbers of a canary: one has this value, all others are switched off by as much more as is safe.
_ON, _OFF = 2.0, -1000.0
# Standard deviation exp(-30): latent noise is there, and changes nothing that canaries do.
_LOG_VARIANCE = -60.0
# How much longer a canary's gradient is than what it may count for.
_TOO_LONG = 1e6


class CanaryNetwork:
    """The network of a `kind` of generator ("cvae", or the "critic" of a GAN), with room for so many `canaries`.

    Weights at the start are public, so an auditor may choose them; they are float64, so that small steps can be read.

    Attributes
    ----------
    size
        What stands in a canary's column.
    """

    def __init__(self, kind: NetworkKind, canaries: int, clip: float, seed: int) -> None:
        self.canaries, self.size = canaries, _TOO_LONG * max(1.0, clip)
        # Canary i has hidden number i % hidden and column i // hidden.
        self._hidden = math.ceil(math.sqrt(canaries) / 2)
        self._columns = math.ceil(canaries / self._hidden)
        condition = _CLASSES + self._hidden + self._columns
        self.module: nn.Module
        self.loss: RowLoss
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if kind == "cvae":
                cvae = plain_cvae(_DIM, condition, (self._hidden,), _LATENT, sigmoid=False)
                self.module, self.loss = cvae, CVAELoss()
                first = [cvae.encoder[0], cvae.decoder[0]]
            elif kind == "critic":
                critic = plain_cgan(_DIM, condition, 1, (1,), (self._hidden,)).critic
                self.module, self.loss = critic, AS_REAL
                first = [critic[0]]
            else:
                raise ConfigError(f"`network` must be 'cvae' or 'critic'; got {kind!r}.")
        self.module.double()
        self._first = [layer for layer in first if isinstance(layer, nn.Linear)]
        self._prepare()
        self._directions = self._measure()

    def plain_rows(self, n: int, rng: np.random.Generator) -> Tensor:
        """Made-up records: normal vectors of either class, without a number in any canary's column."""
        rows = torch.zeros(n, self._first[0].in_features, dtype=torch.float64)
        rows[:, :_DIM] = torch.from_numpy(rng.standard_normal((n, _DIM)))
        rows[torch.arange(n), _DIM + torch.from_numpy(rng.integers(_CLASSES, size=n))] = 1.0
        return rows

    def canary_rows(self, who: npt.NDArray[np.int64], sign: Floats) -> Tensor:
        """A row for each of `who`, whose gradient points where `sign` says."""
        rows = torch.zeros(len(who), self._first[0].in_features, dtype=torch.float64)
        i, canary = torch.arange(len(who)), torch.from_numpy(who)
        switches = _DIM + _CLASSES
        rows[i, switches + canary % self._hidden] = 1.0
        rows[i, switches + self._hidden + canary // self._hidden] = torch.from_numpy(sign) * self.size
        return rows

    def read(self) -> Floats:
        """Where the weights stand, for each canary along its direction."""
        total = sum(d[:, None] * self._own(layer.weight.detach()) for d, layer in self._pairs())
        assert isinstance(total, Tensor)
        return total.T.reshape(-1)[: self.canaries].numpy().copy()

    def _pairs(self) -> list[tuple[Tensor, nn.Linear]]:
        return list(zip(self._directions, self._first, strict=True))

    def _own(self, weight: Tensor) -> Tensor:
        """The columns of a first layer that belong to canaries; they are the last ones everywhere."""
        return weight[:, weight.shape[1] - self._columns :]

    @torch.no_grad()
    def _prepare(self) -> None:
        for layer in self._first:
            own = self._own(layer.weight)
            own.zero_()
            start = layer.in_features - self._columns - self._hidden
            layer.weight[:, start : start + self._hidden] = _OFF * (1 - torch.eye(self._hidden))
            layer.bias.fill_(_ON)
        if isinstance(self.module, CVAE):
            last = self.module.encoder[-1]
            assert isinstance(last, nn.Linear)
            last.bias[_LATENT:] = _LOG_VARIANCE

    def _measure(self) -> list[Tensor]:
        """For each hidden number, which part of a canary's gradient lies in which first layer: by torch's own way."""
        everyone = self.canary_rows(np.arange(self._hidden), np.ones(self._hidden))
        if isinstance(self.module, CVAE):
            outputs = self.module(everyone, torch.zeros(self._hidden, _LATENT, dtype=torch.float64), 0.5)
        else:
            outputs = (self.module(everyone),)
        _, gradients = self.loss(tuple(out.detach() for out in outputs), everyone)
        found = torch.autograd.grad(outputs, [layer.weight for layer in self._first], gradients)
        # All of these canaries share the first column, and none shares a hidden number.
        parts = [self._own(gradient)[:, 0] for gradient in found]
        length = torch.stack(parts).norm(dim=0)
        return [part / length for part in parts]
