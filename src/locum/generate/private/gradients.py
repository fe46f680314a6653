"""What records contribute to a private head, in integers: a first query, class sums, and gradients of a softmax rule.

Every sum here moves by at most 1 in L2 if one unit is added or removed, and what a unit contributes depends, bit for
bit, on that unit and on public numbers alone: docs/explain/proofs.md, section 2, has the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.data import Reference
from locum.errors import ConfigError, PrivacyError
from locum.generate.private.query import Shares, sums_of_units
from locum.generate.private.units import recentered, unit_vectors
from locum.mechanisms import ExactSums

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A vector, and the residuals of a record, of length 1 are so many steps; a product of the two is on the grid of
# 2**36 steps. They stay a step below, so that rounding cannot reach the bound.
_BITS = 18
_GRID, _FULL = 2**_BITS, 2**_BITS - 1
# The step of the grid of class sums and gradients.
GRADIENT_STEP = 2.0 ** (-2 * _BITS)
# Rows at a time: a sum over as many products of at most 2**36 is exact in double precision, and stays in the cache.
_ROWS = 4096
# Scores of larger weights or offsets could not be told from infinite ones, and gradients divided by other bounds
# overflow: for some records only, so that a failure would tell about them.
_LARGEST_WEIGHT = 1e300
_LEAST_CLIP, _LARGEST_CLIP = 1e-100, 1e100
# The most records of one subject that are used: their first, in their order.
MOST_RECORDS = 64
# Coefficients of exp(x log 2) around 0: 2**x for x in 0..1 to nine digits.
_POWERS = tuple(np.log(2.0) ** k / float(np.prod(np.arange(1, k + 1))) for k in range(11, -1, -1))


@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxRule:
    """A public linear rule: the score of class c for a vector `a` is `weights[c] @ a + offsets[c]`.

    Parameters
    ----------
    weights
        One row per class (classes, d).
    offsets
        One number per class.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.private import SoftmaxRule
    >>> SoftmaxRule(np.zeros((2, 3)), np.log([0.5, 0.5])).weights.shape
    (2, 3)
    """

    weights: Array
    offsets: Array


class HeadQuery:
    """The records of a private head, prepared once; each method gives sums before the noise. Private.

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

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_reference
    >>> from locum.generate.private import HeadQuery
    >>> X, codes = np.array([[1, 0], [0, 1]], np.float32), np.array([0, 1])
    >>> query = HeadQuery(X, codes, None, 2, load_reference("none", 2))
    >>> query.recenter(np.zeros(2))
    >>> query.class_sums().to_array().round(4).tolist()
    [1.0, 0.0, 0.0, 1.0]
    """

    def __init__(
        self,
        X: npt.NDArray[np.float32],
        codes: npt.NDArray[np.int64],
        subject: npt.NDArray[np.int64] | None,
        classes: int,
        reference: Reference,
    ) -> None:
        # A record that cannot be used contributes nothing: it is indistinguishable from an absent one.
        keep = np.asarray(np.isfinite(X).all(axis=1))
        if subject is not None:
            keep &= _first_of_each(subject, MOST_RECORDS, keep)
        self._codes, self._classes = codes[keep], classes
        self._subject = None if subject is None else subject[keep]
        self._unit, self._relative = unit_vectors(X[keep], reference)
        self._whole = np.zeros((0, X.shape[1]))
        self._pairs: _Pairs | None = None
        # The share of the records whose last residuals were longer than the bound. Private.
        self.clipped = 0.0

    def first(self, shares: Shares) -> ExactSums:
        """The pooled sum of all vectors, the counts of the classes, and the sum of lengths."""
        return sums_of_units(
            lambda rows: (self._unit[rows], self._relative[rows]),
            self._codes,
            self._subject,
            self._classes,
            self._unit.shape[1],
            shares,
        )

    def recenter(self, center: Array) -> None:
        """Take a public center off the vectors and bring them to length 1 again; all later sums use these."""
        whole = recentered(self._unit, center)
        whole *= _FULL
        np.trunc(whole, out=whole)
        # Squares of whole numbers below 2**18 add up exactly.
        _check(np.einsum("ij,ij->i", whole, whole) <= _GRID**2)
        self._whole = whole
        self._pairs = None if self._subject is None else _Pairs(self._subject, whole)

    def class_sums(self) -> ExactSums:
        """The sum of the vectors of each class."""
        return self._sum(lambda rows: _one_hot(self._codes[rows], self._classes), 1.0)

    def gradient(self, rule: SoftmaxRule, clip: float) -> ExactSums:
        """The gradient of the softmax loss at a public rule, divided by `clip`; each unit's is cut to length 1.

        Parameters
        ----------
        rule
            The rule, which is public: it was made from noisy results only.
        clip
            The bound on the length of a unit's gradient.
        """
        if not all(np.abs(part).max(initial=0.0) < _LARGEST_WEIGHT for part in (rule.weights, rule.offsets)):
            raise ConfigError("The steps of the head diverged: use a smaller learning rate.")
        if not _LEAST_CLIP < clip < _LARGEST_CLIP:
            raise ConfigError(f"The bound on gradients must lie between 1e-100 and 1e100; got {clip!r}.")
        d = self._whole.shape[1]
        # So many bits that every partial sum of a score is a whole number below 2**53.
        bits = 53 - _BITS - int(np.ceil(np.log2(d + 1)))
        power = bits - int(np.frexp(np.abs(rule.weights).max(initial=2.0**-500))[1])
        weights = np.rint(np.ldexp(rule.weights, power))

        long = 0

        def residuals(rows: slice) -> Array:
            nonlocal long
            scores = np.ldexp(weights @ self._whole[rows].T, -power - _BITS)
            found = _softmax(scores + rule.offsets[:, None]) - _one_hot(self._codes[rows], self._classes)
            long += int((np.square(found).sum(axis=0) > clip * clip).sum())
            return found

        out = self._sum(residuals, 1.0 / clip)
        self.clipped = long / max(len(self._whole), 1)
        return out

    def _sum(self, residuals: Callable[[slice], Array], gain: float) -> ExactSums:
        """The sum over units of residuals times vectors, each unit's contribution cut to length 1."""
        n, d = self._whole.shape
        out = ExactSums(np.full(self._classes * d, GRADIENT_STEP))
        blocks = [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]
        if self._pairs is None:
            for rows in blocks:
                out.add(self._products(_cut(residuals(rows) * gain), rows))
            return out
        # A subject's records are spread over blocks: its bound needs all of their residuals.
        every = np.concatenate([residuals(rows) * gain for rows in blocks] or [np.zeros((self._classes, 0))], axis=1)
        whole = self._pairs.cut(every)
        for rows in blocks:
            out.add(self._products(whole[:, rows], rows))
        return out

    def _products(self, whole: Array, rows: slice) -> Integers:
        """Whole residuals times whole vectors, added up: exact in double precision."""
        return np.asarray(whole @ self._whole[rows]).astype(np.int64).ravel()


class _Pairs:
    """All pairs of records of one subject: the squared length of what a subject adds is a sum over its pairs."""

    def __init__(self, subject: npt.NDArray[np.int64], whole: Array) -> None:
        order = np.argsort(subject, kind="stable")
        _, starts, counts = np.unique(subject[order], return_index=True, return_counts=True)
        # Subjects with as many records together: the rows of each (subjects, records), and the products of any two of
        # its vectors, which do not change from step to step.
        self._groups: list[tuple[npt.NDArray[np.int64], Integers]] = []
        for size in np.unique(counts[counts > 1]).tolist():
            every = order[starts[counts == size][:, None] + np.arange(size)]
            step = max(1, _ROWS // size)
            for start in range(0, len(every), step):
                rows = every[start : start + step]
                vectors = whole[rows]
                # Whole numbers below 2**18: exact in double precision, whatever else is in the product.
                self._groups.append((rows, (vectors @ vectors.transpose(0, 2, 1)).astype(np.int64)))

    def cut(self, residuals: Array) -> Array:
        """Whole residuals (classes, n) such that no subject's sum of residuals times vectors is longer than 1."""
        # A subject with one record is like a record.
        out = _cut(residuals)
        for rows, alike in self._groups:
            out[:, rows] = _cut_subjects(residuals[:, rows], alike)
        return out


def _cut_subjects(residuals: Array, alike: Integers) -> Array:
    """Whole residuals (classes, subjects, records), each subject's scaled down until its sum is not longer than 1."""
    # No number larger than the grid, so that products of them fit into 64 bits.
    size = 1 / np.maximum(1.0, np.abs(residuals).max(axis=(0, 2), initial=0.0))
    out = np.zeros_like(residuals)
    left = np.arange(len(size))
    for _ in range(64):
        whole: Array = np.trunc(residuals[:, left] * (size[left] * _FULL)[None, :, None])
        high, rest, square = _lengths_squared(whole, alike[left])
        # At most 2**72, the square of the square of the grid.
        fits = (high < _GRID**2) | ((high == _GRID**2) & (rest == 0))
        out[:, left[fits]] = whole[:, fits]
        left = left[~fits]
        if not len(left):
            return out
        # Rounded down a little, so that the next one fits.
        size[left] *= np.minimum(_GRID**2 / np.sqrt(square[~fits]), 1.0) * (1 - 2.0**-12)
    _check(np.zeros(1, dtype=bool))
    return np.zeros_like(residuals)


def _lengths_squared(whole: Array, alike: Integers) -> tuple[Integers, Integers, Array]:
    """The squared length of each subject's sum of residuals times vectors: over all pairs of its records.

    It is `high * 2**36 + rest` in exact arithmetic, with `rest` below 2**36; the third is the same as a
    floating-point number.
    """
    own = whole.transpose(1, 2, 0)
    same = (own @ own.transpose(0, 2, 1)).astype(np.int64)
    # Halves whose products, added over all pairs, stay below 2**63.
    (a, b), (c, d) = ((matrix >> 18, matrix & (2**18 - 1)) for matrix in (same, alike))
    high, low = (a * c).sum(axis=(1, 2)), (b * d).sum(axis=(1, 2))
    middle = (a * d).sum(axis=(1, 2)) + (b * c).sum(axis=(1, 2)) + (low >> 18)
    high += middle >> 18
    rest = ((middle & (2**18 - 1)) << 18) + (low & (2**18 - 1))
    return high, rest, high * 2.0**36 + rest


def _cut(residuals: Array) -> Array:
    """Residuals (classes, n) of records, each cut to length 1 and truncated to whole numbers."""
    square = np.zeros(residuals.shape[1])
    # Class by class: adding along an axis may round differently for other numbers of rows.
    for row in residuals:
        square += row * row
    norm = np.sqrt(square)
    whole: Array = np.trunc(residuals * (_FULL / np.maximum(norm, 1.0)))
    _check(np.einsum("ij,ij->j", whole, whole) <= _GRID**2)
    return whole


def _softmax(scores: Array) -> Array:
    """Probabilities of classes (classes, n), by operations that round each entry by itself.

    A library's exponential may differ in the last bit with the place of a number in memory.
    """
    shifted = (scores - scores.max(axis=0)) * (1 / np.log(2.0))
    np.maximum(shifted, -1000.0, out=shifted)
    floor = np.floor(shifted)
    shifted -= floor
    power: Array = np.full_like(shifted, _POWERS[0])
    for coefficient in _POWERS[1:]:
        power *= shifted
        power += coefficient
    power = np.asarray(np.ldexp(power, floor.astype(np.int32)))
    total = np.zeros(scores.shape[1])
    for row in power:
        total += row
    power /= total
    return power


def _one_hot(codes: npt.NDArray[np.int64], classes: int) -> Array:
    out: Array = (codes[None, :] == np.arange(classes)[:, None]).astype(np.float64)
    return out


def _first_of_each(subject: npt.NDArray[np.int64], most: int, usable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The first so many usable records of each subject, in the order of its own records."""
    rows = np.flatnonzero(usable)
    order = rows[np.argsort(subject[rows], kind="stable")]
    first = np.zeros(len(subject), dtype=bool)
    _, starts, counts = np.unique(subject[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    first[order[place < most]] = True
    return first


def _check(within: npt.NDArray[np.bool_]) -> None:
    """Cannot fail; if it did, no noise would hide the unit."""
    if not within.all():
        raise PrivacyError("A contribution is longer than its bound: this is a bug in Locum, and nothing was used.")
