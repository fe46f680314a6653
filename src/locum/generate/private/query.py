"""What is asked of records under differential privacy: one vector of sums that a unit moves by at most 1.

Vectors are whitened with public statistics and brought to length 1, so that one record moves the sums by a known
amount, whatever it is. The sums of each class, its count, one sum of lengths and, if asked for, all products of two
features leave in one Gaussian mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.data import Reference

Array = npt.NDArray[np.float64]

# Lengths beyond so many times what the reference expects are cut.
LONGEST = 3.0
# A class counts as at least so many units: a noisy count can be negative.
_FEWEST = 5.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the squared sensitivity, which sum to 1. What has no share is not asked."""

    sums: float
    counts: float
    lengths: float
    products: float = 0.0

    def size(self, classes: int, d: int) -> int:
        """How many numbers are asked for."""
        return sum(stop - start for start, stop in self._edges(classes, d))

    def _edges(self, classes: int, d: int) -> list[tuple[int, int]]:
        wanted = (
            (self.sums, classes * d),
            (self.counts, classes),
            (self.lengths, 1),
            (self.products, d * (d + 1) // 2),
        )
        ends = np.cumsum([size if share else 0 for share, size in wanted]).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def parts(self, vector: Array, classes: int, d: int) -> tuple[Array, Array, Array, Array]:
        """Views of a vector of sums: class sums, counts, lengths, products."""
        a, b, c, e = (vector[start:stop] for start, stop in self._edges(classes, d))
        return a, b, c, e


MEANS = Shares(0.96, 0.02, 0.02)
MEANS_AND_PRODUCTS = Shares(0.46, 0.02, 0.02, 0.5)
COUNTS_ONLY = Shares(0.0, 0.5, 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What the noisy sums say, in whitened vectors of length 1. Nothing here looks at records any more.

    `means` of the classes with the variance `error` of each number, `counts` (never below a few), mean `length` of
    whitened vectors, and the summed `products`, whose entries off the diagonal have noise of `products_std`.
    """

    means: Array | None
    error: Array
    counts: Array
    length: float
    products: Array | None
    products_std: float

    @property
    def shares(self) -> Array:
        """How frequent classes are."""
        out: Array = self.counts / self.counts.sum()
        return out


def unit_vectors(X: npt.NDArray[np.float32], reference: Reference) -> tuple[Array, Array]:
    """Whitened vectors of length 1, and their lengths as a share of the longest that counts.

    A record with a number that is not finite becomes the vector 0 of length 0.
    """
    usable = np.asarray(np.isfinite(X).all(axis=1))
    white = reference.whiten(np.where(usable[:, None], X, 0.0))
    length = np.linalg.norm(white, axis=1)
    unit = np.where(usable[:, None], white / np.where(length > 0, length, 1.0)[:, None], 0.0)
    relative = np.where(usable, np.minimum(length / (LONGEST * np.sqrt(X.shape[1])), 1.0), 0.0)
    return unit, relative


def query_sums(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    reference: Reference,
    shares: Shares = MEANS,
) -> Array:
    """The sums before the noise: one unit, added or removed, moves them by at most 1 in L2.

    A record's part has length at most 1 by construction. A subject's records are added up, and the sum is cut to
    length 1; so somebody with many records has as much say as somebody with one.
    """
    d = X.shape[1]
    # A record that cannot be used has no say; it cannot be told from an absent one.
    usable = np.asarray(np.isfinite(X).all(axis=1))
    codes = codes[usable]
    unit, relative = unit_vectors(X[usable], reference)
    weight = np.ones(len(unit)) if subject is None else _weights(unit, relative, codes, subject[usable], shares)
    out = np.zeros(shares.size(classes, d))
    sums, counts, lengths, products = shares.parts(out, classes, d)
    if shares.sums:
        table = sums.reshape(classes, d)
        np.add.at(table, codes, unit * weight[:, None])
        table *= np.sqrt(shares.sums)
    counts[:] = np.sqrt(shares.counts) * np.bincount(codes, weights=weight, minlength=classes)
    lengths[:] = np.sqrt(shares.lengths) * (relative @ weight)
    if shares.products:
        whole = unit.T @ (unit * weight[:, None])
        # Off the diagonal each product stands for two entries of the matrix: its length is then the matrix's.
        whole *= np.sqrt(2.0)
        np.fill_diagonal(whole, np.diagonal(whole) / np.sqrt(2.0))
        products[:] = np.sqrt(shares.products) * whole[np.triu_indices(d)]
    return out


def _weights(
    unit: Array, relative: Array, codes: npt.NDArray[np.int64], subject: npt.NDArray[np.int64], shares: Shares
) -> Array:
    """For each record what its subject's sums must be multiplied with to have length at most 1."""
    out = np.ones(len(unit))
    order = np.argsort(subject, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(subject[order])) + 1) if len(order) else ():
        u, same = unit[rows], codes[rows][:, None] == codes[rows][None, :]
        gram = u @ u.T
        # Squared lengths of the parts: sums and counts by class, lengths, and the matrix of products.
        square = (
            shares.sums * gram[same].sum()
            + shares.counts * same.sum()
            + shares.lengths * relative[rows].sum() ** 2
            + shares.products * np.square(gram).sum()
        )
        out[rows] = 1 / max(1.0, float(np.sqrt(square)))
    return out


def measured(noisy: Array, noise: float, classes: int, d: int, shares: Shares = MEANS) -> Measured:
    """Read noisy sums, with noise of standard deviation `noise` on each number. It costs nothing."""
    sums, seen, lengths, upper = shares.parts(noisy, classes, d)
    counts = np.maximum(_calmed(seen / np.sqrt(shares.counts), noise / np.sqrt(shares.counts)), _FEWEST)
    length = float(np.clip(lengths[0] / np.sqrt(shares.lengths) / counts.sum(), 0.1, 1.0)) * LONGEST * np.sqrt(d)
    means, error, products, std = None, np.zeros(classes), None, 0.0
    if shares.sums:
        means = sums.reshape(classes, d) / np.sqrt(shares.sums) / counts[:, None]
        error = np.square(noise / np.sqrt(shares.sums) / counts)
    if shares.products:
        products = np.zeros((d, d))
        products[np.triu_indices(d)] = upper / np.sqrt(2 * shares.products)
        products += products.T
        np.fill_diagonal(products, np.diagonal(products) / np.sqrt(2.0))
        std = noise / np.sqrt(2 * shares.products)
    return Measured(means, error, counts, length, products, std)


def _calmed(seen: Array, noise: float) -> Array:
    """Counts drawn towards their mean, by as much of their scatter as the noise explains.

    Where noise is as large as the counts differ, classes count as equally frequent: a class that seems empty by bad
    luck would get a mean many times too long.
    """
    centre, free = seen.mean(), max(len(seen) - 1, 1)
    scatter = float(np.square(seen - centre).sum()) / free
    keep = max(0.0, 1 - noise**2 / scatter) if scatter > 0 else 0.0
    out: Array = centre + keep * (seen - centre)
    return out
