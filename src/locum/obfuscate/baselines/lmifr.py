"""LMIFR: the most informative latent under a limit on what it reveals of the private attribute."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locum.nets import mlp
from locum.obfuscate.baselines._fair import FairAutoencoder
from locum.obfuscate.baselines._loop import Batch, Move, Rows, gaussian_kl, play, reconstruction
from locum.types import Progress

# Nats that a latent may reveal of its record in total, and how much a step raises a multiplier per nat too many.
_TOTAL = 30.0
_ASCENT = 0.05


class LMIFR(FairAutoencoder):
    """Records from a latent that may reveal 2^-`strength` of the private attribute's entropy to an attacker.

    Song et al., "Learning controllable fair representations" (2019), L-MIFR, spelled LMFIR in the adjustable paper:
    maximizes the likelihood of records given latent and private attribute under two limits, on what the latent
    reveals in total (its divergence from a normal one) and on what an attacker learns of the private attribute. The
    weights of the limits are Lagrange multipliers that rise while a limit is exceeded. At strength 0 the second limit
    is the full entropy, so it never binds. As published it has no utility attribute. Ours differs: see
    `FairAutoencoder`.
    """

    name = "lmifr"

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        net = self._autoencoder(rows)
        return net, nn.ModuleDict({"attacker": mlp([net.latent, 128, 64, rows.private_classes])})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        net, attacker = self.released_, self.helpers_["attacker"]
        entropy = -float((rows.prior * rows.prior.clamp_min(1e-9).log()).sum())
        limit = entropy * 2.0**-self.strength
        multipliers = {"total": 1.0, "private": 1.0}

        def price(name: str, revealed: Tensor, allowed: float) -> Tensor:
            """The current cost of a limit; exceeding it raises its weight."""
            weight = multipliers[name]
            multipliers[name] = max(0.0, weight + _ASCENT * (float(revealed.detach()) - allowed))
            return weight * revealed

        def move(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var, z, scores = self._encoded(batch, rng)
            total = price("total", gaussian_kl(mean, log_var), _TOTAL)
            return Move(z, reconstruction(scores, batch.x, net.types, rows.spread) + total)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return price("private", entropy - cross_entropy(logits, batch.private), limit)

        play(rows, move, [net], rng, attacker=attacker, hide=hide, epochs=epochs, progress=progress)
