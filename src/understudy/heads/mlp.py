"""A small network: shows what a linear probe cannot."""

from __future__ import annotations

from typing import Any

from torch import nn

from understudy.heads.base import TorchHead
from understudy.heads.remix import Remix

__all__ = ["MLPHead"]


class MLPHead(TorchHead):
    """One hidden layer with ReLU and dropout, on z-scored embeddings; for unequal classes see `HeadSettings`."""

    def __init__(
        self,
        hidden: int = 256,
        dropout: float = 0.1,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        max_epochs: int = 100,
        patience: int | None = 5,
        weight_decay: float = 0.0,
        standardize: bool = True,
        random_state: int | None = None,
        *,
        loss: Any = "cross_entropy",
        sampler: str = "instance",
        remix: bool | Remix = False,
        augment: Any = None,
        p_min: float = 0.01,
        p_max: float = 0.7,
        class_weight: Any = None,
        counts: Any = None,
        prior: Any = None,
        tau: float = 1.0,
    ) -> None:
        super().__init__(
            learning_rate,
            batch_size,
            max_epochs,
            patience,
            weight_decay,
            standardize,
            random_state,
            loss=loss,
            sampler=sampler,
            remix=remix,
            augment=augment,
            p_min=p_min,
            p_max=p_max,
            class_weight=class_weight,
            counts=counts,
            prior=prior,
            tau=tau,
        )
        self.hidden = hidden
        self.dropout = dropout

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(self.hidden, outputs)
        )
