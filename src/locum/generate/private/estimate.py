"""Noisy sums and the estimate of class means and covariance from them.

`noisy_sums` is the only function here that uses records; everything after it is post-processing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan
from locum.data import REFERENCES, Reference, load_reference
from locum.errors import ConfigError, DataError
from locum.generate.private.query import Shares, exact_query, measured
from locum.mechanisms import noisy
from locum.release import HeadSpec, StatisticsSpec

Array = npt.NDArray[np.float64]

# Means are assumed to differ by at least this share of the noise: equal means would teach a classifier nothing, and
# the direction in which they differ is useful even if its length is lost in the noise.
_LEAST_SCATTER = 0.1
# Class means explain at most this share of the squared length of a vector, and so do the directions in products.
_MOST = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMeans:
    """Estimates for a release: class means in `raw` space, the spread around them, and class shares.

    The spread is `factor.T @ factor + diag(scale**2)`.
    """

    means: Array
    factor: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    shares: Array

    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """As a release holds them."""
        return {"means": self.means.astype(np.float32), "factor": self.factor, "scale": self.scale}


def noisy_sums(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    reference: Reference,
    shares: Shares,
    plan: QueryPlan,
    insecure_seed: int | None = None,
) -> Array:
    """The sums of `query_sums` with the noise of `plan`: all that is learned from the records.

    The caller pays for the plan first.

    Parameters
    ----------
    X, codes, subject, classes, reference, shares
        As in `query_sums`.
    plan
        The plan of the query; its noise multiplier is the standard deviation of the noise on each number.
    insecure_seed
        A seed for the noise, for tests; None: the operating system's entropy.

    Returns
    -------
    ndarray
        One noisy number per sum, `shares.size(classes, d)` in all.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.accounting import plan_query
    >>> from locum.data import load_reference
    >>> from locum.generate.private import MEANS, noisy_sums
    >>> from locum.types import DP
    >>> X, codes, plan = np.ones((40, 3), np.float32), np.arange(40) % 2, plan_query(DP(1.0, 1e-6, n_public=40))
    >>> noisy_sums(X, codes, None, 2, load_reference("none", 3), MEANS, plan).shape
    (9,)
    """
    sums = exact_query(X, codes, subject, classes, reference, shares)
    return noisy(sums, plan.noise_multiplier, insecure_seed=insecure_seed).to_array()


def from_sums(
    noisy: Array, noise_std: float, classes: int, d: int, shares: Shares, reference: Reference
) -> PrivateMeans:
    """Class means and spread from noisy sums, of one site or added over several; it costs nothing.

    Without products the covariance is that of the reference.

    Parameters
    ----------
    noisy
        The noisy sums. Sums that are added need the same `shares` and `reference`.
    noise_std
        The standard deviation of the noise on each number, above 0; variances add when sums are added.
    classes, d
        The numbers of classes and of features.
    shares
        The parts of the query. They must include the class sums.
    reference
        The public statistics that the vectors were whitened with.

    Returns
    -------
    PrivateMeans
        Class `means` of raw vectors, `factor` and `scale` of the spread around them
        (`factor.T @ factor + diag(scale**2)`), and class `shares`.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import MEANS, from_sums, query_sums
    >>> X, codes = np.array([[1, 1], [1, -1]] * 20, np.float32), np.arange(40) % 2
    >>> reference = load_reference("none", 2)
    >>> sums = query_sums(X, codes, None, 2, reference)
    >>> from_sums(sums, 1e-6, 2, 2, MEANS, reference).means.round(3).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    found = measured(noisy, noise_std, classes, d, shares)
    assert found.means is not None
    guessed = shrunk(found.means, found.error)
    # Vectors have length 1: what the class means do not explain is spread.
    explained = min(float(found.shares @ np.square(guessed).sum(axis=1)), _MOST)
    level, directions = (1 - explained) / d, np.zeros((0, d))
    if found.products is not None:
        inner = (found.products - (guessed.T * found.counts) @ guessed) / found.counts.sum()
        level, directions = denoised(inner, found.products_std / found.counts.sum(), 1 - explained)
    factor, scale = reference.factors()
    size = np.float32(found.length * np.sqrt(level))
    return PrivateMeans(
        means=reference.color(guessed * found.length),
        factor=np.concatenate([size * factor, (found.length * reference.stretch(directions)).astype(np.float32)]),
        scale=size * scale,
        shares=found.shares,
    )


def statistics_spec(reference: Reference, shares: Shares, noise_std: float) -> StatisticsSpec:
    """Manifest entry for the noisy sums. Reading them needs the reference: by its name if it ships, else the file."""
    parts = (shares.sums, shares.counts, shares.lengths, shares.products)
    return StatisticsSpec(
        noise=noise_std, shares=parts, reference=reference.name, reference_sha256=reference_hash(reference)
    )


def reference_of(spec: StatisticsSpec | HeadSpec, dim: int, given: str | Path | None = None) -> Reference:
    """The public statistics that whitened released sums.

    The name in a release comes from outside and is never used as the name of a file.

    Parameters
    ----------
    spec
        How the sums are read.
    dim
        Number of features.
    given
        The file of statistics that do not ship with Locum; not used for those that do.

    Returns
    -------
    Reference
        The statistics, with the hash that `spec` names.

    Raises
    ------
    ConfigError
        If they do not ship with Locum and no file is given.
    DataError
        If the statistics have another hash.

    Examples
    --------
    >>> from locum.data import Reference
    >>> from locum.generate.private import MEANS, reference_of
    >>> from locum.generate.private.estimate import statistics_spec
    >>> reference_of(statistics_spec(Reference.plain(3), MEANS, 4.0), 3).name
    'none'
    """
    known = spec.reference in ("none", *REFERENCES)
    if not known and given is None:
        raise ConfigError(
            f"The release was made with its holder's own public statistics (sha256 {spec.reference_sha256[:16]}...): "
            "name their file with --reference."
        )
    found = load_reference(spec.reference if known or given is None else given, dim)
    if reference_hash(found) != spec.reference_sha256:
        name, todo = (
            (spec.reference, "use the version of Locum that made it") if known else (given, "find their file")
        )
        raise DataError(
            f"The public statistics {str(name)!r} (sha256 {reference_hash(found)[:16]}...) are not those of the "
            f"release (sha256 {spec.reference_sha256[:16]}...): {todo}."
        )
    return found


def reference_hash(reference: Reference) -> str:
    """Hash that tells versions of a reference apart: sums that were whitened differently must not be added.

    It covers what is read unchanged from the file. Directions are made orthonormal, so their last digits may differ.

    Parameters
    ----------
    reference
        The public statistics.

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits.

    Examples
    --------
    >>> from locum.data import load_reference
    >>> from locum.generate.private import reference_hash
    >>> reference_hash(load_reference("none", 3)) == reference_hash(load_reference("none", 4))
    False
    """
    scale = () if reference.scale is None else reference.scale
    numbers = np.concatenate([reference.mean, reference.values, [reference.rest], scale]).astype("<f4")
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def denoised(seen: Array, std: float, total: float) -> tuple[float, Array]:
    """`level` and directions `V` such that `V.T @ V + level * I` estimates a covariance of trace `total`.

    `seen` is the covariance plus symmetric noise of standard deviation `std` off the diagonal. Noise alone has no
    eigenvalue above `2 std sqrt(d)`; larger ones are reduced by what noise adds to them, and the rest becomes a level
    that is equal in all directions. With much noise no direction is found.
    """
    d = len(seen)
    level = total / d
    values, vectors = np.linalg.eigh(seen - level * np.eye(d))
    edge = 2 * std * np.sqrt(d)
    found = values > edge
    kept = 0.5 * (values[found] + np.sqrt(np.square(values[found]) - edge**2))
    if (much := float(kept.sum())) > _MOST * total:
        kept *= _MOST * total / much
    return (total - float(kept.sum())) / d, np.sqrt(kept)[:, None] * vectors[:, found].T


def shrunk(observed: Array, error: Array) -> Array:
    """Class means shrunk toward a common center; `error` is the known noise variance of each class.

    The means are assumed to scatter around a center with an unknown variance, estimated from the observed scatter
    less the noise. A class with much noise is pulled toward the center, and the center follows the other classes.
    Without this the rarest class has the longest mean, which shifts a classifier's threshold.
    """
    classes, d = observed.shape
    least = _LEAST_SCATTER * float(error.mean())
    scatter = least
    for _ in range(50):
        weight = 1 / (scatter + error)
        center = weight @ observed / weight.sum()
        share = weight / weight.sum()
        # Expected squared distance from a weighted center: about (1 - share) of the class's own variance.
        seen = np.square(observed - center).sum(axis=1) / d
        free = np.maximum(1 - share, 1 / classes)
        updated = max(float(np.average(seen / free - error, weights=weight)), least)
        if abs(updated - scatter) <= 1e-9 * (scatter + error.min()):
            break
        scatter = updated
    keep = scatter / (scatter + error)
    out: Array = center + keep[:, None] * (observed - center)
    return out
