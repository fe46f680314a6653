"""Latent search: how close can the decoder come to a record? Needs the decoder (white box)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp
from torch import Tensor

from locum.audit.attacks.base import ScoreAttack
from locum.audit.decoder import (
    Component,
    DecoderBank,
    components_of,
    feature_weights,
    gaussian_log_density,
    records_of,
)
from locum.audit.statistics import Scores
from locum.errors import ConfigError, NotApplicableError
from locum.release import GaussianSpec, NetworkSpec, Release, cell_of
from locum.train import seeded
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

# Numbers in one decoded batch: enough to use the processor well, and little memory.
_ROOM = 2**21


@dataclass(frozen=True, slots=True)
class Search:
    """How latents are searched: steps of Adam from each of the best of many draws.

    Parameters
    ----------
    restarts
        How many of the best draws a search starts from.
    steps
        Steps of Adam per start.
    learning_rate
        Adam's learning rate.
    prior
        Weight of the mean square of a latent against the mean squared distance, in units of the samples' standard
        deviation: without it a decoder with many latents would come close to any record.
    candidates
        How many latents are drawn to choose the starts from.

    Examples
    --------
    >>> from locum.audit import LatentSearch, Search
    >>> LatentSearch(Search(steps=20)).search.restarts
    2
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
class LatentSearch(ScoreAttack):
    """Guess "member" if some likely latent decodes to nearly the record. The score is minus that distance.

    For a network it is the root mean squared distance over features, each in units of the standard deviation of the
    release's own samples, for the best of several searches. In a mixture of networks the nearest one counts. A
    Gaussian decoder needs no search: the score is the log density in closed form, and for a mixture of Gaussians the
    log of the weighted sum. It needs a decoder, which a fixed table does not have. Ordinary records get small
    distances too: what counts is that members are closer than non-members.

    Parameters
    ----------
    search
        How latents are searched.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import LatentSearch
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> LatentSearch().run(release, members, others, rng).baseline.value
    0.5
    """

    search: Search = Search()
    name: str = "latent search"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record under its own class."""
        components = components_of(release)
        if not components:
            raise NotApplicableError(self.name, "it needs a decoder, and this release is a fixed table")
        if len({component.spec.kind for component in components}) > 1:
            reason = "it cannot compare networks with Gaussians in one mixture; the ELBO attack can"
            raise NotApplicableError(self.name, reason)
        X, codes = records_of(release, members, non_members)
        if isinstance(components[0].spec, GaussianSpec):
            found = logsumexp([component_log_density(c, X, codes) for c in components], axis=0)
        else:
            weights, seed = feature_weights(release, rng), int(rng.integers(2**62))
            found = np.max([self._nearness(release, c, X, codes, weights, seed) for c in components], axis=0)
        return Scores(found[: len(members)], found[len(members) :])

    def _nearness(
        self,
        release: Release,
        component: Component,
        X: npt.NDArray[np.float32],
        codes: Codes,
        weights: npt.NDArray[np.float32],
        seed: int,
    ) -> Floats:
        assert isinstance(component.spec, NetworkSpec)
        bank = DecoderBank.stack(release.manifest, component.spec, [component.tensors])
        near = -np.sqrt(nearest_latents(bank, X, component.local(codes), weights, self.search, seed)[0])
        # A component that a class never uses says nothing about its records.
        return np.where(np.isneginf(component.log_weights[codes[:, 0]]), -np.inf, near)


def component_log_density(component: Component, X: npt.NDArray[np.float32], codes: Codes) -> Floats:
    """Log density of records under a Gaussian component, with its weight for their class.

    The covariance is that for a sampling variance of 1, as it was learned. In the space "unit", samples are scaled to
    length 1 afterward; the density is the one before.
    """
    t, cells = component.tensors, cell_of(component.local(codes), component.widths)
    return component.log_weights[codes[:, 0]] + gaussian_log_density(
        X, cells, t["means"].astype(np.float64), t["factor"], t["scale"]
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

    All decoders and records start from the same candidates and share nothing else: the result for a record does not
    depend on the other records.
    """
    rows = torch.from_numpy(np.ascontiguousarray(X * weights, dtype=np.float32))
    scale = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float32))
    labels = torch.from_numpy(codes)
    candidates = torch.randn(search.candidates, bank.latent, generator=seeded(seed))
    # The mode of the prior is always a candidate.
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
        # Small steps at the end: otherwise the size of the last step would limit the distance.
        optimizer.param_groups[0]["lr"] = search.learning_rate * (1 - done / search.steps)
        loss = (distance() + search.prior * torch.square(z).mean(dim=2)).sum()
        (z.grad,) = torch.autograd.grad(loss, [z])
        optimizer.step()
    with torch.no_grad():
        best: npt.NDArray[np.float32] = distance().reshape(k, n, search.restarts).amin(dim=2).numpy()
    return best
