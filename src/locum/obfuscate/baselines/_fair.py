"""What VFAE and LMIFR share: a latent without the private attribute, decoded with one that is drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from locum.nets import RecordAutoencoder
from locum.obfuscate.baselines._loop import Batch, Rows, noise_like
from locum.obfuscate.baselines.base import Baseline


class FairAutoencoder(Baseline):
    """Both are made to release a latent; here it is decoded back to records, as every rival gives rows.

    The decoder is told the private attribute, so that the latent need not carry it. A release has none at hand: its
    decoder is told one that is drawn by the frequencies of the training rows, whatever the record's own is. For the
    same reason the encoder sees the record alone, where the papers show it the attribute too.
    """

    kinds = ("table",)
    released_: RecordAutoencoder
    prior_: Tensor

    def _autoencoder(self, rows: Rows) -> RecordAutoencoder:
        self.prior_ = rows.prior
        return RecordAutoencoder(rows.shape[0], rows.blocks, condition=rows.private_classes, variational=True)

    def _encoded(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, log-variance and a draw of the latent, and the scores it is decoded to with the true attribute."""
        mean, log_var = self.released_.encode(batch.x)
        z = mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
        return mean, log_var, z, self.released_.scores(z, one_hot(batch.private, len(self.prior_)).float())

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        mean, log_var = self.released_.encode(x)
        z = mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
        drawn = torch.multinomial(self.prior_, len(x), replacement=True, generator=rng)
        out: Tensor = self.released_(z, one_hot(drawn, len(self.prior_)).float())
        return out
