"""ELBO: the likelihood of a record under the decoder, with an encoder that the attacker trains (white box)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp
from torch import Tensor, nn

from locum.audit.attacks.base import ScoreAttack
from locum.audit.attacks.latent_search import component_log_density
from locum.audit.decoder import Component, DecoderBank, components_of, feature_weights, records_of
from locum.audit.statistics import Scores
from locum.errors import ConfigError, NotApplicableError
from locum.release import GaussianSpec, Release
from locum.train import seeded
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_ROOM = 2**22
_RESIDUAL_SAMPLES = 2000
# In units of the samples' standard deviation: a decoder without noise is treated as if it had this much.
_LEAST_RESIDUAL = 0.01
_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, slots=True)
class EncoderELBO(ScoreAttack):
    """Guess "member" if the decoder makes the record likely. The score is a lower bound of its log likelihood.

    The encoder that was trained with the decoder is never released, so the attacker draws latents and their vectors
    from the decoder and trains another encoder on these pairs. The variance of each feature around the decoded vector
    is the residual variance on fresh samples. The bound of each record is then an importance-weighted average over
    several latents. A Gaussian decoder, or component of a mixture, has its density in closed form. If the decoder
    maps distant latents to one vector, the encoder is poor, and so is the bound.

    Parameters
    ----------
    steps
        Number of batches that the encoder is trained on.
    batch
        Number of pairs per batch.
    hidden
        Units in each of the encoder's two hidden layers.
    draws
        Latents per record in the bound.
    learning_rate
        Adam's learning rate at the start; it falls to 0.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import EncoderELBO
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> EncoderELBO().score(release, members, others, rng).inside.shape
    (50,)
    """

    steps: int = 1500
    batch: int = 256
    hidden: int = 256
    draws: int = 32
    learning_rate: float = 2e-3
    name: str = "ELBO"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record under its own class."""
        for setting in ("steps", "batch", "hidden", "draws"):
            if getattr(self, setting) < 1:
                raise ConfigError(f"`{setting}` must be 1 or more; got {getattr(self, setting)!r}.")
        components = components_of(release)
        if not components:
            raise NotApplicableError(self.name, "it needs a decoder, and this release is a fixed table")
        X, codes = records_of(release, members, non_members)
        weights = feature_weights(release, rng)
        found = np.stack([self._bound(release, c, X, codes, weights, rng) for c in components])
        total = logsumexp(found, axis=0)
        return Scores(total[: len(members)], total[len(members) :])

    def _bound(
        self,
        release: Release,
        component: Component,
        X: npt.NDArray[np.float32],
        codes: Codes,
        weights: npt.NDArray[np.float32],
        rng: np.random.Generator,
    ) -> Floats:
        if isinstance(component.spec, GaussianSpec):
            # In the units of the other components, whose features are weighted.
            return component_log_density(component, X, codes) - float(np.log(weights.astype(np.float64)).sum())
        bank = DecoderBank.stack(release.manifest, component.spec, [component.tensors])
        seen = torch.from_numpy(component.local(np.array([c for c, _ in release.manifest.joint], dtype=np.int64)))
        scale = torch.from_numpy(weights)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**62)))
            width = len(weights) + bank.condition(seen).shape[1]
            encoder = nn.Sequential(
                nn.Linear(width, self.hidden),
                nn.ReLU(),
                nn.Linear(self.hidden, self.hidden),
                nn.ReLU(),
                nn.Linear(self.hidden, 2 * bank.latent),
            )
        guess = _Guess(bank, encoder, scale)
        torch_rng = seeded(int(rng.integers(2**62)))
        self._train(guess, seen, torch_rng)
        variance = guess.residual_variance(seen, torch_rng)
        rows, own = torch.from_numpy(X * weights), torch.from_numpy(component.local(codes))
        step = max(1, _ROOM // (self.draws * X.shape[1]))
        bounds = [
            guess.bound(rows[i : i + step], own[i : i + step], variance, self.draws, torch_rng)
            for i in range(0, len(rows), step)
        ]
        found: Floats = torch.cat(bounds).double().numpy()
        return component.log_weights[codes[:, 0]] + found

    def _train(self, guess: _Guess, seen: Tensor, torch_rng: torch.Generator) -> None:
        optimizer = torch.optim.Adam(guess.encoder.parameters(), lr=self.learning_rate, fused=True)
        for done in range(self.steps):
            optimizer.param_groups[0]["lr"] = self.learning_rate * (1 - done / self.steps)
            z, codes, x = guess.draw(self.batch, seen, torch_rng)
            mean, log_var = guess.encode(x, codes)
            # Minus the log likelihood of the drawn latent, up to a constant.
            loss = 0.5 * (torch.square(z - mean) * torch.exp(-log_var) + log_var).sum(dim=1).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()


@dataclass(frozen=True, slots=True, eq=False)
class _Guess:
    """A decoder and the attacker's encoder for it; features are weighted."""

    bank: DecoderBank
    encoder: nn.Sequential
    scale: Tensor

    def draw(self, n: int, seen: Tensor, torch_rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Latents, codes (each combination equally often) and vectors as a receiver draws them."""
        z = torch.randn(n, self.bank.latent, generator=torch_rng)
        codes = seen[torch.randint(len(seen), (n,), generator=torch_rng)]
        with torch.no_grad():
            return z, codes, self.scale * self.bank.samples(z[None], codes, torch_rng)[0]

    def encode(self, x: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent."""
        out: Tensor = self.encoder(torch.cat([x, self.bank.condition(codes)], dim=1))
        mean, log_var = out.chunk(2, dim=1)
        return mean, log_var.clamp(-12, 4)

    def residual_variance(self, seen: Tensor, torch_rng: torch.Generator) -> Tensor:
        """Mean squared error of each feature when fresh samples are encoded and decoded."""
        _, codes, x = self.draw(_RESIDUAL_SAMPLES, seen, torch_rng)
        with torch.no_grad():
            mean, _ = self.encode(x, codes)
            gap = x - self.scale * self.bank.means(mean[None], codes)[0]
        return torch.square(gap).mean(dim=0).clamp_min(_LEAST_RESIDUAL**2)

    def bound(self, x: Tensor, codes: Tensor, variance: Tensor, draws: int, torch_rng: torch.Generator) -> Tensor:
        """The importance-weighted bound of each row's log likelihood."""
        n = len(x)
        with torch.no_grad():
            mean, log_var = self.encode(x, codes)
            noise = torch.randn(draws, n, self.bank.latent, generator=torch_rng)
            z = mean + noise * torch.exp(0.5 * log_var)
            gap = x - self.scale * self.bank.means(z.reshape(1, draws * n, -1), codes.repeat(draws, 1)).reshape(
                draws, n, -1
            )
            likelihood = -0.5 * (torch.square(gap) / variance + torch.log(variance) + _LOG_2PI).sum(dim=2)
            prior = -0.5 * torch.square(z).sum(dim=2)
            chosen = -0.5 * (torch.square(noise) + log_var).sum(dim=2)
            return torch.logsumexp(likelihood + prior - chosen, dim=0) - math.log(draws)
