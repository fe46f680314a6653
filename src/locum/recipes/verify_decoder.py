"""`verify --ledger`: does the decoder of a private Gaussian follow from the noisy results that the ledger knows?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from locum.errors import LocumError, PrivacyError
from locum.release import GaussianSpec, HeadSpec, Release, cell_of, transcript_hash

if TYPE_CHECKING:
    from locum.accounting import Charge

# What another machine, and rounding to 32 bits, may change: in standard deviations of a feature, and of itself.
_DEVIATIONS, _RELATIVE = 1e-3, 1e-5
# Frequencies are released in thousandths, and may be rounded the other way on another machine.
_FREQUENCY = 0.0021
ALTERED = "The decoder does not follow from the noisy sums: the release was altered. Do not use it."


def check_decoder(
    release: Release, charge: Charge, results: Mapping[str, str], file: Path | None
) -> tuple[list[str], list[str]]:
    """What was checked of the noisy result that the decoder was made from, and what was not."""
    decoder = release.manifest.decoder
    spec = (decoder.head or decoder.statistics) if isinstance(decoder, GaussianSpec) else None
    if spec is None:
        return [], ["the decoder cannot be computed again from its noisy result, which the release does not hold"]
    noisy = release.tensors["transcript" if isinstance(spec, HeadSpec) else "statistics"]
    if transcript_hash(noisy) not in results.values():
        raise PrivacyError("The release holds other noisy sums than the ledger knows: it was altered. Do not use it.")
    if spec.noise != charge.events[0].noise_multiplier:
        raise PrivacyError("The release names other noise than the ledger paid for: it was altered. Do not use it.")
    checks = ["the noisy sums are the ones that the ledger knows"]
    cells, d = release.manifest.cells, release.manifest.embedding.dim
    try:
        from locum.generate.private import (
            Descent,
            Shares,
            from_sums,
            place_means,
            read_head,
            reference_of,
            rounded_shares,
        )

        reference = reference_of(spec, d, file)
    except LocumError as error:
        if file is not None:
            raise
        return checks, [f"whether the decoder follows from the noisy sums. {error}"]
    not_checked = []
    if isinstance(spec, HeadSpec):
        head = read_head(spec, noisy, cells, d)
        found, sharpness = place_means(head, reference, spec.separation)
        if not np.isclose(spec.sharpness, sharpness, rtol=1e-3):
            raise PrivacyError(ALTERED)
        usual = Descent(spec.noise, cells, d)
        usual.take(noisy[: usual.size].astype(np.float64))
        if usual.schedule != head.schedule:
            not_checked.append(
                "the settings of the gradient steps: this version would choose others, and whoever chose these must "
                "not have looked at records"
            )
    else:
        found = from_sums(noisy.astype(np.float64), spec.noise, cells, d, Shares(*spec.shares), reference)
    given = [release.tensors[name].astype(np.float64) for name in ("means", "factor", "scale")]
    if not _same(given, [found.means, found.factor.astype(np.float64), found.scale.astype(np.float64)]):
        raise PrivacyError(ALTERED)
    prior = {code: share for (code,), share in rounded_shares(found.shares)}
    codes = np.array([codes for codes, _ in release.manifest.joint])
    weights = [weight for _, weight in release.manifest.joint]
    if not all(
        abs(weight - prior[int(cell)]) <= _FREQUENCY
        for cell, weight in zip(cell_of(codes, release.manifest.widths), weights, strict=True)
    ):
        raise PrivacyError(ALTERED)
    return [*checks, "the decoder follows from the noisy sums"], not_checked


def _same(given: list[Any], expected: list[Any]) -> bool:
    """Whether two Gaussians have the same means and covariance, feature by feature, in units of its own spread.

    Directions may come out turned on another machine; covariances do not.
    """
    covariances = [factor.T @ factor + np.diag(np.square(scale)) for _, factor, scale in (given, expected)]
    spread = np.sqrt(np.diagonal(covariances[1]))
    far = np.abs(given[0] - expected[0]) - _RELATIVE * np.abs(expected[0])
    unlike = np.abs(covariances[0] - covariances[1])
    return bool((far <= _DEVIATIONS * spread).all() and (unlike <= _DEVIATIONS * np.outer(spread, spread)).all())
