"""The release of a federation: sums are added up and read once, and the decoder is mapped back to raw vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.federated.claims import run_claim
from locum.federated.masked_run import MIN_NOISE, total_noise
from locum.federated.queries import HeadProgram, StatisticsProgram
from locum.federated.settings import FederationSettings
from locum.federated.terms import Terms, agreed_reference, paid_terms, requested_sums
from locum.generate.private import (
    Measured,
    Whitener,
    folded,
    from_sums,
    head_spec,
    measured,
    place_means,
    reference_settings,
    rounded_shares,
)
from locum.release import EmbeddingEntry, GaussianSpec, NetworkSpec, Release, build_release

Sums = Mapping[str, npt.NDArray[np.float64]]
# The name of the only entry if sums were masked: their total over all sites.
TOGETHER = "together"
# As `ClassGaussian` has it: how far class means are from their center, in standard deviations.
_SEPARATION = 4.0


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
    if settings.masked:
        noise = total_noise(settings, terms)
    else:
        noise = max(float(np.sqrt(sum(terms[name].noise ** 2 for name in sums))), MIN_NOISE)
    found = measured(total, noise, len(settings.classes), settings.dim, requested_sums(settings))
    return Pooled(found, Whitener.read(found, agreed_reference(settings, reference)), total, noise)


def site_counts(settings: FederationSettings, sums: Sums) -> dict[str, float]:
    """The noisy number of records of each site; never below a few."""
    shares, classes = requested_sums(settings), len(settings.classes)
    return {
        name: float(measured(value, MIN_NOISE, classes, settings.dim, shares).counts.sum())
        for name, value in sums.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a run has learned: the sites' terms, and sums, a decoder or a program that has taken all totals."""

    terms: Mapping[str, Terms]
    sums: Sums
    decoder: Mapping[str, npt.NDArray[np.float32]]
    program: HeadProgram | StatisticsProgram | None = None


def build_result(
    settings: FederationSettings, run: str, learned: Learned, reference: str | Path | None = None
) -> Release:
    """The release of a federation. No record is used here; the settings hold what each site paid, and its receipt."""
    terms, public = learned.terms, agreed_reference(settings, reference)
    build = {"head": _head, "sums": _statistics, "decoder": _network}[settings.mode]
    spec, tensors, shares = build(settings, learned, reference)
    return build_release(
        generator="CVAEGenerator" if settings.mode == "decoder" else "ClassGaussian",
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
        joint=rounded_shares(shares),
        space="raw",
        decoder=spec,
        tensors=tensors,
        claim=run_claim(settings, [terms[name].claim for name in sorted(terms)]),
    )


Built = tuple[GaussianSpec | NetworkSpec, dict[str, Any], npt.NDArray[np.float64]]


def _head(settings: FederationSettings, learned: Learned, file: str | Path | None) -> Built:
    """Class means that carry the head which sites learned together, and all totals, so that anyone can repeat it."""
    assert isinstance(learned.program, HeadProgram)
    descent, reference = learned.program.descent, agreed_reference(settings, file)
    found, sharpness = place_means(descent.head, reference, _SEPARATION)
    spec = GaussianSpec(head=head_spec(descent, reference, _SEPARATION, sharpness))
    return spec, {**found.tensors(), "transcript": learned.program.transcript}, found.shares


def _statistics(settings: FederationSettings, learned: Learned, file: str | Path | None) -> Built:
    together, public = pooled(settings, learned.terms, learned.sums, file), agreed_reference(settings, file)
    wanted = requested_sums(settings)
    read = from_sums(together.total, together.noise, len(settings.classes), settings.dim, wanted, public)
    tensors = {"means": read.means.astype(np.float32), "factor": read.factor, "scale": read.scale}
    return GaussianSpec(), tensors, together.found.shares


def _network(settings: FederationSettings, learned: Learned, file: str | Path | None) -> Built:
    # Imported late: sums do not need torch.
    import torch

    from locum.federated.aggregation import initial_network
    from locum.generate import export_decoder

    together = pooled(settings, learned.terms, learned.sums, file)
    network = initial_network(settings)
    network.decoder.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in learned.decoder.items()})
    network.eval()
    program, exported = export_decoder(network.decoder)
    tensors = folded(network, together.whitener, together.found.shares, exported, noise=True)
    spec = NetworkSpec(latent_dim=settings.latent, program=program, noise="low-rank")  # type: ignore[arg-type]
    return spec, tensors, together.found.shares


def _costs(terms: Mapping[str, Terms]) -> list[dict[str, Any]]:
    """What each site paid, and its receipt if it signed one; without names."""
    costs = [
        paid_terms(t.claim) | ({} if t.receipt is None else {"receipt": dict(t.receipt)})
        for t in terms.values()
        if t.claim.dp is not None
    ]
    return sorted(costs, key=lambda site: str(site["ledger"]))
