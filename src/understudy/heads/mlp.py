"""A small network: shows what a linear probe cannot."""

from __future__ import annotations

from torch import nn

from understudy.heads.base import TorchHead

__all__ = ["MLPHead"]


class MLPHead(TorchHead):
    """One hidden layer with ReLU and dropout, on z-scored embeddings."""

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
    ) -> None:
        super().__init__(learning_rate, batch_size, max_epochs, patience, weight_decay, standardize, random_state)
        self.hidden = hidden
        self.dropout = dropout

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(self.hidden, outputs)
        )
