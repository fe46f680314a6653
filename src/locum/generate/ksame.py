"""k-Same: every record is replaced by the mean of a group of k. The baseline of the replica paper.

`k_groups` forms the groups. It is exact: distances are integers, so groups depend neither on block sizes nor on
whether all distances fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.generate.base import BaseGenerator, Learned, Records
from locum.release import RowsSpec, to_space
from locum.types import PrivacyClaim

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

# Norms stay within 2**25 grid steps: then |a|^2 + |b|^2 + 2|ab| <= 2**52, and each partial sum of a
# matrix product is a whole number that float64 holds exactly. Distances are kept in sixteenths of a
# step, at most 2**30 of them: they fit int32, and a total fits int64 for any n.
_NORM_BITS = 25
_PER_STEP = 16

_ROWS = 2**14  # rows of groups that are widened to float64 at once
_BLOCK = 1024  # a block of distances in float64 is 8 MB: it stays in the cache while it is worked on
_PANEL = 512  # candidates considered together when the distances cannot all be kept
_FORGET = 0.9  # removed records are worked on until fewer than this share of all are free


class KSame(BaseGenerator):
    """Groups of at least `k` records, each replaced by its group's mean; every record keeps its own label.

    No record is dropped: the last group takes the rest. With `subject` a group holds at least `k` distinct subjects.
    A release has as many rows as there are records, sampled without replacement.

    Parameters
    ----------
    k
        Fewest records, or distinct subjects, in a group; 2 or more.
    per_class
        Form groups within each class; by default over all classes, as the authors do.
    space
        "raw", or "unit" for vectors scaled to length 1.
    privacy
        None: k-Same has no differential privacy.
    random_state
        Seed of sampling.

    Attributes
    ----------
    classes_
        The labels.
    claim_
        What a release claims: k-anonymity, and what it does not cover.

    Examples
    --------
    >>> from locum.generate import KSame
    >>> ksame = KSame(k=2).fit([[0.0], [1.0], [8.0], [9.0]], ["a", "a", "b", "b"])
    >>> X, y = ksame.sample()
    >>> sorted(X.ravel().tolist())
    [0.5, 0.5, 8.5, 8.5]
    """

    def __init__(
        self,
        k: int = 5,
        per_class: bool = False,
        space: str = "raw",
        privacy: Any = None,
        random_state: int | None = None,
    ) -> None:
        self.k = k
        self.per_class = per_class
        self.space = space
        self.privacy = privacy
        self.random_state = random_state

    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        if isinstance(self.k, bool) or not isinstance(self.k, (int, np.integer)) or self.k < 2:
            raise ConfigError(f"`k` must be a whole number, 2 or more; got {self.k!r}.")
        X, labels = records.X, records.codes[:, 0]
        means = np.empty_like(X)
        parts = [np.flatnonzero(labels == c) for c in np.unique(labels)] if self.per_class else [np.arange(len(X))]
        for rows in parts:
            subjects = None if records.subject is None else records.subject[rows]
            size = len(rows) if subjects is None else len(np.unique(subjects))
            if size < self.k:
                what = f"class {self.classes_[labels[rows[0]]]!r}" if self.per_class else "the data"
                unit = "records" if subjects is None else "subjects"
                remedy = "group over all classes (per_class=False)" if self.per_class else "choose a smaller k"
                raise DataError(f"k-Same needs at least k={self.k} {unit}; {what} has {size}: {remedy}.")
            means[rows] = _group_means(X[rows], k_groups(X[rows], int(self.k), subjects))
        # A mean of equal vectors is that vector, up to rounding.
        copied = (np.abs(means - X) <= 1e-6 * np.abs(X)).all(axis=1).any()
        means = to_space(means, self.space)
        # In the order of the data, a row's position would show whose group it is; sorting removes that for good.
        order = np.lexsort((labels, *means.T[:8]))
        claim = PrivacyClaim(
            kind="k-anonymity",
            k=int(self.k),
            unit="record" if records.subject is None else "subject",
            not_covered=(
                "labels: each record's own label is released beside its group's mean",
                "the number of records: the release has as many rows",
                "attackers who know other members of a group: they can subtract them from the mean",
                "a subject with most of the records of a group: the group's mean is nearly the subject's own",
                "membership: a record lies closer to its group's mean than non-members do",
            ),
        )
        settings = self._public_settings()
        refusal = (
            "A group of identical records would be released unchanged. Drop repeated records, or give `subject`."
            if copied
            else None
        )
        tensors: dict[str, npt.NDArray[Any]] = {"X": means[order], "codes": records.codes[order][:, :1]}
        return Learned(RowsSpec(), tensors, claim, settings, refusal)


def _group_means(X: npt.NDArray[np.float32], groups: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    # Sorted by group, rows of a group are added in their own order: the sums that a loop over records gives.
    order, counts = np.argsort(groups, kind="stable"), np.bincount(groups)
    ends = np.cumsum(counts)
    means = np.empty((len(counts), X.shape[1]), dtype=np.float32)
    first = 0
    while first < len(counts):
        start = ends[first] - counts[first]
        # Whole groups, and few rows in float64 at a time.
        last = max(first + 1, int(np.searchsorted(ends, start + _ROWS, side="right")))
        rows = X[order[start : ends[last - 1]]].astype(np.float64)
        sums = np.add.reduceat(rows, ends[first:last] - counts[first:last] - start, axis=0)
        means[first:last] = sums / counts[first:last, None]
        first = last
    return means[groups]


def k_groups(
    X: npt.ArrayLike,
    k: int,
    subject: npt.ArrayLike | None = None,
    *,
    max_bytes: int = 2**31,
) -> npt.NDArray[np.int64]:
    """Group number of each record, such that every group holds at least `k` distinct subjects.

    The free record with the largest total distance to all free records opens a group and takes the nearest free
    records of other subjects, one per subject, until `k` subjects are in it. This repeats while `k` subjects are
    free; the rest then joins the last group, so no record is dropped. Ties go to the lowest index. Without `subject`
    each record is its own subject: there are `n // k` groups, all of exactly `k` records except the last.

    Limits. Time grows with the square of `n`. Distances are Euclidean between vectors rounded to a grid of at most
    2**-24 of the largest norm (measured from the middle of each feature's range): one record a million times farther
    out than the rest blurs the rest. The last group can be large if few subjects own most records.

    Parameters
    ----------
    X
        Finite vectors (n, d).
    k
        Fewest distinct subjects in a group; 2 or more.
    subject
        The subject of each record: text or whole numbers. None: each record is its own subject.
    max_bytes
        If all distances fit in this many bytes (4 n^2) they are kept, otherwise recomputed when needed, which takes
        up to twice as long and gives the same groups in the memory of a few hundred distances per record. A float64
        copy of `X` is needed in both cases.

    Returns
    -------
    ndarray of shape (n,)
        Group numbers from 0, in the order in which groups were formed. Private: they depend on the data.

    Raises
    ------
    DataError
        If there are fewer than `k` subjects, or vectors are not finite.

    Examples
    --------
    >>> from locum.generate import k_groups
    >>> k_groups([[0.0], [0.1], [5.0], [5.1], [9.0]], k=2).tolist()
    [1, 1, 1, 0, 0]
    """
    k = _whole(k)
    points = _points(X)
    n = len(points)
    codes = np.arange(n) if subject is None else _subject_codes(subject, n)
    left = np.bincount(codes)
    distinct = len(left)
    if distinct < k:
        who = "records" if subject is None else f"distinct subjects (in {n} records)"
        raise DataError(f"Groups of {k} need at least {k} {who}; got {distinct}. Lower `k` or add data.")

    distances: _Distances = _Kept(points) if 4 * n * n <= max_bytes else _Recomputed(points, max_bytes)
    group = np.full(n, -1, dtype=np.int64)
    formed = 0
    while distinct >= k:
        members = _nearest(*distances.farthest(), codes, k)
        group[members] = formed
        formed += 1
        left[codes[members]] -= 1
        distinct -= int(np.count_nonzero(left[codes[members]] == 0))
        distances.remove(members)
    group[group < 0] = formed - 1
    return group


def _whole(k: object) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 2:
        raise ConfigError(f"`k` must be a whole number of 2 or more; got {k!r}. A group of 1 hides nothing.")
    return int(k)


def _points(X: npt.ArrayLike) -> _Floats:
    """Rows `q, |q|^2 / 2, 1`, where `q` is `X` in whole grid steps from the middle of its range."""
    a = np.asarray(X)
    if a.dtype.kind not in "fiub" or a.ndim != 2 or 0 in a.shape:
        raise DataError(f"`X` must be a table of numbers, records by features; got {a.dtype} of shape {a.shape}.")
    if not np.isfinite(a).all():
        bad = int(np.argmin(np.isfinite(a).all(axis=1)))
        raise DataError(f"`X` must be finite; record {bad} holds NaN or infinity. Drop or repair it.")
    points = np.empty((a.shape[0], a.shape[1] + 2))
    q, half = points[:, :-2], points[:, -2]
    # The middle of the range, unlike a mean, has no rounding that depends on the order of records.
    low, high = a.min(axis=0).astype(np.float64), a.max(axis=0).astype(np.float64)
    np.subtract(a, low / 2 + high / 2, out=q)
    # Powers of two only: data that lie on a grid (whole numbers, pixels) keep exact distances and ties.
    np.ldexp(q, -np.frexp(np.abs(q).max())[1], out=q)
    np.ldexp(q, _NORM_BITS - np.frexp(np.sqrt(np.einsum("ij,ij->i", q, q).max()))[1], out=q)
    np.rint(q, out=q)
    np.einsum("ij,ij->i", q, q, out=half)
    half /= 2
    points[:, -1] = 1
    return points


def _subject_codes(subject: npt.ArrayLike, n: int) -> _Ints:
    """Subjects as 0, 1, ...; a missing one is refused."""
    a = np.asarray(subject)
    if a.dtype.kind == "O" and all(isinstance(v, str) for v in a.ravel()):
        a = a.astype(np.str_)
    # A missing subject (NaN, None) may be anyone, so it cannot count toward k distinct ones.
    if a.dtype.kind not in "iubUS" or a.shape != (n,):
        raise DataError(
            f"`subject` must hold text or a whole number for each of {n} records; got {a.dtype} of shape {a.shape}."
        )
    return np.unique(a, return_inverse=True)[1].astype(np.int64)


def _nearest(free: _Ints, row: npt.NDArray[np.int32], codes: _Ints, k: int) -> _Ints:
    """The `free` records with the smallest distances in `row`, one per subject, `k` in total.

    The record that opens the group is among them: its distance is 0 and, since its duplicates have
    the same total, it comes first.
    """
    # Distance and index in one number: one partition then settles ties by index.
    keys = (row.astype(np.int64) << 32) | free
    size = k
    while True:
        size = min(size, len(keys))
        near = np.sort(np.partition(keys, size - 1)[:size]) & 0xFFFFFFFF
        first = np.unique(codes[near], return_index=True)[1]
        if len(first) >= k:
            return near[np.sort(first)[:k]]
        size *= 4


def _facing(b: _Floats) -> _Floats:
    """`b` such that its product with other points is the squared distance in sixteenths of a grid step."""
    right = b * (-2.0 * _PER_STEP**2)
    right[:, -2] = 2.0 * _PER_STEP**2
    right[:, -1] = 2.0 * _PER_STEP**2 * b[:, -2]
    return right


def _between(a: _Floats, b: _Floats) -> _Floats:
    """Distances from each of `a` to each of `b`, one of them `_facing`: whole sixteenths of a grid step."""
    out: _Floats = a @ b.T
    np.sqrt(out, out=out)
    return np.floor(out, out=out)


def _slices(n: int) -> Iterator[slice]:
    return (slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK))


class _Distances(Protocol):
    """Distances between free records, and which of them is farthest from the others."""

    def farthest(self) -> tuple[_Ints, npt.NDArray[np.int32]]:
        """All free records, and the distance to each from the one with the largest total."""
        ...

    def remove(self, members: _Ints) -> None:
        """These records are no longer free."""
        ...


class _Kept:
    """All distances, computed once; removed records are subtracted from the totals."""

    def __init__(self, points: _Floats) -> None:
        n = len(points)
        self._matrix = np.empty((n, n), dtype=np.int32)
        self._totals = np.zeros(n, dtype=np.int64)
        self._free = np.arange(n)
        _all_pairs(points, self._totals, self._matrix)

    def farthest(self) -> tuple[_Ints, npt.NDArray[np.int32]]:
        return self._free, self._matrix[np.argmax(self._totals)][self._free]

    def remove(self, members: _Ints) -> None:
        for i in members:
            self._totals -= self._matrix[i]
        self._totals[members] = -1  # below every free record, now and after later subtractions
        self._free = self._free[self._totals[self._free] >= 0]


def _all_pairs(points: _Floats, totals: _Ints, matrix: npt.NDArray[np.int32] | None) -> None:
    """Add each record's distances to `totals` and write them into `matrix`, each pair computed once."""
    n = len(points)
    for j in _slices(n):
        facing = _facing(points[j])
        for i in _slices(j.stop):
            block = _between(points[i], facing)
            totals[i] += block.sum(axis=1).astype(np.int64)
            if j != i:
                totals[j] += block.sum(axis=0).astype(np.int64)
            if matrix is not None:
                matrix[i, j] = block
                matrix[j, i] = block.T


class _Recomputed:
    """Distances from the few records with the largest totals; the others are updated only now and then.

    Totals can only fall. So the best of a panel of candidates is the best of all as long as it exceeds
    the largest total of any other record at the time the panel was chosen.
    """

    def __init__(self, points: _Floats, max_bytes: int) -> None:
        n = len(points)
        self._points = points
        self._index = np.arange(n)
        self._all_totals = np.zeros(n, dtype=np.int64)
        _all_pairs(points, self._all_totals, None)
        self._alive = np.ones(n, dtype=np.bool_)
        self._gone: list[_Ints] = []
        size = max(1, min(_PANEL, max_bytes // (8 * n)))  # two panels while removed records are forgotten
        # The place of each candidate, -1 for none, and its distances. Rows of candidates that stay are not moved.
        self._panel = np.full(size, -1, dtype=np.int64)
        self._rows = np.zeros((size, n), dtype=np.int32)
        self._choose_panel()

    def farthest(self) -> tuple[_Ints, npt.NDArray[np.int32]]:
        if self._totals.max() <= self._bound:
            self._choose_panel()  # its best is the best of all, even where it ties with the new bound
        best = np.flatnonzero(self._totals == self._totals.max())
        first = best[np.argmin(self._panel[best])]
        return self._index[self._alive], self._rows[first][self._alive]

    def remove(self, members: _Ints) -> None:
        places = np.searchsorted(self._index, members)
        self._alive[places] = False
        self._gone.append(places)
        self._totals -= self._rows[:, places].sum(axis=1, dtype=np.int64)
        self._totals[~self._alive[self._panel] | (self._panel < 0)] = -1

    def _choose_panel(self) -> None:
        """Update all totals and take the largest as candidates."""
        self._update_totals()
        # Copies of all points and rows: seldom enough to be cheap, often enough to spare work on removed records.
        if np.count_nonzero(self._alive) < _FORGET * len(self._alive):
            self._forget_removed()
        order = np.argsort(-self._all_totals, kind="stable")
        size, free = len(self._panel), np.count_nonzero(self._alive)
        chosen = order[: min(size, free)]
        self._bound = int(self._all_totals[order[size]]) if free > size else -1
        self._panel[~np.isin(self._panel, chosen)] = -1
        fresh = np.setdiff1d(chosen, self._panel)
        slots = np.flatnonzero(self._panel < 0)[: len(fresh)]
        self._panel[slots] = fresh
        facing = _facing(self._points[fresh])
        for i in _slices(len(self._index)):
            self._rows[slots, i] = _between(facing, self._points[i])
        self._totals = np.where(self._panel < 0, -1, self._all_totals[self._panel])

    def _update_totals(self) -> None:
        gone = self._points[np.concatenate(self._gone)] if self._gone else self._points[:0]
        for j in _slices(len(gone)):
            facing = _facing(gone[j])
            for i in _slices(len(self._index)):
                self._all_totals[i] -= _between(self._points[i], facing).sum(axis=1).astype(np.int64)
        self._all_totals[~self._alive] = -1  # below every free record
        self._gone = []

    def _forget_removed(self) -> None:
        alive = self._alive
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        self._panel = np.where(self._panel < 0, -1, place[self._panel])
        self._points, self._index, self._all_totals = self._points[alive], self._index[alive], self._all_totals[alive]
        self._rows = self._rows[:, alive]
        self._alive = np.ones(len(self._index), dtype=np.bool_)
