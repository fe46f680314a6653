"""Merge the releases of several sites from files alone: no site has to be online, and nobody sees a record."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from locum.accounting import PoissonGaussian, events_from_json
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.federated.claims import check_sites_per_subject, joint_claim
from locum.generate.private import (
    Shares,
    from_sums,
    measured,
    read_head,
    reference_of,
    reference_settings,
    rounded_shares,
)
from locum.release import (
    EmbeddingEntry,
    GaussianSpec,
    MixturePart,
    MixtureSpec,
    Release,
    StatisticsSpec,
    build_release,
    part_prefix,
)

Array = npt.NDArray[np.float64]
Weights = Literal["counts", "equal"]
# The generator of a merged release.
_MAKER = "merge_releases"


def merge_releases(
    releases: Sequence[Release],
    max_sites_per_subject: int | None = None,
    weights: Weights = "counts",
    reference: str | Path | None = None,
) -> Release:
    """One release that stands in for the records of all sites; it costs no site anything.

    Private class Gaussians that carry noisy sums of the same kind and whitening are added up and read once: as good
    as one fit on all records with the noise of all sites. Anything else becomes a mixture, in which each vector comes
    from one site's decoder. Weights of networks that were trained separately are never averaged.

    Classes are matched by name; vectors must have one source and lie in the space "raw". It is not checked that the
    releases come from different sites, nor that their sums and sizes are true: verify the folders, and know who sent
    them.

    Parameters
    ----------
    releases
        One release per site.
    max_sites_per_subject
        At how many sites one subject can have records; None: at all of them. It is part of the claim: see
        `joint_claim`.
    weights
        "counts": in a mixture the weight of a site in a class is the count that it paid for, from its noisy sums, or
        its noisy share of the class times its public size. If the size of any site is unknown, all count as equally
        large. "equal": all sites have the same weight in every class, and nothing is added up.
    reference
        File of the public statistics of all releases, if they do not ship with Locum; without it such releases become
        a mixture.

    Returns
    -------
    Release
        The merged release; its setting `how` is "sums" or "mixture".

    Examples
    --------
    >>> import numpy as np
    >>> from locum.federated import merge_releases
    >>> from locum.generate import ClassGaussian
    >>> X, y = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 2
    >>> sites = [ClassGaussian().fit(X[some], y[some]).release(no_dp=True) for some in (slice(40), slice(40, 80))]
    >>> merged = merge_releases(sites)
    >>> merged.manifest.settings["how"], merged.claim.kind
    ('mixture', 'none')
    """
    _check(releases, weights)
    sites = check_sites_per_subject(max_sites_per_subject, len(releases))
    orders = _orders(releases)
    first, alike = releases[0].manifest, _alike(releases, reference) if weights == "counts" else None
    if reference is not None and alike is None:
        raise ConfigError(
            "The sums of these releases cannot be added: they differ in their parts or public statistics, or --equal "
            "was given. Leave --reference out for a mixture of decoders."
        )
    if alike is None:
        decoder, tensors, shares, public = _mixed(releases, orders, weights)
    else:
        decoder, tensors, shares, public = _added(releases, orders, alike, reference)
    settings = {
        "how": "mixture" if alike is None else "sums",
        "weights": weights,
        "max_sites_per_subject": sites,
        "sites": [_site(release) for release in releases],
        **public,
    }
    return build_release(
        generator=_MAKER,
        settings=settings,
        embedding=_source(releases),
        classes=first.classes,
        class_names=first.class_names,
        joint=rounded_shares(shares),
        space="raw",
        decoder=decoder,
        tensors=tensors,
        claim=joint_claim([release.claim for release in releases], max_sites_per_subject),
    )


Joined = tuple[GaussianSpec | MixtureSpec, dict[str, npt.NDArray[Any]], Array, dict[str, Any]]


def _added(
    releases: Sequence[Release],
    orders: Sequence[npt.NDArray[np.int64]],
    alike: Sequence[StatisticsSpec],
    file: str | Path | None,
) -> Joined:
    """The sums of all sites, added up and read once."""
    d, classes, shares = releases[0].manifest.embedding.dim, len(orders[0]), Shares(*alike[0].shares)
    total = np.zeros(shares.size(classes, d))
    for release, order in zip(releases, orders, strict=True):
        mine = release.tensors["statistics"].astype(np.float64)
        sums, counts, _, _ = shares.parts(mine, classes, d)
        sums[:], counts[:] = sums.reshape(classes, d)[order].ravel(), counts[order]
        total += mine
    reference = reference_of(alike[0], d, file)
    found = from_sums(total, math.hypot(*(one.noise for one in alike)), classes, d, shares, reference)
    tensors = {"means": found.means.astype(np.float32), "factor": found.factor, "scale": found.scale}
    spec = GaussianSpec(variance=_variance(releases[0]))
    public = {**reference_settings(reference), "covariance": "own" if shares.products else "public"}
    return spec, tensors, found.shares, public


def _mixed(releases: Sequence[Release], orders: Sequence[npt.NDArray[np.int64]], weights: Weights) -> Joined:
    """A mixture of decoders, with the weight of each in each class."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    parts = []
    for number, (release, order) in enumerate(zip(releases, orders, strict=True)):
        decoder: Any = release.manifest.decoder
        if isinstance(decoder, GaussianSpec):
            # Sampling does not need the sums.
            decoder = decoder.model_copy(update={"statistics": None, "head": None})
        same = (order == np.arange(len(order))).all()
        parts.append(MixturePart(decoder=decoder, order=() if same else tuple(order.tolist())))
        own = {k: v for k, v in release.tensors.items() if k not in ("statistics", "transcript")}
        tensors |= {part_prefix(number) + name: value for name, value in own.items()}
    shares = np.stack([_shares(release)[order] for release, order in zip(releases, orders, strict=True)])
    counts = [_counts(release) for release in releases]
    known = [count[order] for count, order in zip(counts, orders, strict=True) if count is not None]
    # If the size of one site is unknown, all sites count as equally large.
    table = np.stack(known) if weights == "counts" and len(known) == len(releases) else shares
    by_site = table if weights == "counts" else np.ones_like(table)
    # For a class that no site has seen, all sites have the same weight.
    by_site = np.where(by_site.sum(axis=0) > 0, by_site, 1.0)
    tensors["weights"] = (by_site / by_site.sum(axis=0)).astype(np.float32)
    return MixtureSpec(parts=tuple(parts)), tensors, table.sum(axis=0) / table.sum(), {}


def _alike(releases: Sequence[Release], file: str | Path | None) -> list[StatisticsSpec] | None:
    """How to read the sums of all sites, if all sites have sums of the same kind that can be read here."""
    found = [spec for spec in map(_statistics, releases) if spec is not None]
    if len(found) < len(releases) or len({(one.shares, one.reference, one.reference_sha256) for one in found}) > 1:
        return None
    try:
        reference_of(found[0], releases[0].manifest.embedding.dim, file)
    except LocumError:
        if file is not None:
            raise
        return None
    return found


def _statistics(release: Release) -> StatisticsSpec | None:
    decoder = release.manifest.decoder
    return decoder.statistics if isinstance(decoder, GaussianSpec) else None


def _counts(release: Release) -> Array | None:
    """About how many units of each class a site has, if it paid for that or made it public; otherwise None."""
    manifest, spec = release.manifest, _statistics(release)
    if spec is not None:
        noisy = release.tensors["statistics"].astype(np.float64)
        found = measured(noisy, spec.noise, len(manifest.classes), manifest.embedding.dim, Shares(*spec.shares))
        return found.counts
    decoder = manifest.decoder
    if isinstance(decoder, GaussianSpec) and decoder.head is not None:
        classes, d = len(manifest.classes), manifest.embedding.dim
        first = read_head(decoder.head, release.tensors["transcript"], classes, d).first
        return first.counts
    size: Any = manifest.settings.get("n_public")
    dp, batch = release.claim.dp, manifest.settings.get("batch_size")
    if size is None and dp is not None and _is_size(batch):
        # A batch holds the share `rate` of the public size; at a rate of 1 the size may be smaller than a batch.
        rates = [event.rate for event in events_from_json(dp.events) if isinstance(event, PoissonGaussian)]
        size = round(batch / rates[0]) if len(rates) == 1 and rates[0] < 1 else None
    return _shares(release) * size if _is_size(size) else None


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**12


def _shares(release: Release) -> Array:
    """The released frequency of each class."""
    out = np.zeros(len(release.manifest.classes))
    for codes, p in release.manifest.joint:
        out[codes[0]] += p
    return out


def _variance(release: Release) -> float:
    return float(getattr(release.manifest.decoder, "variance", 1.0))


def _site(release: Release) -> dict[str, Any]:
    """What a merged release says about a site: its own guarantee, and no count."""
    out: dict[str, Any] = {"generator": release.manifest.generator, "claim": release.claim.kind}
    dp = release.claim.dp
    if dp is None:
        return out
    # A site's ledger knows its own release by its fingerprint.
    source = {} if release.fingerprint is None else {"fingerprint": release.fingerprint}
    return {**out, "epsilon": dp.epsilon, "delta": dp.delta, "ledger": dp.ledger, **source}


def _source(releases: Sequence[Release]) -> EmbeddingEntry:
    """The source of the vectors, from the first site that names it; names of features, if all sites have them."""
    entries = [release.manifest.embedding for release in releases]
    source = next((entry for entry in entries if entry.backbone != "unknown"), entries[0])
    return (
        source if all(entry.feature_names for entry in entries) else source.model_copy(update={"feature_names": ()})
    )


def _orders(releases: Sequence[Release]) -> list[npt.NDArray[np.int64]]:
    """For each site the index of each of the first site's classes."""
    wanted = releases[0].manifest.class_names
    out = []
    for number, release in enumerate(releases, start=1):
        place = {name: i for i, name in enumerate(release.manifest.class_names)}
        if len(place) < len(release.manifest.class_names):
            raise DataError(
                f"Release {number} has two classes with the same name: classes are matched between sites by name."
            )
        if set(place) != set(wanted):
            raise DataError(
                f"Release {number} has the classes {_listed(place)}, release 1 has {_listed(wanted)}: let all sites "
                "name the same classes; a class may be empty at a site."
            )
        out.append(np.array([place[name] for name in wanted], dtype=np.int64))
    return out


def _listed(names: Any) -> str:
    shown = [repr(name[:40]) for name in list(names)[:6]]
    return ", ".join(shown) + (", ..." if len(names) > 6 else "")


def _check(releases: Sequence[Release], weights: str) -> None:
    """Refuse releases that cannot be merged."""
    if len(releases) < 2:
        raise ConfigError(f"A merge needs the releases of two or more sites; got {len(releases)}.")
    if weights not in get_args(Weights):
        raise ConfigError(f"`weights` must be one of {', '.join(get_args(Weights))}; got {weights!r}.")
    first, seen = releases[0], set()
    source = _source(releases).info(())
    for number, release in enumerate(releases, start=1):
        manifest, which = release.manifest, f"Release {number}"
        if manifest.kind == "data":
            raise ConfigError(f"{which} holds fixed rows and no decoder: only decoders can be merged.")
        if manifest.generator == _MAKER or "sites" in manifest.settings or isinstance(manifest.decoder, MixtureSpec):
            raise ConfigError(f"{which} was already made from several sites: give each site's own release instead.")
        if manifest.conditions:
            raise ConfigError(f"{which} is conditioned on more than the class: such releases cannot be merged.")
        if manifest.space != "raw":
            raise DataError(f"{which} is in the space {manifest.space!r}; only the space 'raw' can be merged.")
        if manifest.embedding.dim != first.manifest.embedding.dim:
            raise DataError(
                f"{which} has vectors of {manifest.embedding.dim} features, release 1 has "
                f"{first.manifest.embedding.dim}: let all sites embed in the same way."
            )
        names, wanted = manifest.embedding.feature_names, first.manifest.embedding.feature_names
        if names and wanted and names != wanted:
            raise DataError(
                f"{which} has features of other names than release 1, or in another order: let all sites fit the "
                "same columns in the same order."
            )
        if not source.same_source(release.info):
            raise DataError(
                f"{which} has vectors of {release.info.backbone!r}, others of {source.backbone!r} or with other "
                "preprocessing: let all sites embed in the same way."
            )
        if _variance(release) != _variance(first):
            raise ConfigError(
                f"{which} and release 1 have different sampling variances: let all sites choose the same."
            )
        if (content := _content(release)) in seen:
            raise ConfigError(f"{which} was given twice: give the release of each site once.")
        seen.add(content)
    tests = [release.claim.test for release in releases]
    if any(tests) and not all(tests):
        raise PrivacyError(
            f"Release {tests.index(True) + 1} was made with an insecure seed, release {tests.index(False) + 1} was "
            "not: a test cannot be merged with real releases."
        )


def _content(release: Release) -> str:
    """A hash of the content of a release, saved or not."""
    digest = hashlib.sha256(release.manifest.model_copy(update={"files": {}}).dumps().encode())
    for name in sorted(release.tensors):
        digest.update(np.ascontiguousarray(release.tensors[name]).tobytes())
    return digest.hexdigest()
