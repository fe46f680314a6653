"""White box: can the decoder be made to say this record? A search for the latent that comes nearest to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp
from torch import Tensor

from locum.audit.attacks.base import Scores
from locum.audit.decoder import DecoderBank, Part, feature_weights, gaussian_log_density, parts_of, records_of
from locum.errors import ConfigError
from locum.release import GaussianSpec, NetworkSpec, Release
from locum.train import seeded
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

# Numbers in one decoded batch: enough for the processor, little for memory.
_ROOM = 2**21


@dataclass(frozen=True, slots=True)
class Search:
    """How latents are searched: from the best `restarts` of `candidates` draws, `steps` of Adam each.

    `prior` weighs the mean square of a latent against the mean squared distance in units of the samples' spread:
    without it a decoder of many latents would come near any record.
    """

    restarts: int = 2
    steps: int = 100
    learning_rate: float = 0.1
    prior: float = 0.1
    candidates: int = 256

    def __post_init__(self) -> None:
        for name in ("restarts", "steps", "candidates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be 1 or more; got {getattr(self, name)!r}.")
        if self.restarts > self.candidates:
            raise ConfigError(
                f"`restarts` must be at most `candidates`, {self.candidates}; got {self.restarts!r}. 2 is usual."
            )
        if not self.prior >= 0 or not self.learning_rate > 0:
            raise ConfigError("`prior` must be 0 or more and `learning_rate` above 0.")


@dataclass(frozen=True, slots=True)
class LatentSearch:
    """Guess "member" where some likely latent decodes to nearly the record. The score is minus that distance.

    For a network: the root of the mean squared distance over features, each in units of the spread of the release's
    own samples, of the best of several searches. Of a mixture of networks the nearest counts. A Gaussian decoder
    needs no search: the score is the log density in closed form, of a mixture of Gaussians the log of the weighted
    sum. It needs the decoder itself; of a fixed table there is none. A distance is small for ordinary records too:
    what counts is that members are nearer than others.
    """

    search: Search = Search()
    name: str = "latent search"

    def why_not(self, release: Release, *_: EmbeddingSet) -> str | None:
        """Why this attack cannot be made on a release, whatever the records, if so."""
        parts = parts_of(release)
        if not parts:
            return "Latent search needs a decoder; this release is a fixed table."
        if len({part.spec.kind for part in parts}) > 1:
            return "Latent search cannot weigh networks against Gaussians in one mixture; the ELBO attack can."
        return None

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record under its own class."""
        if reason := self.why_not(release):
            raise ConfigError(reason)
        X, codes = records_of(release, members, non_members)
        parts = parts_of(release)
        if isinstance(parts[0].spec, GaussianSpec):
            found = logsumexp([part_log_density(part, X, codes) for part in parts], axis=0)
        else:
            weights, seed = feature_weights(release, rng), int(rng.integers(2**62))
            found = np.max([self._nearness(release, part, X, codes, weights, seed) for part in parts], axis=0)
        return Scores(found[: len(members)], found[len(members) :])

    def _nearness(
        self,
        release: Release,
        part: Part,
        X: npt.NDArray[np.float32],
        codes: Codes,
        weights: npt.NDArray[np.float32],
        seed: int,
    ) -> Floats:
        assert isinstance(part.spec, NetworkSpec)
        bank = DecoderBank.stack(release.manifest, part.spec, [part.tensors])
        near = -np.sqrt(nearest_latents(bank, X, part.own(codes), weights, self.search, seed)[0])
        # A part that a class never uses says nothing about its records.
        return np.where(np.isneginf(part.log_weights[codes[:, 0]]), -np.inf, near)


def part_log_density(part: Part, X: npt.NDArray[np.float32], codes: Codes) -> Floats:
    """Log density of records under a Gaussian part, with the part's weight for their class.

    The spread is that of a sampling variance of 1, which is what was learnt. In the space "unit" samples are
    brought to length 1 afterwards; the density is the one before.
    """
    t = part.tensors
    return part.log_weights[codes[:, 0]] + gaussian_log_density(
        X, part.own(codes)[:, 0], t["means"].astype(np.float64), t["factor"], t["scale"]
    )


def nearest_latents(
    bank: DecoderBank,
    X: npt.NDArray[np.float32],
    codes: Codes,
    weights: npt.NDArray[np.floating],
    search: Search,
    seed: int,
) -> Floats:
    """Mean squared weighted distance of each record to the nearest decoded latent found, `(decoders, records)`.

    All decoders see the same candidates, and records share nothing but them: a record's result does not depend on
    which others are searched.
    """
    rows = torch.from_numpy(np.ascontiguousarray(X * weights, dtype=np.float32))
    scale = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float32))
    labels = torch.from_numpy(codes)
    candidates = torch.randn(search.candidates, bank.latent, generator=seeded(seed))
    # The middle of the prior is the most likely latent: always tried.
    candidates[0] = 0
    out = np.empty((len(bank), len(X)))
    step = max(1, _ROOM // (len(bank) * search.restarts * X.shape[1]))
    for combination in torch.unique(labels, dim=0):
        mine = torch.nonzero((labels == combination).all(dim=1))[:, 0]
        with torch.no_grad():
            tried = scale * bank.means(
                candidates.expand(len(bank), -1, -1), combination.expand(search.candidates, -1)
            )
        for part in mine.split(step):
            out[:, part.numpy()] = _descend(bank, rows[part], labels[part], scale, candidates, tried, search)
    return out


def _descend(
    bank: DecoderBank,
    rows: Tensor,
    codes: Tensor,
    scale: Tensor,
    candidates: Tensor,
    tried: Tensor,
    search: Search,
) -> npt.NDArray[np.float32]:
    k, n, d = len(bank), len(rows), rows.shape[1]
    with torch.no_grad():
        start = torch.cdist(rows.expand(k, -1, -1), tried).topk(search.restarts, dim=2, largest=False).indices
        z = candidates[start.reshape(k, -1)].clone()
    z.requires_grad_()
    target = rows.repeat_interleave(search.restarts, dim=0)
    labels = codes.repeat_interleave(search.restarts, dim=0)
    optimizer = torch.optim.Adam([z], lr=search.learning_rate, fused=True)

    def distance() -> Tensor:
        return torch.square(scale * bank.means(z, labels) - target).sum(dim=2) / d

    for done in range(search.steps):
        # Small steps at the end, or the last one would decide how near a record seems.
        optimizer.param_groups[0]["lr"] = search.learning_rate * (1 - done / search.steps)
        loss = (distance() + search.prior * torch.square(z).mean(dim=2)).sum()
        (z.grad,) = torch.autograd.grad(loss, [z])
        optimizer.step()
    with torch.no_grad():
        best: npt.NDArray[np.float32] = distance().reshape(k, n, search.restarts).amin(dim=2).numpy()
    return best
