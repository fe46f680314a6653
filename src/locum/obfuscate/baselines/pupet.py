"""The PUPETs: an autoencoder of records, trained against an attacker and with a utility provider."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from locum.nets import RecordAutoencoder, guesser
from locum.obfuscate.baselines._loop import (
    Batch,
    Move,
    Rows,
    confusion,
    gaussian_kl,
    guess_loss,
    noise_like,
    play,
    reconstruction,
)
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress

# The weight of the provider's loss relative to the reconstruction, both in nats.
_UTILITY = 3.0


class AEPupet(Baseline):
    """Records passed through an autoencoder that drops the private attribute; no randomness.

    Mandal, Amariucai and Wei, "Uncertainty-autoencoder-based privacy and utility preserving data type conscious
    transformation" (2022): a generator (three hidden layers of 128, latent of 30) trained against an attacker and
    with a utility provider; `strength` is their lambda_p, the attacker's weight, from 0 to 100. 40 epochs, batches of
    256. Ours differs: the reconstruction loss depends on the column type (the paper: squared error), the generator
    aims at the attacker's ignorance, the provider learns from original rows too, and both are smaller (128 and 64
    wide), for speed.
    """

    name = "ae-pupet"
    kinds = ("table",)
    # Standard deviation of the noise on the latent; weight of the latent's divergence from a normal one.
    sigma: ClassVar[float] = 0.0
    beta: ClassVar[float] = 0.0

    released_: RecordAutoencoder

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        generator = RecordAutoencoder(rows.shape[0], rows.blocks, variational=self.beta > 0)
        provider = guesser(rows.shape, sum(rows.utility_classes))
        attacker = guesser(rows.shape, rows.private_classes)
        return generator, nn.ModuleDict({"provider": provider, "attacker": attacker})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        generator, provider = self.released_, self.helpers_["provider"]

        def move(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var = generator.encode(batch.x)
            scores = generator.scores(self._latent(mean, log_var, rng))
            shown = generator.types.pick(generator.types(scores))
            both = torch.cat([batch.x, shown])
            utility = guess_loss(provider(both), batch.utility.repeat(2, 1), rows.utility_classes)
            cost = reconstruction(scores, batch.x, generator.types, rows.spread) + _UTILITY * utility
            return Move(shown, cost + self.beta * gaussian_kl(mean, log_var) if self.beta else cost)

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return self.strength * confusion(logits, rows.prior)

        play(
            rows, move, [generator, provider], rng,
            attacker=self.helpers_["attacker"], hide=hide, epochs=epochs, progress=progress,
        )  # fmt: skip

    def _latent(self, mean: Tensor, log_var: Tensor, rng: torch.Generator) -> Tensor:
        if self.beta:
            return mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
        return mean + self.sigma * noise_like(mean, rng) if self.sigma else mean

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        out: Tensor = self.released_(self._latent(*self.released_.encode(x), rng))
        return out


class UAEPupet(AEPupet):
    """AE-PUPET with noise of standard deviation 0.1 on the latent, whose scale is free."""

    name = "uae-pupet"
    sigma = 0.1


class VAEPupet(AEPupet):
    """AE-PUPET with a variational autoencoder: the latent is noisy, and close to a normal one overall.

    Ours differs: the divergence from the normal latent has a tenth of its usual weight. At full weight the latent has
    no room for the utility attribute, and the baseline would fail at strength 0.
    """

    name = "vae-pupet"
    beta = 0.1


class BetaVAEPupet(AEPupet):
    """VAE-PUPET with four times the weight on the divergence (the original's beta is not known)."""

    name = "beta-vae-pupet"
    beta = 0.4
