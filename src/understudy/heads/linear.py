"""One linear layer: the probe of the seeds."""

from __future__ import annotations

from torch import nn

from understudy.heads.base import TorchHead

__all__ = ["LinearHead"]


class LinearHead(TorchHead):
    """Softmax regression on z-scored embeddings, trained as the seeds train their probe.

    Losses, samplers, Remix, generated rows and prior correction for classes of unequal size: see `HeadSettings`.

    >>> from understudy.data import load_sample
    >>> s = load_sample("breast-cancer")
    >>> LinearHead(random_state=0).fit(s.X, s.y).score(s.X, s.y) > 0.9
    True
    """

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs)
