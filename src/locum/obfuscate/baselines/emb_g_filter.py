"""emb-g-filter: a small filter on the latent of a shared autoencoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locum.nets import Added, RecordAutoencoder, guesser, masker
from locum.obfuscate.baselines._loop import (
    Batch,
    Move,
    Rows,
    breach,
    confusion,
    gaussian_kl,
    guess_loss,
    noise_like,
    play,
    reconstruction,
)
from locum.obfuscate.baselines.base import Baseline
from locum.types import Progress

# As in VAE-PUPET: at full weight the divergence leaves no room for the utility attribute.
_DIVERGENCE = 0.1


class FilteredAutoencoder(nn.Module):
    """An autoencoder of records and a filter of its latents."""

    def __init__(self, autoencoder: RecordAutoencoder) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        self.filter: Added = masker((autoencoder.latent,))

    def latent(self, x: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents before and after the filter."""
        z = self.autoencoder.encode(x)[0]
        return z, self.filter(z, torch.cat([z, noise_like(z, rng)], dim=1))


class EmbGFilter(Baseline):
    """Records whose latents were moved, by up to `strength` (a share of their variance), to mislead an attacker.

    Chen et al., "Distributed generation of privacy preserving data with user customization" (2019): a fixed
    variational autoencoder, and a small filter of its latents that each user trains against an attacker and with a
    utility provider, both on latents, under a bound on how far latents move. Three quarters of the epochs train the
    autoencoder, the rest the filter. Ours differs: the bound is a penalty on the mean squared move, as in GAP, and
    the filtered latent is the encoder's mean, with a tenth of the usual weight on its divergence from a normal one.
    """

    name = "emb-g-filter"
    kinds = ("table",)
    released_: FilteredAutoencoder

    def _networks(self, rows: Rows) -> tuple[nn.Module, nn.ModuleDict]:
        net = FilteredAutoencoder(RecordAutoencoder(rows.shape[0], rows.blocks, variational=True))
        shape = (net.autoencoder.latent,)
        provider, attacker = guesser(shape, sum(rows.utility_classes)), guesser(shape, rows.private_classes)
        return net, nn.ModuleDict({"provider": provider, "attacker": attacker})

    def _learn(self, rows: Rows, epochs: int, rng: torch.Generator, progress: Progress | None) -> None:
        net, provider = self.released_.autoencoder, self.helpers_["provider"]

        def first(batch: Batch, rng: torch.Generator) -> Move:
            mean, log_var = net.encode(batch.x)
            scores = net.scores(mean + noise_like(mean, rng) * torch.exp(0.5 * log_var))
            return Move(
                scores,
                reconstruction(scores, batch.x, net.types, rows.spread) + _DIVERGENCE * gaussian_kl(mean, log_var),
            )

        last = max(1, epochs // 4)
        play(rows, first, [net], rng, epochs=max(1, epochs - last))
        net.requires_grad_(False)
        with torch.no_grad():
            variance = float(net.encode(rows.x)[0].var(dim=0).sum())

        def move(batch: Batch, rng: torch.Generator) -> Move:
            z, shown = self.released_.latent(batch.x, rng)
            moved = (shown - z).square().sum() / (len(z) * variance)
            utility = guess_loss(provider(torch.cat([z, shown])), batch.utility.repeat(2, 1), rows.utility_classes)
            return Move(shown, utility + breach(moved, self.strength, batch.done))

        def hide(logits: Tensor, batch: Batch) -> Tensor:
            return confusion(logits, rows.prior)

        play(
            rows, move, [self.released_.filter, provider], rng,
            attacker=self.helpers_["attacker"], hide=hide, epochs=last, progress=progress,
        )  # fmt: skip

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        out: Tensor = self.released_.autoencoder(self.released_.latent(x, rng)[1])
        return out
