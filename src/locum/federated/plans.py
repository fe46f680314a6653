"""What taking part costs a site, and what it does: worked out from public numbers before any record is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from locum.accounting import Event, Gaussian, SGDPlan, plan_query
from locum.federated.settings import FederationSettings
from locum.generate.private import COUNTS_ONLY, MEANS, MEANS_AND_PRODUCTS, Shares, plan_network
from locum.nets import CVAE, plain_cvae
from locum.train.dp import InitialQuery
from locum.types import DP

# For a rehearsal without privacy: gradients are never so long.
_NO_CLIP = 1e6


@dataclass(frozen=True, slots=True)
class SitePlan:
    """Sums first, with noise of `sums_noise`; then, for a decoder, `training`, so many steps a round.

    Without a budget (`privacy` None) there is no noise and no cost: rehearsals only.
    """

    privacy: DP | None
    sums_noise: float
    training: SGDPlan | None
    steps_a_round: int

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger is charged with, all of it before the first round."""
        if self.privacy is None:
            return ()
        return (Gaussian(self.sums_noise),) if self.training is None else self.training.events


def sums_asked(settings: FederationSettings) -> Shares:
    """Which sums a site is asked for when it joins."""
    if settings.mode == "sums":
        return MEANS_AND_PRODUCTS if settings.covariance == "own" else MEANS
    return MEANS if settings.initial_query == "class" else COUNTS_ONLY


def plan_site(settings: FederationSettings, privacy: DP | None, records: int = 0) -> SitePlan:
    """The plan of one site. `records`, the true number, counts only in a rehearsal without privacy."""
    if privacy is None:
        training = None
        if settings.mode == "decoder":
            n = max(records, 1)
            batch = min(settings.batch, n)
            steps = steps_a_round(settings, n)
            free = DP(1.0, 1e-9, n_public=1)
            training = SGDPlan(free, batch / n, batch, settings.rounds * steps, _NO_CLIP, 0.0)
            return SitePlan(None, 0.0, training, steps)
        return SitePlan(None, 0.0, None, 0)
    if settings.mode == "sums":
        return SitePlan(privacy, plan_query(privacy).noise_multiplier, None, 0)
    steps = steps_a_round(settings, privacy.size())
    training = plan_network(
        privacy, settings.initial_query, batch=settings.batch, steps=settings.rounds * steps, clip=settings.clip
    )
    return SitePlan(privacy, InitialQuery.noise(training), training, steps)


def initial_network(settings: FederationSettings) -> CVAE:
    """The network that everybody starts from: the decoder is the first global one, the encoder becomes personal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return plain_cvae(settings.dim, len(settings.classes), settings.hidden, settings.latent, sigmoid=False)


def decoder_tensors(network: CVAE) -> dict[str, npt.NDArray[np.float32]]:
    """The weights that leave."""
    return {name: value.detach().numpy().copy() for name, value in network.decoder.state_dict().items()}


def steps_a_round(settings: FederationSettings, n: int) -> int:
    """Steps that a site of declared size `n` takes in each round."""
    return max(1, round(settings.local_epochs * n / min(settings.batch, n)))
