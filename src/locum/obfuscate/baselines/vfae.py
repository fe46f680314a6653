"""VFAE, the variational fair autoencoder: latents of all private classes have the same distribution."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from locum.nets import mlp
from locum.obfuscate.baselines._fair import FairAutoencoder
from locum.obfuscate.baselines._loop import Batch, Move, Rows, gaussian_kl, guess_loss, play, reconstruction
from locum.types import Progress

_FEATURES = 500
_UTILITY = 3.0
# As in VAE-PUPET: at full weight the divergence leaves no room for the utility attribute.
_DIVERGENCE = 0.1


class VFAE(FairAutoencoder):
    """Records from a latent with the same distribution for every private class; no attacker is trained.

    Louizos et al., "The variational fair autoencoder" (2016): a variational autoencoder whose decoder gets the
    private attribute, with a penalty on the maximum mean discrepancy of latents between private classes (500 random
    Fourier features) and a classifier of the utility attribute on the latent. `strength` weighs the discrepancy. Ours
    differs: one layer of 30 latents where the paper has two, with a tenth of the usual weight on the divergence from
    a normal latent; see also `FairAutoencoder`.
    """

    name = "vfae"

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        net = self._autoencoder(rows)
        return net, nn.ModuleDict({"provider": mlp([net.latent, 64, sum(rows.utility_classes)])})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        net, provider = self.released_, self.helpers_["provider"]
        # The kernel is as wide as the average distance of two standard normal latents.
        directions = torch.randn(net.latent, _FEATURES, generator=rng) / net.latent**0.5
        phases = 2 * torch.pi * torch.rand(_FEATURES, generator=rng)

        def move(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var, z, scores = self._encoded(batch, rng)
            cost = reconstruction(scores, batch.x, net.types, rows.spread) + _DIVERGENCE * gaussian_kl(mean, log_var)
            cost = cost + _UTILITY * guess_loss(provider(z), batch.utility, rows.utility_classes)
            features = (2 / _FEATURES) ** 0.5 * torch.cos(z @ directions + phases)
            return Move(z, cost + self.strength * mean_discrepancy(features, batch.private, len(rows.prior)))

        play(rows, move, [net, provider], rng, epochs=epochs, progress=progress)


def mean_discrepancy(features: Tensor, codes: Tensor, classes: int) -> Tensor:
    """Squared distance of each class's mean from the overall mean, summed over classes; an absent class adds 0."""
    member = one_hot(codes, classes).to(features.dtype)
    counts = member.sum(dim=0)[:, None]
    means = member.T @ features / counts.clamp_min(1)
    return ((means - features.mean(dim=0)).square() * (counts > 0)).sum()
