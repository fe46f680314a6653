"""What units contribute to the noisy draws of a private release, in floating point, without making the contributions.

The mechanisms sum integers (`exact_query`, `HeadQuery`); these are their twins for an attacker, who needs no exact
numbers: sums over any units, and the product of any sums with each unit's contribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from locum.data import Reference
from locum.errors import DataError
from locum.generate.private import (
    FIRST,
    MOST_RECORDS,
    Descent,
    Schedule,
    Shares,
    SoftmaxRule,
    recentered,
    reference_of,
    unit_vectors,
)
from locum.release import GaussianSpec, HeadSpec, Release

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]
Asked = TypeVar("Asked", covariant=True)


class Draw(Protocol):
    """One query over the units of an attacker."""

    def sums(self, inside: Masks) -> Floats:
        """The sums over the units that `inside` selects, before noise."""
        ...

    def products(self, sums: Floats) -> Floats:
        """Each unit's contribution times these sums."""
        ...

    def squares(self) -> Floats:
        """The squared length of each unit's contribution."""
        ...

    def gram(self) -> Floats:
        """The product of the contributions of any two units."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class NoisyDraw:
    """One noisy result of a release, the standard deviation of its noise, and the query behind it."""

    query: Draw
    result: Floats
    noise: float


class Units:
    """Which rows belong to which unit; a unit contributes the sum over its rows, cut to length 1."""

    def __init__(self, of: Codes, count: int | None = None) -> None:
        self.of, self.count = of, int(of.max(initial=-1)) + 1 if count is None else count
        order = np.argsort(of, kind="stable")
        found, starts, sizes = np.unique(of[order], return_index=True, return_counts=True)
        self.several = [
            (int(unit), order[start : start + size])
            for unit, start, size in zip(found, starts, sizes, strict=True)
            if size > 1
        ]

    def total(self, values: Floats) -> Floats:
        """Values of rows, added up over each unit."""
        return np.bincount(self.of, weights=values, minlength=self.count).astype(np.float64)

    def pairs(self, values: Floats) -> Floats:
        """Values of pairs of rows, added up over each pair of units."""
        from scipy.sparse import csr_array

        places = self.of, np.arange(len(self.of))
        member = csr_array((np.ones(len(self.of)), places), shape=(self.count, len(self.of)))
        return np.asarray(member @ (member @ values).T)


class Vectors:
    """Vectors of rows, and the products of any two, which are computed at most once."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows

    @cached_property
    def gram(self) -> Floats:
        """The products of any two vectors."""
        return np.asarray(self.rows @ self.rows.T)


class SumDraw:
    """Sums of vectors, counts, lengths and products of two features: the twin of `exact_query`."""

    def __init__(
        self,
        X: npt.NDArray[np.float32],
        codes: Codes,
        units: Units,
        classes: int,
        reference: Reference,
        shares: Shares,
    ) -> None:
        self._codes, self._units, self._classes, self._shares = codes, units, classes, shares
        self._unit, self._relative = unit_vectors(X, reference)
        s, square = shares, np.square(self._unit).sum(axis=1)
        alone = s.sums * square + s.counts + s.lengths * np.square(self._relative) + s.products * square**2
        squares = units.total(alone)
        for k, rows in units.several:
            gram, alike = self._unit[rows] @ self._unit[rows].T, codes[rows][:, None] == codes[rows]
            squares[k] = (
                s.sums * float(gram.sum() if s.pooled else gram[alike].sum())
                + s.counts * float(alike.sum())
                + s.lengths * float(self._relative[rows].sum()) ** 2
                + s.products * float(np.square(gram).sum())
            )
        cut = 1 / np.maximum(np.sqrt(squares), 1.0)
        self._squares, self._weight = squares * np.square(cut), cut[units.of]

    def sums(self, inside: Masks) -> Floats:
        """The sums over the units that `inside` selects, before noise."""
        rows, s, d = np.flatnonzero(inside[self._units.of]), self._shares, self._unit.shape[1]
        weight, codes, unit = self._weight[rows], self._codes[rows], self._unit[rows]
        out = np.zeros(s.size(self._classes, d))
        vectors, counts, lengths, products = s.parts(out, self._classes, d)
        if s.sums:
            group = np.zeros(len(rows)) if s.pooled else codes
            member = (group == np.arange(len(vectors) // d)[:, None]) * weight
            vectors[:] = math.sqrt(s.sums) * (member @ unit).ravel()
        counts[:] = math.sqrt(s.counts) * np.bincount(codes, weights=weight, minlength=self._classes)
        lengths[:] = math.sqrt(s.lengths) * float(weight @ self._relative[rows])
        if s.products:
            matrix = (unit * weight[:, None]).T @ unit
            # Off the diagonal a product of two features stands for two entries.
            products[:] = math.sqrt(s.products) * (matrix * _twice(d))[np.triu_indices(d)]
        return out

    def products(self, sums: Floats) -> Floats:
        """Each unit's contribution times these sums."""
        s, d = self._shares, self._unit.shape[1]
        vectors, counts, lengths, upper = s.parts(sums, self._classes, d)
        out = math.sqrt(s.counts) * counts[self._codes] + math.sqrt(s.lengths) * lengths[0] * self._relative
        if s.sums:
            table = vectors.reshape(-1, d)
            group = np.zeros_like(self._codes) if s.pooled else self._codes
            out = out + math.sqrt(s.sums) * np.einsum("ij,ij->i", self._unit, table[group])
        if s.products:
            matrix = np.zeros((d, d))
            matrix[np.triu_indices(d)] = upper
            # u.T M u counts each entry above the diagonal once, and the contribution has it times the root of two.
            out = out + math.sqrt(s.products) * np.einsum("ij,ij->i", self._unit @ (matrix * _twice(d)), self._unit)
        return self._units.total(self._weight * out)

    def squares(self) -> Floats:
        """The squared length of each unit's contribution."""
        return self._squares

    def gram(self) -> Floats:
        """The product of the contributions of any two units."""
        s, gram, alike = self._shares, self._unit @ self._unit.T, self._codes[:, None] == self._codes
        out = s.sums * (gram if s.pooled else gram * alike) + s.counts * alike
        out += s.lengths * np.outer(self._relative, self._relative) + s.products * np.square(gram)
        return self._units.pairs(out * np.outer(self._weight, self._weight))


class ProductDraw:
    """Sums over rows of residuals (n, classes) times vectors (n, d), each unit's cut to length 1.

    The product of two contributions is that of their residuals times that of their vectors.
    """

    def __init__(self, residuals: Floats, vectors: Vectors, units: Units) -> None:
        length = np.sqrt(np.square(residuals).sum(axis=1))
        cut = residuals / np.maximum(length, 1.0)[:, None]
        squares = units.total(np.square(cut).sum(axis=1) * np.square(vectors.rows).sum(axis=1))
        for k, rows in units.several:
            mine = residuals[rows]
            square = float(((mine @ mine.T) * (vectors.rows[rows] @ vectors.rows[rows].T)).sum())
            size = 1 / max(1.0, float(np.abs(mine).max()), math.sqrt(max(square, 0.0)))
            cut[rows], squares[k] = size * mine, size**2 * square
        self._residuals, self._vectors, self._units, self._squares = cut, vectors, units, squares

    def sums(self, inside: Masks) -> Floats:
        """The sums over the units that `inside` selects, before noise."""
        rows = inside[self._units.of]
        return np.asarray(self._residuals[rows].T @ self._vectors.rows[rows]).ravel()

    def products(self, sums: Floats) -> Floats:
        """Each unit's contribution times these sums."""
        along = self._vectors.rows @ sums.reshape(self._residuals.shape[1], -1).T
        return self._units.total(np.einsum("ij,ij->i", along, self._residuals))

    def squares(self) -> Floats:
        """The squared length of each unit's contribution."""
        return self._squares

    def gram(self) -> Floats:
        """The product of the contributions of any two units."""
        return self._units.pairs((self._residuals @ self._residuals.T) * self._vectors.gram)


class HeadDraws:
    """The queries of a private head over the units of an attacker: the twin of `HeadQuery`, with its methods."""

    def __init__(
        self, X: npt.NDArray[np.float32], codes: Codes, units: Units, classes: int, reference: Reference
    ) -> None:
        # Of a subject with many records only the first are used.
        used = np.ones(len(X), dtype=bool)
        for _, rows in units.several:
            used[rows[MOST_RECORDS:]] = False
        self._X, self._codes, self._classes, self._reference = X[used], codes[used], classes, reference
        self._units = units if used.all() else Units(units.of[used], units.count)
        self._unit, _ = unit_vectors(self._X, reference)
        self._vectors = Vectors(self._unit)

    def first(self, shares: Shares) -> Draw:
        """The pooled sum of all vectors, the counts of the classes, and the sum of lengths."""
        return SumDraw(self._X, self._codes, self._units, self._classes, self._reference, shares)

    def recenter(self, center: Floats) -> None:
        """Take a public center off the vectors and bring them to length 1 again."""
        self._vectors = Vectors(recentered(self._unit, center))

    def class_sums(self) -> Draw:
        """The sum of the vectors of each class."""
        return ProductDraw(np.eye(self._classes)[self._codes], self._vectors, self._units)

    def gradient(self, rule: SoftmaxRule, clip: float) -> Draw:
        """The gradient of the softmax loss at a public rule, divided by `clip`."""
        scores = self._vectors.rows @ rule.weights.T + rule.offsets
        power = np.exp(scores - scores.max(axis=1, keepdims=True))
        residuals = power / power.sum(axis=1, keepdims=True) - np.eye(self._classes)[self._codes]
        return ProductDraw(residuals / clip, self._vectors, self._units)


class HeadQueries(Protocol[Asked]):
    """The queries of a private head over some records: `HeadQuery` or `HeadDraws`."""

    def first(self, shares: Shares) -> Asked: ...
    def recenter(self, center: Floats) -> None: ...
    def class_sums(self) -> Asked: ...
    def gradient(self, rule: SoftmaxRule, clip: float) -> Asked: ...


def next_query(queries: HeadQueries[Asked], descent: Descent) -> Asked:
    """The query that is due, at the public numbers of the results so far."""
    if descent.taken == 0:
        return queries.first(FIRST)
    if descent.taken == 1:
        queries.recenter(descent.center)
        return queries.class_sums()
    return queries.gradient(descent.rule, descent.clip)


def noisy_draws(
    release: Release, X: npt.NDArray[np.float32], codes: Codes, units: Units, reference: str | None = None
) -> list[NoisyDraw]:
    """All noisy draws that a release holds, over an attacker's records; none if it holds none.

    What a record contributes to a draw depends on the results before it, which the release holds: no shadow has to
    repeat them. `reference` is the file of public statistics that do not ship with Locum.
    """
    decoder, classes, d = release.manifest.decoder, len(release.manifest.classes), X.shape[1]
    out: list[NoisyDraw] = []
    if not isinstance(decoder, GaussianSpec):
        return out
    if (spec := decoder.statistics) is not None:
        query = SumDraw(X, codes, units, classes, reference_of(spec, d, reference), Shares(*spec.shares))
        out.append(NoisyDraw(query, release.tensors["statistics"].astype(np.float64), spec.noise))
    if decoder.head is not None:
        queries = HeadDraws(X, codes, units, classes, reference_of(decoder.head, d, reference))
        out += _replayed(decoder.head, queries, release.tensors["transcript"].astype(np.float64), classes, d)
    return out


def _replayed(spec: HeadSpec, queries: HeadDraws, numbers: Floats, classes: int, d: int) -> list[NoisyDraw]:
    schedule = Schedule(**{field.name: getattr(spec, field.name) for field in fields(Schedule)})
    descent, out = Descent(spec.noise, classes, d, schedule), []
    while not descent.done:
        # Anyone can write a schedule.
        if not descent.share > 0:
            raise DataError("its schedule spends more precision than there is")
        result, numbers = numbers[: descent.size], numbers[descent.size :]
        # What is not finite is seen later, in the products.
        with np.errstate(all="ignore"):
            out.append(NoisyDraw(next_query(queries, descent), result, spec.noise / math.sqrt(descent.share)))
            descent.take(result)
    return out


def _twice(d: int) -> Floats:
    """The root of two off the diagonal, 1 on it."""
    out: Floats = np.full((d, d), math.sqrt(2.0))
    np.fill_diagonal(out, 1.0)
    return out
