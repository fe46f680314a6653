"""Two networks that train each other: what a maker may see, and what only the critic does."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils import parameters_to_vector

from locum.accounting import SGDPlan
from locum.errors import ConfigError
from locum.nets import CGAN
from locum.train import History, LoopSettings, RowLossByAutograd, shuffled_batches
from locum.train.dp import ClippedNetwork
from locum.types import ProgressBar

# What the critic loses on a row that it should call real, and on one that it should call made.
AS_REAL = RowLossByAutograd(lambda out, rows: softplus(-out[:, 0]))
AS_MADE = RowLossByAutograd(lambda out, rows: softplus(out[:, 0]))
_BETAS = (0.5, 0.999)


@dataclass(frozen=True, slots=True)
class Training:
    """Public settings of a fit: `learning_rate` is the maker's."""

    learning_rate: float
    critic_learning_rate: float
    batch_size: int
    max_epochs: int

    def __post_init__(self) -> None:
        LoopSettings(self.max_epochs, self.batch_size, self.learning_rate)
        if not 0 < self.critic_learning_rate < math.inf:
            raise ConfigError(f"`critic_learning_rate` must be above 0; got {self.critic_learning_rate!r}.")


class Maker:
    """The half that sees no record's vector: it makes rows for the critic, and learns from the critic alone.

    Labels are drawn from the rows of `labels`. With `centres`, one a class, what the network makes is added to its
    class's centre and brought to length sqrt(d) before the critic sees it: records were, and everybody may know it.
    """

    def __init__(self, net: CGAN, labels: Tensor, learning_rate: float, rng: torch.Generator) -> None:
        self.centres: Tensor | None = None
        self.rng, self._net, self._labels = rng, net, labels
        self._weights = list(net.generator.parameters())
        self._optimizer = torch.optim.Adam(self._weights, lr=learning_rate, betas=_BETAS, fused=True)

    def make(self, n: int) -> tuple[Tensor, Tensor]:
        """`n` rows for the critic, and how far each vector is from the length that it should have."""
        condition = self._labels[torch.randint(len(self._labels), (n,), generator=self.rng)]
        x = self._net.generate(torch.randn(n, self._net.latent, generator=self.rng), condition)
        if self.centres is None:
            return self._net.join(x, condition), torch.zeros(n)
        x = x + condition @ self.centres
        square = x.square().mean(dim=1)
        # The critic cannot say that a vector is too long, for it never sees one; a release has no such cut.
        return self._net.join(x / square.clamp(min=1e-12).sqrt()[:, None], condition), (square - 1).square()

    def learn(self, critic: nn.Module, n: int) -> None:
        """One step towards rows that the critic calls real; the critic stays as it is."""
        rows, stray = self.make(n)
        self._optimizer.zero_grad(set_to_none=True)
        loss = (softplus(-critic(rows)[:, 0]) + stray).mean()
        loss.backward(inputs=self._weights)
        self._optimizer.step()


def gradient_on_made(net: CGAN, maker: Maker, plan: SGDPlan) -> Callable[[], Tensor]:
    """For `PrivateRun`: the critic's gradient on rows of the maker, which learns a step each time it is asked.

    It reads the critic's noisy weights and no record. Rows that were made are clipped like real ones, though no
    promise needs it: unclipped they would have more say.
    """
    twin = ClippedNetwork(copy.deepcopy(net.critic))

    def gradient() -> Tensor:
        twin.flat.copy_(parameters_to_vector(net.critic.parameters()))
        rows, _ = maker.make(plan.batch)
        _, gradients = AS_MADE(twin.forward(rows, rows), rows)
        twin.backward(gradients)
        twin.clipped_sum(plan.clip)
        with torch.enable_grad():
            maker.learn(twin.module, plan.batch)
        return twin.sums / plan.batch

    return gradient


def train_in_turn(
    net: CGAN, rows: Tensor, maker: Maker, settings: Training, penalty: float, progress: ProgressBar | None
) -> History:
    """A step of the critic, then one of the maker, without privacy; the history holds the critic's losses."""
    optimizer = torch.optim.Adam(net.critic.parameters(), settings.critic_learning_rate, _BETAS, fused=True)
    batches, history = shuffled_batches(len(rows), settings.batch_size), History()
    try:
        for epoch in range(1, settings.max_epochs + 1):
            losses = []
            for i in batches(maker.rng):
                with torch.no_grad():
                    made, _ = maker.make(len(i))
                real = rows[i].requires_grad_()
                score = net(real)
                loss = softplus(-score).mean() + softplus(net(made)).mean()
                losses.append(float(loss.detach()))
                if penalty:
                    (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
                    loss = loss + 0.5 * penalty * slope[:, : net.dim].square().sum(dim=1).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                maker.learn(net.critic, len(i))
            history.train_loss.append(sum(losses) / len(losses))
            if progress is not None:
                progress.step(epoch, settings.max_epochs, history.train_loss[-1])
    finally:
        if progress is not None:
            progress.close()
    history.best_epoch = settings.max_epochs
    return history
