"""The best guess at class means and covariance that lie under noise of a known size."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.accounting import QueryPlan
from locum.data import REFERENCES, Reference
from locum.generate.private.query import Shares, measured, query_sums
from locum.mechanisms import SecureRandom
from locum.release import StatisticsSpec

Array = npt.NDArray[np.float64]

# Means are taken to differ by at least this share of the noise: equal means would teach a classifier nothing, and
# the direction in which they differ is worth having even where its length is lost in the noise.
_LEAST_SCATTER = 0.1
# Class means explain at most so much of a vector's length, and so do the directions found in products.
_MOST = 0.9
# Products are asked for from this ratio of records to noise on; see `products_pay`.
_WORTH = 13.0
_WIDEST = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMeans:
    """What leaves: class means as they were (`raw` space), the spread around them, and class shares.

    The spread is `factor.T @ factor + diag(scale**2)`.
    """

    means: Array
    factor: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    shares: Array


def products_pay(plan: QueryPlan, classes: int, d: int) -> bool:
    """Whether half of the budget is better spent on a covariance; it goes by public numbers alone.

    Noise in the class sums grows with the square root of `classes * d`; once records outweigh it thirteenfold, the
    means can do with half. `locum study run private-epsilon` shows both.
    """
    return d <= _WIDEST and plan.privacy.size() >= _WORTH * plan.noise_multiplier * np.sqrt(classes * d)


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
    """The sums of `query` with the noise of `plan`: all that ever leaves the records, and what the plan pays for.

    A subject's records count together where `subject` is given.
    """
    sums = query_sums(X, codes, subject, classes, reference, shares)
    rng = SecureRandom(np.ones(1, dtype=np.int64), 1.0, len(sums), plan.noise_multiplier, insecure_seed=insecure_seed)
    out: Array = sums + rng.draw(0).noise.numpy()
    return out


def from_sums(
    noisy: Array, noise_std: float, classes: int, d: int, shares: Shares, reference: Reference
) -> PrivateMeans:
    """Class means and spread from noisy sums, of one site or added over several; it costs nothing.

    Each number has normal noise of `noise_std`; added sums have noise that adds in squares. Sums to be added need the
    same `shares` and `reference`. Without products the covariance is the reference's.
    """
    found = measured(noisy, noise_std, classes, d, shares)
    assert found.means is not None
    guessed = shrunk(found.means, found.error)
    # Directions have length 1: what the class means do not explain of it is spread.
    explained = min(float(found.shares @ np.square(guessed).sum(axis=1)), _MOST)
    level, directions = (1 - explained) / d, np.zeros((0, d))
    if found.products is not None:
        inner = (found.products - (guessed.T * found.counts) @ guessed) / found.counts.sum()
        level, directions = denoised(inner, found.products_std / found.counts.sum(), 1 - explained)
    factor, scale = reference.factors()
    size = np.float32(found.length * np.sqrt(level))
    return PrivateMeans(
        means=reference.colour(guessed * found.length),
        factor=np.concatenate([size * factor, (found.length * reference.stretch(directions)).astype(np.float32)]),
        scale=size * scale,
        shares=found.shares,
    )


def statistics_told(reference: Reference, shares: Shares, noise_std: float) -> StatisticsSpec | None:
    """What a release says about its noisy sums; None where nobody else could read them.

    That needs the reference, and only those that ship with the program are at hand everywhere.
    """
    if reference.name not in ("none", *REFERENCES):
        return None
    parts = (shares.sums, shares.counts, shares.lengths, shares.products)
    return StatisticsSpec(
        noise=noise_std, shares=parts, reference=reference.name, reference_sha256=reference_hash(reference)
    )


def reference_hash(reference: Reference) -> str:
    """Tells two versions of one reference apart: sums that were whitened differently must not be added.

    Over what is read from its file as it stands: directions are made orthonormal, and last digits may differ.
    """
    numbers = np.concatenate([reference.mean, reference.values, [reference.rest]]).astype("<f4")
    return hashlib.sha256(numbers.tobytes()).hexdigest()


def denoised(seen: Array, std: float, total: float) -> tuple[float, Array]:
    """`level` and directions `V` so that `V.T @ V + level * I` is the best guess at a covariance of trace `total`.

    `seen` is the covariance plus symmetric noise of standard deviation `std` off the diagonal. Noise alone has no
    eigenvalue beyond `2 std sqrt(d)`; what is beyond is brought back by what noise adds to it, the rest is a level
    alike in all directions. With much noise nothing is found, and that is the answer.
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
    """The best guess at means that were seen with noise of known variance `error`: one a class, alike everywhere.

    The means are taken to scatter around a common centre by an unknown variance, which is estimated with what the
    noise is known to add taken off. A class that was seen with much noise is drawn towards the centre, and the centre
    follows those that were seen well. Without this the rarest class has the longest mean, and a classifier's
    threshold goes wrong.
    """
    classes, d = observed.shape
    least = _LEAST_SCATTER * float(error.mean())
    scatter = least
    for _ in range(50):
        weight = 1 / (scatter + error)
        centre = weight @ observed / weight.sum()
        share = weight / weight.sum()
        # Expected squared distance from a weighted centre: (1 - share) of the class's own variance, roughly.
        seen = np.square(observed - centre).sum(axis=1) / d
        free = np.maximum(1 - share, 1 / classes)
        updated = max(float(np.average(seen / free - error, weights=weight)), least)
        if abs(updated - scatter) <= 1e-9 * (scatter + error.min()):
            break
        scatter = updated
    keep = scatter / (scatter + error)
    out: Array = centre + keep[:, None] * (observed - centre)
    return out
