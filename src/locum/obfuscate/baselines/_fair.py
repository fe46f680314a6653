"""What VFAE and LMIFR share: a latent without the private attribute, decoded with a random one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from locum.nets import RecordAutoencoder
from locum.obfuscate.baselines._loop import Batch, Rows, noise_like
from locum.obfuscate.baselines.base import Baseline


class FairAutoencoder(Baseline):
    """Both papers release a latent; here it is decoded to a record, because every baseline releases rows.

    The decoder gets the private attribute, so that the latent need not carry it. In a release the true one is not
    known: the decoder gets one drawn with the frequencies of the training rows. For the same reason the encoder sees
    only the record, while in the papers it sees the attribute too.
    """

    kinds = ("table",)
    released_: RecordAutoencoder
    prior_: Tensor

    def _autoencoder(self, rows: Rows) -> RecordAutoencoder:
        self.prior_ = rows.prior
        return RecordAutoencoder(rows.shape[0], rows.blocks, condition=rows.private_classes, variational=True)

    def _encoded(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, log-variance and a sample of the latent, and the scores decoded from it with the true attribute."""
        mean, log_var = self.released_.encode(batch.x)
        z = mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
        return mean, log_var, z, self.released_.scores(z, one_hot(batch.private, len(self.prior_)).float())

    def _release(self, x: Tensor, rng: torch.Generator) -> Tensor:
        mean, log_var = self.released_.encode(x)
        z = mean + noise_like(mean, rng) * torch.exp(0.5 * log_var)
        drawn = torch.multinomial(self.prior_, len(x), replacement=True, generator=rng)
        out: Tensor = self.released_(z, one_hot(drawn, len(self.prior_)).float())
        return out
