"""A head that compares directions: the cosine between a record and each class's weights, times a scale."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from reb_sets import HEAD, Array
from torch import Tensor, nn
from torch.nn import functional

from locum.heads import LinearHead, TorchHead


class Cosine(nn.Module):
    """Inputs and weights at length 1; the bias stays 0 while it trains."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(inputs, outputs), scale
        nn.init.zeros_(self.layer.bias)
        self.layer.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * functional.normalize(x) @ functional.normalize(self.layer.weight).T + self.layer.bias


class CosineHead:
    """The thesis' head with a cosine layer.

    `centered` takes the mean of class means off first, so that the directions of classes spread.
    """

    def __init__(self, scale: float, centered: bool, settings: dict[str, Any]) -> None:
        self._head, self._centered, self._mean = _Directions(**settings), centered, np.zeros(1)
        self._head.scale = scale

    def fit(self, X: Array, y: Array) -> Self:
        if self._centered:
            self._mean = np.mean([X[y == c].mean(axis=0) for c in np.unique(y)], axis=0)
        self._head.fit(X - self._mean, y)
        return self

    def predict(self, X: Array) -> Array:
        return self._head.predict(X - self._mean)


class _Directions(TorchHead):
    scale = 1.0

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return Cosine(inputs, outputs, self.scale)


def thesis_head(seed: int, settings: dict[str, Any]) -> LinearHead | CosineHead:
    """The thesis' head; with `cosine`, a scale, and `centered` it has a cosine layer."""
    more = {k: v for k, v in settings.items() if k not in ("cosine", "centered")}
    if "cosine" in settings:
        return CosineHead(settings["cosine"], settings["centered"], {"random_state": seed, **HEAD, **more})
    return LinearHead(random_state=seed, **HEAD, **more)
