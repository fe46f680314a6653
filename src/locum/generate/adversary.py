"""Adversarial training of generator and critic: only the critic sees records."""

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
from locum.types import Progress

# Loss of the critic on a row that it should call real, and on one that it should call fake.
AS_REAL = RowLossByAutograd(lambda out, rows: softplus(-out[:, 0]))
AS_FAKE = RowLossByAutograd(lambda out, rows: softplus(out[:, 0]))
_BETAS = (0.5, 0.999)


@dataclass(frozen=True, slots=True)
class Training:
    """Public settings of a fit; `learning_rate` is that of the generator network."""

    learning_rate: float
    critic_learning_rate: float
    batch_size: int
    max_epochs: int

    def __post_init__(self) -> None:
        LoopSettings(self.max_epochs, self.batch_size, self.learning_rate)
        if not 0 < self.critic_learning_rate < math.inf:
            raise ConfigError(f"`critic_learning_rate` must be above 0; got {self.critic_learning_rate!r}.")


class GeneratorTrainer:
    """Trains the generator network, which sees no record: it draws rows for the critic and learns from it alone.

    Labels are drawn from the rows of `labels`. With `centers`, one per class, the network's output is added to the
    center of its class and scaled to length sqrt(d) before the critic sees it. Records are scaled the same way, which
    is public.
    """

    def __init__(self, net: CGAN, labels: Tensor, learning_rate: float, rng: torch.Generator) -> None:
        self.centers: Tensor | None = None
        # Draws come from the CPU and are moved: a seed means the same on every device.
        self.device = next(net.parameters()).device
        self.rng, self._net, self._labels = rng, net, labels
        self._weights = list(net.generator.parameters())
        self._optimizer = torch.optim.Adam(self._weights, lr=learning_rate, betas=_BETAS, fused=True)

    def draw(self, n: int) -> tuple[Tensor, Tensor]:
        """`n` rows for the critic, and a penalty for each vector that does not have the right length."""
        condition = self._labels[torch.randint(len(self._labels), (n,), generator=self.rng)].to(self.device)
        x = self._net.generate(torch.randn(n, self._net.latent, generator=self.rng).to(self.device), condition)
        if self.centers is None:
            return self._net.join(x, condition), torch.zeros(n, device=self.device)
        x = x + condition @ self.centers
        square = x.square().mean(dim=1)
        # The critic sees scaled rows only, so it cannot penalize a wrong length; a release does not rescale.
        return self._net.join(x / square.clamp(min=1e-12).sqrt()[:, None], condition), (square - 1).square()

    def learn(self, critic: nn.Module, n: int) -> None:
        """One step toward rows that the critic calls real; the critic is not changed."""
        rows, stray = self.draw(n)
        self._optimizer.zero_grad(set_to_none=True)
        loss = (softplus(-critic(rows)[:, 0]) + stray).mean()
        loss.backward(inputs=self._weights)
        self._optimizer.step()


def gradient_on_fakes(net: CGAN, trainer: GeneratorTrainer, plan: SGDPlan) -> Callable[[], Tensor]:
    """For `PrivateRun`: the critic's gradient on fake rows; each call also trains the generator by one step.

    It reads the critic's noisy weights and no record. Fake rows are clipped like real ones, which privacy does not
    require: unclipped they would have more influence.
    """
    twin = ClippedNetwork(copy.deepcopy(net.critic))

    def gradient() -> Tensor:
        twin.flat.copy_(parameters_to_vector(net.critic.parameters()))
        rows, _ = trainer.draw(plan.batch)
        _, gradients = AS_FAKE(twin.forward(rows, rows), rows)
        twin.backward(gradients)
        twin.clipped_sum(plan.clip)
        with torch.enable_grad():
            trainer.learn(twin.module, plan.batch)
        return twin.sums / plan.batch

    return gradient


def train_alternately(
    net: CGAN, rows: Tensor, trainer: GeneratorTrainer, settings: Training, penalty: float, progress: Progress | None
) -> History:
    """Alternate steps of critic and generator, without privacy; the history holds the critic's losses."""
    optimizer = torch.optim.Adam(net.critic.parameters(), settings.critic_learning_rate, _BETAS, fused=True)
    batches, history = shuffled_batches(len(rows), settings.batch_size), History()
    for epoch in range(1, settings.max_epochs + 1):
        losses = []
        for i in batches(trainer.rng):
            with torch.no_grad():
                fake, _ = trainer.draw(len(i))
            real = rows[i].to(trainer.device).requires_grad_()
            score = net(real)
            loss = softplus(-score).mean() + softplus(net(fake)).mean()
            losses.append(float(loss.detach()))
            if penalty:
                (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
                loss = loss + 0.5 * penalty * slope[:, : net.dim].square().sum(dim=1).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            trainer.learn(net.critic, len(i))
        history.train_loss.append(sum(losses) / len(losses))
        if progress is not None:
            progress(epoch, settings.max_epochs, f"loss {history.train_loss[-1]:.4g}")
    history.best_epoch = settings.max_epochs
    return history
