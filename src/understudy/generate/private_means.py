"""Class means under differential privacy: one noisy sum, and the best guess at what lies under the noise.

Vectors are whitened with public statistics and brought to length 1, so that one record moves the sums by a known
amount, whatever it is. The sums of each class, its count, and one sum of lengths leave in one Gaussian mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from understudy.accounting import QueryPlan
from understudy.embed.reference import Reference
from understudy.train.coins import Coins

__all__ = ["PrivateMeans", "noisy_means", "query", "shrunk"]

Array = npt.NDArray[np.float64]

# Shares of the squared sensitivity: directions, counts, lengths. They sum to 1.
_SUMS, _COUNTS, _LENGTHS = 0.96, 0.02, 0.02
# Lengths beyond so many times what the reference expects are cut.
_LONGEST = 3.0
# Means are taken to differ by at least this share of the noise: equal means would teach a classifier nothing, and
# the direction in which they differ is worth having even where its length is lost in the noise.
_LEAST_SCATTER = 0.1
# A class counts as at least so many units: a noisy count can be negative.
_FEWEST = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMeans:
    """What leaves: class means as they were (`raw` space), the size of the spread around them, and class shares."""

    means: Array
    spread: float
    shares: Array


def noisy_means(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    reference: Reference,
    plan: QueryPlan,
    test_coins: int | None = None,
) -> PrivateMeans:
    """Class means of `X` that cost what `plan` says; a subject's records count together where `subject` is given."""
    d = X.shape[1]
    sums = query(X, codes, subject, classes, reference)
    coins = Coins(np.ones(1, dtype=np.int64), 1.0, len(sums), plan.noise_multiplier, test_seed=test_coins)
    noisy = sums + coins.draw(0).noise.numpy()
    # From here on nothing looks at records: what follows costs nothing.
    counts = np.maximum(noisy[classes * d : -1] / np.sqrt(_COUNTS), _FEWEST)
    directions = noisy[: classes * d].reshape(classes, d) / np.sqrt(_SUMS) / counts[:, None]
    error = np.square(plan.noise_multiplier / np.sqrt(_SUMS) / counts)
    guessed = shrunk(directions, error)
    longest = _LONGEST * np.sqrt(d)
    length = float(np.clip(noisy[-1] / np.sqrt(_LENGTHS) / counts.sum(), 0.1, 1.0)) * longest
    # Directions have length 1: what the class means do not explain of it is spread, alike in all directions.
    explained = float(np.clip((counts / counts.sum()) @ np.square(guessed).sum(axis=1), 0.0, 0.9))
    return PrivateMeans(
        means=reference.colour(guessed * length),
        spread=length * float(np.sqrt((1 - explained) / d)),
        shares=counts / counts.sum(),
    )


def query(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    reference: Reference,
) -> Array:
    """The sums before the noise: one unit, added or removed, moves them by at most 1 in L2.

    A record's part has length at most 1 by construction. A subject's records are added up, and the sum is cut to
    length 1; so somebody with many records has as much say as somebody with one.
    """
    d = X.shape[1]
    # A record with a number that is not finite has no say; it cannot be told from an absent one.
    usable = np.asarray(np.isfinite(X).all(axis=1))
    white = reference.whiten(np.where(usable[:, None], X, 0.0))
    length = np.linalg.norm(white, axis=1)
    unit = white / np.where(length > 0, length, 1.0)[:, None]
    relative = np.where(usable, np.minimum(length / (_LONGEST * np.sqrt(d)), 1.0), 0.0)
    if subject is None:
        out = np.zeros(classes * d + classes + 1)
        table = out[: classes * d].reshape(classes, d)
        np.add.at(table, codes[usable], unit[usable])
        table *= np.sqrt(_SUMS)
        out[classes * d : -1] = np.sqrt(_COUNTS) * np.bincount(codes[usable], minlength=classes)
        out[-1] = np.sqrt(_LENGTHS) * relative.sum()
        return out
    total = np.zeros(classes * d + classes + 1)
    order = np.argsort(subject, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(subject[order])) + 1):
        part = query(X[rows], codes[rows], None, classes, reference)
        total += part / max(1.0, float(np.linalg.norm(part)))
    return total


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
