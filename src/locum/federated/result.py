"""The release of a federation: sums are added up and read once, and the decoder is mapped back to raw vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from locum.accounting import Gaussian, epsilon_of, events_from_json, events_to_json, joint_ledger
from locum.errors import PrivacyError
from locum.federated.aggregation import initial_network
from locum.federated.claims import check_sites_per_subject, joint_claim
from locum.federated.secure import colluders, noise_of_each
from locum.federated.settings import FederationSettings
from locum.federated.terms import Terms, agreed_reference, paid_terms, requested_sums
from locum.generate import export_decoder
from locum.generate.private import (
    TEST,
    Measured,
    Whitener,
    folded,
    from_sums,
    measured,
    reference_settings,
    rounded_shares,
)
from locum.release import EmbeddingEntry, GaussianSpec, NetworkSpec, Release, build_release
from locum.types import DPClaim, PrivacyClaim

Sums = Mapping[str, npt.NDArray[np.float64]]
# The name of the only entry if sums were masked: their total over all sites.
TOGETHER = "together"
# Simulations may have no noise, and estimates divide by it.
_MIN_NOISE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """What is estimated from the sums of all sites."""

    found: Measured
    whitener: Whitener
    total: npt.NDArray[np.float64]
    noise: float


def pooled(
    settings: FederationSettings, terms: Mapping[str, Terms], sums: Sums, reference: str | Path | None = None
) -> Pooled:
    """Add up the sums; the variances of the sites' noise add up too. `reference` is a file, if the terms name one."""
    total = np.sum([sums[name] for name in sorted(sums)], axis=0)
    if settings.secure:
        largest, sites = max(t.noise for t in terms.values()), len(terms)
        noise = noise_of_each(largest, sites, settings.colluding) * float(np.sqrt(sites))
    else:
        noise = float(np.sqrt(sum(terms[name].noise ** 2 for name in sums)))
    noise = max(noise, _MIN_NOISE)
    found = measured(total, noise, len(settings.classes), settings.dim, requested_sums(settings))
    return Pooled(found, Whitener.read(found, agreed_reference(settings, reference)), total, noise)


def site_counts(settings: FederationSettings, sums: Sums) -> dict[str, float]:
    """The noisy number of records of each site; never below a few."""
    shares, classes = requested_sums(settings), len(settings.classes)
    return {
        name: float(measured(value, _MIN_NOISE, classes, settings.dim, shares).counts.sum())
        for name, value in sums.items()
    }


def build_result(
    settings: FederationSettings,
    run: str,
    terms: Mapping[str, Terms],
    sums: Sums,
    decoder: Mapping[str, npt.NDArray[np.float32]],
    reference: str | Path | None = None,
) -> Release:
    """The release of a federation. No record is used here; the settings hold what each site paid, and its receipt."""
    public, together = agreed_reference(settings, reference), pooled(settings, terms, sums, reference)
    spec: GaussianSpec | NetworkSpec
    if settings.mode == "sums":
        read = from_sums(
            together.total, together.noise, len(settings.classes), settings.dim, requested_sums(settings), public
        )
        spec, generator = GaussianSpec(), "ClassGaussian"
        tensors: dict[str, Any] = {"means": read.means.astype(np.float32), "factor": read.factor, "scale": read.scale}
    else:
        network = initial_network(settings)
        network.decoder.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in decoder.items()})
        network.eval()
        program, exported = export_decoder(network.decoder)
        tensors = folded(network, together.whitener, together.found.shares, exported, noise=True)
        spec, generator = NetworkSpec(latent_dim=settings.latent, program=program, noise="low-rank"), "CVAEGenerator"  # type: ignore[arg-type]
    return build_release(
        generator=generator,
        settings={
            "federation": settings.to_dict(),
            # Receipts name the run; a release without them says nothing that differs between equal runs.
            **({"run": run} if any(t.receipt for t in terms.values()) else {}),
            "sites": _costs(terms),
            **reference_settings(public),
        },
        embedding=EmbeddingEntry(backbone=settings.backbone, dim=settings.dim),
        classes=list(range(len(settings.classes))),
        class_names=settings.classes,
        joint=rounded_shares(together.found.shares),
        space="raw",
        decoder=spec,
        tensors=tensors,
        claim=run_claim(settings, [terms[name].claim for name in sorted(terms)]),
    )


def run_claim(settings: FederationSettings, claims: Sequence[PrivacyClaim]) -> PrivacyClaim:
    """The claim of a run's result, from those that the sites paid for."""
    if any(claim.test for claim in claims):
        return PrivacyClaim("none", (TEST,), test=True)
    if settings.secure:
        return _shared_noise_claim(settings, claims)
    return joint_claim(claims, settings.max_sites_per_subject)


def _shared_noise_claim(settings: FederationSettings, claims: Sequence[PrivacyClaim]) -> PrivacyClaim:
    """One mechanism for all sites: a subject with records at k of them moves the total by up to k."""
    k = check_sites_per_subject(settings.max_sites_per_subject, len(claims))
    paid = [claim.dp for claim in claims if claim.dp is not None]
    # All sites paid for the same noise, each at its own delta.
    (event,) = events_from_json(paid[0].events)
    assert isinstance(event, Gaussian)
    if len({(claim.unit, dp.relation, str(dp.events)) for claim, dp in zip(claims, paid, strict=True)}) > 1:
        raise PrivacyError("The sites guarantee different things: let all choose the same `unit` and `relation`.")
    events, delta = (Gaussian(event.noise_multiplier / k),), max(dp.delta for dp in paid)
    dp = DPClaim(
        epsilon_of(events, delta, paid[0].relation),
        delta,
        paid[0].relation,
        tuple(events_to_json(events)),
        joint_ledger([site.ledger for site in paid]),
    )
    m = len(claims)
    outside: tuple[str, ...] = (
        f"more than {colluders(m, settings.colluding)} of the {m} sites colluding with the coordinator",
        "a coordinator who invents sites or swaps their keys: who takes part must be known by other means",
    )
    if k < m:
        outside += (f"a subject with records at more than {k} of the {m} sites",)
    own = (item for claim in claims for item in claim.not_covered)
    return PrivacyClaim("dp", tuple(dict.fromkeys((*own, *outside))), unit=claims[0].unit, dp=dp)


def _costs(terms: Mapping[str, Terms]) -> list[dict[str, Any]]:
    """What each site paid, and its receipt if it signed one; without names."""
    costs = [
        paid_terms(t.claim) | ({} if t.receipt is None else {"receipt": dict(t.receipt)})
        for t in terms.values()
        if t.claim.dp is not None
    ]
    return sorted(costs, key=lambda site: str(site["ledger"]))
