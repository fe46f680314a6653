"""Sanitizer: a latent in two parts, of which the one with the private attribute is drawn anew."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from locum.nets import RecordAutoencoder, mlp
from locum.obfuscate.baselines._loop import (
    Batch,
    Move,
    Rows,
    confusion,
    gaussian_kl,
    noise_like,
    play,
    reconstruction,
)
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress

# As in VAE-PUPET: at full weight the divergence leaves no room for the utility attribute.
_DIVERGENCE = 0.1
# The part that is drawn anew should carry the private attribute and little else: what it carries is lost.
_NARROW = 4.0
# Cost, per nat, of what the private part does not tell of the private attribute.
_TOLD = 5.0
# Latents of the part that is drawn anew, of 30.
_SENSITIVE = 4
# Added to variances, so that a latent that never varies can be drawn.
_FLAT = 1e-6


class Sanitizer(Baseline):
    """Records decoded from a latent whose private part is replaced by a draw from the distribution of all rows.

    Singh et al., "Decouple-and-sample: protecting sensitive information in task agnostic data release" (2022): a
    variational autoencoder is trained so that one part of its latent tells the private attribute and the other
    does not; a release keeps the second and samples the first. `strength` is the weight of the attacker who reads the
    part that is kept; the other is drawn anew at any strength. As published it has no utility attribute. Ours
    differs: the drawn part follows one normal distribution with the exact mean and covariance of the training rows,
    where the paper has a mixture that is estimated with differential privacy; an attacker and a narrow private part
    separate the two, where the paper has a distance correlation; and it is for tables.
    """

    name = "sanitizer"
    kinds = ("table",)
    released_: RecordAutoencoder
    mean_: Tensor
    factor_: Tensor

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        net = RecordAutoencoder(rows.shape[0], rows.blocks, variational=True)
        return net, nn.ModuleDict(
            {
                "aligner": mlp([_SENSITIVE, 64, rows.private_classes]),
                "attacker": mlp([net.latent - _SENSITIVE, 128, 64, rows.private_classes]),
            }
        )

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        net, aligner = self.released_, self.helpers_["aligner"]

        def move(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var = net.encode(batch.x)
            z = mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
            cost = reconstruction(net.scores(z), batch.x, net.types, rows.spread)
            told = cross_entropy(aligner(z[:, :_SENSITIVE]), batch.private)
            kept = _DIVERGENCE * gaussian_kl(mean[:, _SENSITIVE:], log_var[:, _SENSITIVE:])
            lost = _NARROW * gaussian_kl(mean[:, :_SENSITIVE], log_var[:, :_SENSITIVE])
            return Move(mean[:, _SENSITIVE:], cost + kept + lost + _TOLD * told)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return self.strength * confusion(logits, rows.prior)

        attacker = self.helpers_["attacker"]
        play(rows, move, [net, aligner], rng, attacker=attacker, hide=hide, epochs=epochs, progress=progress)
        with torch.no_grad():
            mean, log_var = net.encode(rows.x)
            own = (mean + noise_like(mean, rng) * torch.exp(0.5 * log_var))[:, :_SENSITIVE].double()
            self.mean_ = own.mean(dim=0).float()
            self.factor_ = torch.linalg.cholesky(own.T.cov() + _FLAT * torch.eye(_SENSITIVE)).float()

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        kept = self.released_.encode(x)[0][:, _SENSITIVE:]
        drawn = self.mean_ + noise_like(x.new_empty(len(x), _SENSITIVE), rng) @ self.factor_.T
        out: Tensor = self.released_(torch.cat([drawn, kept], dim=1))
        return out
