"""The query of private generators: one vector of sums that a unit moves by at most 1.

Vectors are whitened with public statistics and scaled to length 1, so that any record moves the sums by a known
amount. The sum and count of each class, one sum of lengths and, optionally, all products of two features go through
one Gaussian mechanism. `measured` reads the noisy result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.data import Reference

Array = npt.NDArray[np.float64]

# Lengths are clipped at this multiple of what the reference expects.
LONGEST = 3.0
# Lower bound on the count of a class: a noisy count can be negative.
_FEWEST = 5.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the squared sensitivity, which sum to 1. A part with share 0 is not queried.

    Parameters
    ----------
    sums
        For the sum of the vectors of each class.
    counts
        For the number of records of each class; above 0.
    lengths
        For the sum of the lengths of all vectors; above 0.
    products
        For the products of two features, summed over all vectors.

    Examples
    --------
    >>> from locum.generate.private import Shares
    >>> Shares(sums=0.9, counts=0.05, lengths=0.05).size(classes=3, d=10)  # 3 x 10 sums, 3 counts, 1 length
    34
    """

    sums: float
    counts: float
    lengths: float
    products: float = 0.0

    def size(self, classes: int, d: int) -> int:
        """Length of the vector of sums."""
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
    """Noisy sums as estimates for whitened vectors of length 1; no record is involved any more.

    Attributes
    ----------
    means
        Class means (classes, d); None if they were not queried.
    error
        The noise variance in each class's mean; 0 without means.
    counts
        The number of records of each class, at least 5.
    length
        The mean length of whitened vectors.
    products
        The summed products of two features (d, d); None if they were not queried.
    products_std
        The standard deviation of the noise in `products` off the diagonal; 0 without products.
    shares
        Class frequencies, from `counts`.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.private import COUNTS_ONLY, measured
    >>> found = measured(np.sqrt(0.5) * np.array([30.0, 10.0, 20.0]), 1e-6, 2, 4, COUNTS_ONLY)
    >>> found.shares.round(3).tolist(), found.means
    ([0.75, 0.25], None)
    """

    means: Array | None
    error: Array
    counts: Array
    length: float
    products: Array | None
    products_std: float

    @property
    def shares(self) -> Array:
        """Class frequencies."""
        out: Array = self.counts / self.counts.sum()
        return out


def unit_vectors(X: npt.NDArray[np.float32], reference: Reference) -> tuple[Array, Array]:
    """Whitened vectors of length 1, and their lengths as a share of the longest allowed.

    A record with a number that is not finite becomes the zero vector with length 0.

    Parameters
    ----------
    X
        Raw vectors (n, d).
    reference
        The public statistics to whiten with.

    Returns
    -------
    unit : ndarray of shape (n, d)
        Whitened vectors of length 1; a vector that is whitened to 0 stays 0.
    relative : ndarray of shape (n,)
        Lengths before scaling, divided by 3 sqrt(d) and clipped to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import unit_vectors
    >>> unit, relative = unit_vectors(np.array([[3.0, 4.0]], np.float32), load_reference("none", 2))
    >>> unit.tolist(), relative.tolist()
    ([[0.6, 0.8]], [1.0])
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

    The contribution of a record has length at most 1 by construction. The records of a subject are summed and the sum
    is clipped to length 1, so a subject with many records has no more influence than one with a single record. A
    record with a number that is not finite contributes nothing.

    Parameters
    ----------
    X
        Raw vectors (n, d).
    codes
        The class of each vector as a whole number from 0.
    subject
        The subject of each vector as a whole number, if the unit is the subject; None: each record is a unit.
    classes
        The number of classes.
    reference
        The public statistics to whiten with.
    shares
        The parts of the query.

    Returns
    -------
    ndarray
        Class sums, counts, lengths and products, each scaled by the root of its share. Private: without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import COUNTS_ONLY, query_sums
    >>> X, codes = np.array([[1, 1], [1, -1], [1, 1]], np.float32), np.array([0, 1, 0])
    >>> sums = query_sums(X, codes, None, 2, load_reference("none", 2), COUNTS_ONLY)
    >>> (sums / np.sqrt(0.5)).round(3).tolist()  # two records, one record, and lengths of a third each
    [2.0, 1.0, 1.0]
    """
    d = X.shape[1]
    # A record that cannot be used contributes nothing: it is indistinguishable from an absent one.
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
        matrix = unit.T @ (unit * weight[:, None])
        # Off the diagonal each product stands for two entries, so that the vector is as long as the matrix.
        matrix *= np.sqrt(2.0)
        np.fill_diagonal(matrix, np.diagonal(matrix) / np.sqrt(2.0))
        products[:] = np.sqrt(shares.products) * matrix[np.triu_indices(d)]
    return out


def _weights(
    unit: Array, relative: Array, codes: npt.NDArray[np.int64], subject: npt.NDArray[np.int64], shares: Shares
) -> Array:
    """Weight of each record that brings the sums of its subject to length at most 1."""
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
    """Estimates from noisy sums. It costs nothing.

    Parameters
    ----------
    noisy
        The noisy sums.
    noise
        The standard deviation of the noise on each number.
    classes, d
        The numbers of classes and of features.
    shares
        The parts of the query.

    Returns
    -------
    Measured
        Means, counts, length and products, as far as they were queried.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import measured, query_sums
    >>> X, codes = np.ones((40, 3), np.float32), np.repeat([0, 1], [30, 10])
    >>> sums = query_sums(X, codes, None, 2, load_reference("none", 3))
    >>> measured(sums, 1e-6, 2, 3).counts.round(3).tolist()
    [30.0, 10.0]
    """
    sums, seen, lengths, upper = shares.parts(noisy, classes, d)
    counts = np.maximum(_shrunk_counts(seen / np.sqrt(shares.counts), noise / np.sqrt(shares.counts)), _FEWEST)
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


def _shrunk_counts(seen: Array, noise: float) -> Array:
    """Counts shrunk toward their mean, by the part of their scatter that noise explains.

    If the noise is as large as the differences, classes count as equally frequent: a class that looks empty by chance
    would get a mean many times too long.
    """
    center, free = seen.mean(), max(len(seen) - 1, 1)
    scatter = float(np.square(seen - center).sum()) / free
    keep = max(0.0, 1 - noise**2 / scatter) if scatter > 0 else 0.0
    out: Array = center + keep * (seen - center)
    return out
