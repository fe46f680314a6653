"""Learned noise: a network shapes noise that is added to rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locum.nets import guesser, noise_maker
from locum.obfuscate.baselines._loop import Batch, Move, Rows, confusion, guess_loss, play
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress

_LATENT = 64
# Cost, in nats, of distortion as large as the data's variance: noise that hides nothing should not pay.
_DISTORTION = 0.05


class LearnedNoise(Baseline):
    """Rows plus noise shaped by a network: wide where it misleads an attacker, narrow where it hurts utility.

    The noise does not depend on the row. The additive privatizer of Huang et al. ("Generative adversarial privacy",
    2018), a baseline of the adjustable paper. `strength` weighs the attacker against a utility provider that is
    trained with it. Ours differs: the original has a bound on distortion instead of a utility provider; here
    distortion has a small cost, and the provider learns from original rows too, so that it works on both. Values can
    leave the range 0..1, except in tables with one-hot blocks.
    """

    name = "learned-noise"

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        provider = guesser(rows.shape, sum(rows.utility_classes))
        attacker = guesser(rows.shape, rows.private_classes)
        return noise_maker(rows.shape, _LATENT), nn.ModuleDict({"provider": provider, "attacker": attacker})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        provider, attacker = self.helpers_["provider"], self.helpers_["attacker"]

        def move(batch: Batch, rng: torch.Generator) -> Move:
            shown = self._release(batch.x, rng)
            distortion = (shown - batch.x).square().sum() / (len(batch.x) * rows.variance)
            both = torch.cat([batch.x, shown])
            utility = guess_loss(provider(both), batch.utility.repeat(2, 1), rows.utility_classes)
            return Move(shown, utility + _DISTORTION * distortion)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return self.strength * confusion(logits, rows.prior)

        play(
            rows, move, [self.released_, provider], rng,
            attacker=attacker, hide=hide, epochs=epochs, progress=progress,
        )  # fmt: skip

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return self.types_.settle(self.released_(x, torch.randn(len(x), _LATENT, generator=rng)))
