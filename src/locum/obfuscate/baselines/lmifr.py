"""LMIFR: the most expressive latent within a limit on what it tells of the private attribute, found by duality."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locum.nets import mlp
from locum.obfuscate.baselines._fair import FairAutoencoder
from locum.obfuscate.baselines._loop import Batch, Move, Rows, gaussian_kl, play, reconstruction
from locum.types import ProgressBar

# Nats that a latent may tell of its record in all, and by how much a step raises a multiplier for a nat too many.
_TELLS = 30.0
_ASCENT = 0.05


class LMIFR(FairAutoencoder):
    """Records from a latent that may tell 2^-`strength` of the private attribute's entropy to an attacker.

    Song et al., "Learning controllable fair representations" (2019), L-MIFR, which the seed writes LMFIR: the
    likelihood of records given latent and private attribute is raised under two limits, on what the latent tells in
    all (its divergence from a normal one) and on what an attacker can read of the private attribute; the weights of
    the limits are Lagrange multipliers that rise while a limit is broken. At strength 0 the second limit is the whole
    entropy, so it never binds. As published it knows of no utility attribute. Ours differs: see `FairAutoencoder`.
    """

    name = "lmifr"

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        net = self._autoencoder(rows)
        return net, nn.ModuleDict({"attacker": mlp([net.latent, 128, 64, rows.private_classes])})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: ProgressBar | None) -> None:
        net, attacker = self.released_, self.helpers_["attacker"]
        entropy = -float((rows.prior * rows.prior.clamp_min(1e-9).log()).sum())
        limit = entropy * 2.0**-self.strength
        multipliers = {"all": 1.0, "private": 1.0}

        def price(name: str, told: Tensor, allowed: float) -> Tensor:
            """What breaking a limit costs now; breaking it also makes it dearer."""
            weight = multipliers[name]
            multipliers[name] = max(0.0, weight + _ASCENT * (float(told.detach()) - allowed))
            return weight * told

        def move(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var, z, scores = self._encoded(batch, rng)
            told = price("all", gaussian_kl(mean, log_var), _TELLS)
            return Move(z, reconstruction(scores, batch.x, net.types, rows.spread) + told)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return price("private", entropy - cross_entropy(logits, batch.private), limit)

        play(rows, move, [net], rng, attacker=attacker, hide=hide, epochs=epochs, progress=progress)
