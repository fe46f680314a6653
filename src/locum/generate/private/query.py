"""The query of private generators: one vector of sums that a unit moves by at most 1.

Vectors are whitened with public statistics and scaled to length 1, so that any record moves the sums by a known
amount. The sum and count of each class, one sum of lengths and, optionally, all products of two features go through
one Gaussian mechanism, as integers: docs/explain/proofs.md has the proof. `measured` reads the noisy result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from locum.data import Reference
from locum.errors import PrivacyError
from locum.generate.private.units import LONGEST, unit_vectors
from locum.mechanisms import ExactSums

Array = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", npt.NDArray[np.float64], npt.NDArray[np.int64])

# Length 1 is so many steps of the grid; contributions stay a step below, so that rounding cannot reach it.
_GRID, _FULL = 2**30, 2**30 - 1
# The same for vectors whose products are taken: a product is on the grid of 2**36 steps.
_GRID_PRODUCT, _FULL_PRODUCT = 2**18, 2**18 - 1
# Records at a time: few enough to stay in the cache, and their sums of products stay far below 2**53, where
# floating point is exact.
_ROWS = 512
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
    pooled
        Sum the vectors of all classes together: one sum instead of one per class.

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
    pooled: bool = field(default=False, kw_only=True)

    def size(self, classes: int, d: int) -> int:
        """Length of the vector of sums."""
        return sum(stop - start for start, stop in self._edges(classes, d))

    def _edges(self, classes: int, d: int) -> list[tuple[int, int]]:
        wanted = (
            (self.sums, d if self.pooled else classes * d),
            (self.counts, classes),
            (self.lengths, 1),
            (self.products, d * (d + 1) // 2),
        )
        ends = np.cumsum([size if share else 0 for share, size in wanted]).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def steps(self, classes: int, d: int) -> Array:
        """The step of the grid for each of the sums, so that a unit moves them by at most 1 in all."""
        out = np.empty(self.size(classes, d))
        sums, counts, lengths, products = self.parts(out, classes, d)
        for part, share in ((sums, self.sums), (counts, self.counts), (lengths, self.lengths)):
            part[:] = math.sqrt(share) / _GRID
        if self.products:
            # Off the diagonal each product stands for two entries, so that the vector is as long as the matrix.
            diagonal = np.equal(*np.triu_indices(d))
            products[:] = np.where(diagonal, 1.0, math.sqrt(2.0)) * math.sqrt(self.products) / _GRID_PRODUCT**2
        return out

    def parts(self, vector: Numbers, classes: int, d: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
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
        Class means (classes, d), or the one mean of all classes (1, d); None if they were not queried.
    error
        The noise variance of each mean; 0 without means.
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
    return exact_query(X, codes, subject, classes, reference, shares).to_array()


def exact_query(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    reference: Reference,
    shares: Shares = MEANS,
) -> ExactSums:
    """The sums before the noise, as integers on a grid; parameters as in `query_sums`.

    What a unit adds is a vector of integers that depends, bit for bit, on that unit and public numbers alone. Its
    length is at most 1, checked in whole numbers.

    Parameters
    ----------
    X, codes, subject, classes, reference, shares
        As in `query_sums`.

    Returns
    -------
    ExactSums
        The integers, and the step of each. Private: without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import COUNTS_ONLY, exact_query
    >>> X, codes = np.ones((3, 2), np.float32), np.array([0, 1, 0])
    >>> exact_query(X, codes, None, 2, load_reference("none", 2), COUNTS_ONLY).integers[:2] // (2**30 - 1)
    array([2, 1])
    """
    # A record that cannot be used contributes nothing: it is indistinguishable from an absent one.
    usable = np.asarray(np.isfinite(X).all(axis=1))
    X, codes, subject = X[usable], codes[usable], None if subject is None else subject[usable]
    return sums_of_units(lambda rows: unit_vectors(X[rows], reference), codes, subject, classes, X.shape[1], shares)


def sums_of_units(
    units: Callable[[npt.NDArray[np.int64]], tuple[Array, Array]],
    codes: npt.NDArray[np.int64],
    subject: npt.NDArray[np.int64] | None,
    classes: int,
    d: int,
    shares: Shares,
) -> ExactSums:
    """The sums of `exact_query`, over records whose whitened vectors and lengths `units` returns, by their rows."""
    out, n = ExactSums(shares.steps(classes, d)), len(codes)
    # Subjects with one record are like records; the others are taken one by one.
    order = np.arange(n) if subject is None else np.argsort(subject, kind="stable")
    several = np.zeros(n, dtype=bool)
    groups: list[npt.NDArray[np.int64]] = []
    if subject is not None and len(order):
        split = np.split(order, np.flatnonzero(np.diff(subject[order])) + 1)
        groups = [rows for rows in split if len(rows) > 1]
        for rows in groups:
            several[rows] = True
    singles = np.flatnonzero(~several)
    for start in range(0, len(singles), _ROWS):
        rows = singles[start : start + _ROWS]
        out.add(_of_records(*units(rows), codes[rows], classes, shares))
    for rows in groups:
        out.add(_of_subject(*units(rows), codes[rows], classes, shares))
    return out


def _of_records(
    unit: Array, relative: Array, codes: npt.NDArray[np.int64], classes: int, shares: Shares
) -> npt.NDArray[np.int64]:
    """What records add, each a unit: whole numbers, which floating point adds without error below 2**53."""
    d = unit.shape[1]
    out = np.zeros(shares.size(classes, d), dtype=np.int64)
    sums, counts, lengths, products = shares.parts(out, classes, d)
    if shares.sums:
        cut = np.trunc(unit * _FULL)
        _check((_squares(cut) <= _GRID**2).all())
        group, groups = _groups(codes, classes, shares)
        member = (group[None, :] == np.arange(groups)[:, None]).astype(np.float64)
        sums[:] = (member @ cut).astype(np.int64).ravel()
    counts[:] = _FULL * np.bincount(codes, minlength=classes)
    cut = np.trunc(relative * _FULL)
    _check(((cut >= 0) & (cut <= _GRID)).all())
    lengths[:] = int(cut.sum())
    if shares.products:
        cut = np.trunc(unit * _FULL_PRODUCT)
        _check((np.square(cut).sum(axis=1) <= _GRID_PRODUCT**2).all())
        products[:] = (cut.T @ cut)[_upper(d)].astype(np.int64)
    return out


@lru_cache(maxsize=4)
def _upper(d: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The places on and above the diagonal."""
    return np.triu_indices(d)


def _of_subject(
    unit: Array, relative: Array, codes: npt.NDArray[np.int64], classes: int, shares: Shares
) -> npt.NDArray[np.int64]:
    """What one subject adds: the sum over its records, cut to length 1, then truncated to whole numbers."""
    d = unit.shape[1]
    group, groups = _groups(codes, classes, shares)
    present, gathered = np.unique(codes), np.unique(group)
    # Sums over its own records, in their order.
    sums = np.stack([unit[group == g].sum(axis=0) for g in gathered])
    counts, length = np.bincount(codes, minlength=classes)[present], float(relative.sum())
    square = shares.counts * float(np.square(counts).sum()) + shares.lengths * length**2
    square += shares.sums * float(sum(np.square(row).sum() for row in sums))
    if shares.products:
        gram = np.trunc(unit * _FULL_PRODUCT)
        square += shares.products * float(np.square(gram @ gram.T / _GRID_PRODUCT**2).sum())
    weight = 1 / max(1.0, math.sqrt(square))
    # Truncating products can make the sum longer by a little: then a little is taken off.
    for _ in range(64):
        whole_sums = np.trunc(sums * (weight * _FULL)).astype(np.int64)
        whole_counts = np.trunc(counts * (weight * _FULL)).astype(np.int64)
        whole_length = math.trunc(length * (weight * _FULL))
        rows = np.trunc(unit * (math.sqrt(weight) * _FULL_PRODUCT))
        if _fits(whole_sums, whole_counts, whole_length, rows, shares):
            break
        weight *= 1 - 2**-14
    else:
        _check(False)
    out = np.zeros(shares.size(classes, d), dtype=np.int64)
    part_sums, part_counts, part_lengths, part_products = shares.parts(out, classes, d)
    if shares.sums:
        part_sums.reshape(groups, d)[gathered] = whole_sums
    part_counts[present] = whole_counts
    part_lengths[:] = whole_length
    if shares.products:
        part_products[:] = (rows.T @ rows)[_upper(d)].astype(np.int64)
    return out


def _groups(codes: npt.NDArray[np.int64], classes: int, shares: Shares) -> tuple[npt.NDArray[np.int64], int]:
    """Which sum each record's vector goes into, and how many sums there are."""
    return (np.zeros_like(codes), 1) if shares.pooled else (codes, classes)


def _fits(
    sums: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], length: int, rows: Array, shares: Shares
) -> bool:
    """Whether the length of a subject's contribution is at most 1, in exact arithmetic."""
    squares = [
        Fraction(shares.sums) * _square(sums.ravel()),
        Fraction(shares.counts) * _square(counts),
        Fraction(shares.lengths) * length**2,
    ]
    total = sum(squares) / _GRID**2
    if shares.products:
        # The squared length of a sum of products of rows is the sum of the squared products of all pairs of rows.
        gram = (rows @ rows.T).astype(np.int64).ravel().tolist()
        total += Fraction(shares.products) * sum(value**2 for value in gram) / _GRID_PRODUCT**4
    return total <= 1


def _squares(rows: Array) -> npt.NDArray[np.int64]:
    """Squared lengths of rows of whole numbers up to 2**30: halves have exact sums of squares in floating point."""
    high = np.trunc(rows * 2.0**-15)
    low = rows - high * 2.0**15
    parts = [np.einsum("ij,ij->i", a, b).astype(np.int64) for a, b in ((high, high), (high, low), (low, low))]
    out: npt.NDArray[np.int64] = (parts[0] << 30) + (parts[1] << 16) + parts[2]
    return out


def _square(numbers: npt.NDArray[np.int64]) -> int:
    """The sum of squares of whole numbers below 2**36, in halves that fit into 64 bits."""
    high, low = numbers >> 15, numbers & 32767
    return (int(high @ high) << 30) + (int(high @ low) << 16) + int(low @ low)


def _check(within: bool | np.bool_) -> None:
    """Cannot fail; if it did, no noise would hide the unit."""
    if not within:
        raise PrivacyError("A contribution is longer than its bound: this is a bug in Locum, and nothing was used.")


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
        size = counts.sum(keepdims=True) if shares.pooled else counts
        means = sums.reshape(len(size), d) / np.sqrt(shares.sums) / size[:, None]
        error = np.square(noise / np.sqrt(shares.sums) / size)
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
