"""GAP, generative adversarial privacy: the best release within a bound on distortion."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locum.nets import guesser, masker
from locum.obfuscate.baselines._loop import Batch, Move, Rows, breach, confusion, noise_like, play
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress


class GAP(Baseline):
    """Rows changed by a network that sees them and fresh noise, up to a mean squared distortion of `strength`.

    `strength` is a share of the data's variance: at 1 a release may be as far from its row as the mean row is.
    Huang et al., "Context-aware generative adversarial privacy" (2017), and Kairouz et al. (2022): a minimax game of
    a privatizer and an attacker under a bound on distortion, enforced by a growing penalty. As published it has no
    utility attribute; only the bound keeps rows useful. (The PUPETs are privatizers with a utility provider.) Ours
    differs: the network outputs the change, not the row, so that strength 0 means none; and the privatizer aims at
    the attacker's ignorance, not at its errors. Values can leave 0..1, except in tables with one-hot blocks.
    """

    name = "gap"

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        return masker(rows.shape), nn.ModuleDict({"attacker": guesser(rows.shape, rows.private_classes)})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        def move(batch: Batch, rng: torch.Generator) -> Move:
            shown = self._release(batch.x, rng)
            distortion = (shown - batch.x).square().sum() / (len(batch.x) * rows.variance)
            return Move(shown, breach(distortion, self.strength, batch.done))

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return confusion(logits, rows.prior)

        play(
            rows, move, [self.released_], rng,
            attacker=self.helpers_["attacker"], hide=hide, epochs=epochs, progress=progress,
        )  # fmt: skip

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        return self.types_.settle(self.released_(x, torch.cat([x, noise_like(x, rng)], dim=1)))
