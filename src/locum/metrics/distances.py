"""Exact nearest records in bounded memory, and how close released vectors come to real records.

Every pair is screened by a float32 product with a proven bound of its error; the few pairs that may be among the
nearest are measured in float64, each alone. So results do not depend, bit for bit, on how the work is divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._threads import in_threads
from locum.errors import ConfigError
from locum.metrics._checks import FloatArray, IntArray, at_least, same_width, table
from locum.metrics.intervals import mean_interval
from locum.types import Estimate

_CHUNK = 8192
# Scores of so many reference records and queries are held at a time: 4 MB per thread stay in the cache.
_ROWS, _QUERIES = 2048, 512
# Only the largest score of so many reference records is looked at, unless it is high enough.
_GROUP = 64
# With more candidates than this per query, float32 cannot tell them apart.
_CROWD = 32
# Products of fewer numbers are not worth threads.
_LARGE = 2**28
_UNDERFLOW = 2.0**-126


def nearest(
    queries: npt.ArrayLike, reference: npt.ArrayLike, *, exclude_self: bool = False, chunk: int = _CHUNK
) -> tuple[npt.NDArray[np.float64], IntArray]:
    """Distance and position of the nearest reference record, for each query.

    Exact: a copy has distance 0, and of equally near records the first is returned, bit for bit the same whatever the
    chunk and the number of threads.

    Work space is under 8 d `chunk` bytes plus 50 MB per thread, whatever the number of records. Time is that of one
    float32 matrix product. Many records that differ by less than 1e-4 of the spread of the data cost one more
    product, in float64.

    Parameters
    ----------
    queries
        Finite vectors (n, d).
    reference
        Finite vectors (m, d) to search.
    exclude_self
        `queries` and `reference` are the same table: record i is never its own neighbor, but a duplicate of it at
        another position can be.
    chunk
        How many reference records are compared at a time; it changes memory, not the result.

    Returns
    -------
    distances : ndarray of shape (n,)
        Euclidean distances, float64.
    positions : ndarray of shape (n,)
        Row numbers in `reference`.

    Examples
    --------
    >>> from locum.metrics import nearest
    >>> nearest([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [9.0, 9.0]])
    (array([0., 5.]), array([0, 0]))
    """
    distances, indices = k_nearest(queries, reference, 1, exclude_self=exclude_self, chunk=chunk)
    return distances[:, 0], indices[:, 0]


def k_nearest(
    queries: npt.ArrayLike, reference: npt.ArrayLike, k: int, *, exclude_self: bool = False, chunk: int = _CHUNK
) -> tuple[npt.NDArray[np.float64], IntArray]:
    """Distances and positions of the `k` nearest reference records, nearest first.

    Like `nearest`, and hardly slower for small `k` above 1.

    Parameters
    ----------
    queries
        Finite vectors (n, d).
    reference
        Finite vectors (m, d) to search.
    k
        How many neighbors, from 1 to m (m - 1 with `exclude_self`).
    exclude_self
        `queries` and `reference` are the same table: record i is never its own neighbor.
    chunk
        How many reference records are compared at a time; it changes memory, not the result.

    Returns
    -------
    distances : ndarray of shape (n, k)
        Euclidean distances, float64.
    positions : ndarray of shape (n, k)
        Row numbers in `reference`.

    Examples
    --------
    >>> from locum.metrics import k_nearest
    >>> k_nearest([[0.0]], [[5.0], [1.0], [-2.0]], 2)
    (array([[1., 2.]]), array([[1, 2]]))
    """
    q, r = table("queries", queries), table("reference", reference)
    same_width("queries", q, "reference", r)
    at_least("k", k, 1)
    at_least("chunk", chunk, 1)
    if exclude_self and q.shape != r.shape:
        raise ConfigError(
            f"`exclude_self` needs the same table twice; got shapes {q.shape} and {r.shape}. Pass exclude_self=False."
        )
    if k > len(r) - exclude_self:
        raise ConfigError(f"`k` must be at most the {len(r) - exclude_self} records to choose from; got {k}.")
    search = _Search(q, k, r.mean(axis=0, dtype=np.float64).astype(np.float32))
    search.add(r, chunk, exclude_self=exclude_self)
    return search.distances, search.positions


def k_nearest_of_blocks(
    queries: npt.ArrayLike, blocks: Iterable[npt.ArrayLike], k: int, *, chunk: int = _CHUNK
) -> tuple[npt.NDArray[np.float64], IntArray]:
    """`k_nearest` in a reference that comes block by block, such as the pieces of `Batches`.

    The result is that of `k_nearest` in all blocks together, bit for bit, whatever the blocks. One block is held at a
    time.

    Parameters
    ----------
    queries
        Finite vectors (n, d).
    blocks
        Finite vectors of d features to search, in tables of any lengths; each table is used once.
    k
        How many neighbors, from 1 to the number of vectors in all blocks.
    chunk
        How many reference records are compared at a time; it changes memory, not the result.

    Returns
    -------
    distances : ndarray of shape (n, k)
        Euclidean distances, float64.
    positions : ndarray of shape (n, k)
        Row numbers, counted through all blocks.

    Examples
    --------
    >>> from locum.metrics import k_nearest_of_blocks
    >>> k_nearest_of_blocks([[0.0]], ([[x]] for x in (5.0, 1.0, -2.0)), 2)
    (array([[1., 2.]]), array([[1, 2]]))
    """
    q = table("queries", queries)
    at_least("k", k, 1)
    at_least("chunk", chunk, 1)
    search = None
    for block in blocks:
        if not len(np.asarray(block)):
            continue
        r = table("blocks", block)
        same_width("queries", q, "blocks", r)
        if search is None:
            search = _Search(q, k, r.mean(axis=0, dtype=np.float64).astype(np.float32))
        search.add(r, chunk)
    count = 0 if search is None else search.count
    if search is None or k > count:
        raise ConfigError(f"`k` must be at most the {count} records to choose from; got {k}.")
    return search.distances, search.positions


def pair_distances(
    a: FloatArray, b: FloatArray, rows_a: npt.NDArray[np.integer], rows_b: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """|a[i] - b[j]| for given pairs (i, j) in float64: no cancellation, no n by m matrix.

    >>> pair_distances(np.eye(2), np.zeros((1, 2)), np.array([0, 1]), np.array([0, 0]))
    array([1., 1.])
    """
    out = np.empty(len(rows_a))
    step = max(1, 2**18 // a.shape[1])
    for s in range(0, len(out), step):
        gap = np.subtract(a[rows_a[s : s + step]], b[rows_b[s : s + step]], dtype=np.float64)
        # Each row alone: einsum joins rows in its buffer, and then the sum of over 8,192 features changes.
        out[s : s + step] = np.sqrt(np.square(gap, out=gap).sum(axis=1))
    return out


def squared_distances(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """All squared distances between two small float64 tables, preferably centered; n by m in memory.

    Accurate to about 1e-16 of the squared norms: near-duplicates lose digits, but never fall below 0.

    Parameters
    ----------
    a, b
        Vectors (n, d) and (m, d). They are not checked.

    Returns
    -------
    ndarray of shape (n, m)
        Squared Euclidean distances.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import squared_distances
    >>> squared_distances(np.array([[0.0], [1.0]]), np.array([[3.0]]))
    array([[9.],
           [4.]])
    """
    out = a @ b.T
    out *= -2.0
    out += np.einsum("ij,ij->i", a, a)[:, None]
    out += np.einsum("ij,ij->i", b, b)
    return np.maximum(out, 0.0, out=out)


@dataclass(slots=True, eq=False)
class _Block:
    """A few reference records, ready to be compared: shifted vectors and their largest norms."""

    rows: FloatArray
    start: int
    shift: npt.NDArray[np.float32]
    extended: npt.NDArray[np.float32]
    norms: npt.NDArray[np.float32]
    _copies: IntArray | None = field(default=None, init=False)

    @classmethod
    def of(cls, rows: FloatArray, start: int, shift: npt.NDArray[np.float32]) -> _Block:
        """Vectors with one more column, so that the product with a query is q.r - |r|^2/2: highest is nearest."""
        out = _shifted(rows, shift)
        square = np.einsum("ij,ij->i", out[:, :-1], out[:, :-1])
        out[:, -1] = -0.5 * square
        # One norm per group: a record far from all others widens the error bound of its own group only.
        largest = np.maximum.reduceat(square, np.arange(0, len(rows), _GROUP))
        return cls(rows, start, shift, out, np.sqrt(largest))

    def copy_numbers(self) -> IntArray:
        """How many earlier rows of the block equal each row: without copies, true ties are few."""
        if self._copies is None:
            # Adding 0 turns -0 into 0.
            plain = np.ascontiguousarray(self.rows + self.rows.dtype.type(0))
            keys = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1]))).ravel()
            _, kind, sizes = np.unique(keys, return_inverse=True, return_counts=True)
            order = np.argsort(kind, kind="stable")
            numbers = np.empty(len(keys), dtype=np.int64)
            numbers[order] = np.arange(len(keys)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            self._copies = numbers
        return self._copies


def _shifted(x: FloatArray, shift: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Vectors around a common point, with one more column of ones: near 0, products lose the fewest digits."""
    out = np.empty((len(x), x.shape[1] + 1), dtype=np.float32)
    np.subtract(x, shift, out=out[:, :-1], casting="same_kind")
    out[:, -1] = 1.0
    return out


class _Search:
    """The best so far of each query, over all reference records that were added."""

    def __init__(self, queries: FloatArray, k: int, shift: npt.NDArray[np.float32]) -> None:
        self.count = 0
        self.distances = np.full((len(queries), k), np.inf)
        self.positions = np.full((len(queries), k), -1, dtype=np.int64)
        self._q, self._k, self._shift = queries, k, shift

    def add(self, r: FloatArray, chunk: int, *, exclude_self: bool = False) -> None:
        """Compare all queries with more reference records; all work on one query is done by one thread."""
        starts = range(0, len(self._q), _QUERIES)
        for j in range(0, len(r), chunk):
            part = r[j : j + chunk]
            blocks = [_Block.of(part[i : i + _ROWS], self.count + i, self._shift) for i in range(0, len(part), _ROWS)]

            def compare(start: int, blocks: list[_Block] = blocks) -> None:
                self._compare(slice(start, min(start + _QUERIES, len(self._q))), blocks, exclude_self)

            if len(starts) > 1 and len(self._q) * part.size > _LARGE:
                in_threads(compare, starts)
            else:
                for start in starts:
                    compare(start)
            self.count += len(part)

    def _compare(self, here: slice, blocks: list[_Block], exclude_self: bool) -> None:
        """Compare some queries with some reference records, and keep the nearest."""
        own, q = self._q[here], _shifted(self._q[here], self._shift)
        square = np.einsum("ij,ij->i", q[:, :-1], q[:, :-1], dtype=np.float64)
        best_d, best_i = self.distances[here], self.positions[here]
        scores = np.empty((-(-max(len(b.rows) for b in blocks) // _GROUP) * _GROUP, len(q)), dtype=np.float32)
        for block in blocks:
            n = len(block.rows)
            tile = scores[: -(-n // _GROUP) * _GROUP]
            np.matmul(block.extended, q.T, out=tile[:n])
            tile[n:] = -np.inf
            if exclude_self:
                both = np.arange(max(here.start, block.start), min(here.stop, block.start + n))
                tile[both - block.start, both - here.start] = -np.inf
            cols, rows, crowded = _candidates(tile, square, block.norms, best_d, q.shape[1] - 1)
            found = [(cols, rows)] if len(cols) else []
            for cols, rows in (*found, *_settle(own, block, tile, crowded, best_d)):
                distances = pair_distances(own, block.rows, cols, rows)
                _merge(best_d, best_i, cols, rows + block.start, distances)


def _candidates(
    tile: npt.NDArray[np.float32],
    square: npt.NDArray[np.float64],
    norms: npt.NDArray[np.float32],
    best: npt.NDArray[np.float64],
    d: int,
) -> tuple[IntArray, IntArray, IntArray]:
    """Queries and rows of the pairs that may be among the k nearest, and the queries with too many.

    `tile` holds scores of rows by queries. The error of a score is below `slack`: d + 16 roundings, each at most one
    unit of the largest term. A pair is left out only if k others beat it by more than both errors, and a group of
    rows if its largest score does.
    """
    k, unit = best.shape[1], np.float32(2.0**-24)
    groups = tile.reshape(-1, _GROUP, tile.shape[1])
    top = groups.max(axis=1)
    slack = np.square(np.sqrt(square).astype(np.float32) + norms[:, None])
    slack *= (d + 16) * unit
    slack += np.float32((d + 16) * _UNDERFLOW)
    upper = top + slack
    # What the best so far leaves open, rounded down.
    kth = np.square(best[:, -1])
    with np.errstate(invalid="ignore"):
        floor = ((square - kth) / 2 - 4 * unit * (square + kth)).astype(np.float32)
    floor[np.isnan(floor)] = -np.inf
    # Nothing beats distance 0: queries that have found k copies are done.
    active = np.flatnonzero((upper.max(axis=0) >= floor) & (best[:, -1] > 0))
    if k == 1:
        floor[active] = np.maximum(floor[active], (top - slack)[:, active].max(axis=0))
    elif len(active):
        # Partitioning is expensive: only where earlier results do not rule out enough.
        many = active[np.count_nonzero(upper[:, active] >= floor[active], axis=0) > min(k, len(top) - 1)]
        # The k-th of the largest scores of groups is no higher than the k-th of all scores.
        lower = (top - slack)[:, many].T
        if k > len(top):
            lower = (groups[:, :, many] - slack[:, None, many]).reshape(len(tile), len(many)).T
        if k <= lower.shape[1]:
            floor[many] = np.maximum(floor[many], np.partition(lower, lower.shape[1] - k, axis=1)[:, -k])
    group, col = np.nonzero(upper[:, active] >= floor[active])
    col = active[col]
    near = groups[group, :, col] + slack[group, col, None]
    pair, row = np.nonzero((near >= floor[col, None]) & (near > -np.inf))
    rows, cols = _GROUP * group[pair] + row, col[pair]
    crowd = np.bincount(cols, minlength=tile.shape[1]) > _CROWD * k
    plain = ~crowd[cols]
    return cols[plain], rows[plain], np.flatnonzero(crowd)


def _settle(
    q: FloatArray, block: _Block, tile: npt.NDArray[np.float32], crowded: IntArray, best: npt.NDArray[np.float64]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Candidates of crowded queries by float64 scores, a few queries at a time.

    Rows that are still tied are all candidates, except for copies of one row: of these the first k are enough, and
    one more where a record itself is left out.
    """
    if not len(crowded):
        return
    n, k, d = len(block.rows), best.shape[1], q.shape[1]
    usable = np.flatnonzero(block.copy_numbers() <= k)
    centered = np.subtract(block.rows[usable], block.shift, dtype=np.float64)
    squares = np.einsum("ij,ij->i", centered, centered)
    for s in range(0, len(crowded), 64):
        cols = crowded[s : s + 64]
        mine = np.subtract(q[cols], block.shift, dtype=np.float64)
        square = np.einsum("ij,ij->i", mine, mine)
        scores = mine @ centered.T
        scores -= squares / 2
        slack = (2 * d + 32) * 2.0**-53 * np.square(np.sqrt(square)[:, None] + np.sqrt(squares))
        scores[(tile[:n, cols] == -np.inf)[usable].T] = -np.inf
        floor = np.full(len(cols), -np.inf)
        if k <= len(usable):
            floor = np.partition(scores - slack, len(usable) - k, axis=1)[:, -k]
        known = np.square(best[cols, -1])
        with np.errstate(invalid="ignore"):
            bar = (square - known) / 2 - (d + 16) * 2.0**-53 * (square + known)
        floor = np.fmax(floor, bar)
        near = scores + slack
        pair, row = np.nonzero((near >= floor[:, None]) & (near > -np.inf))
        yield cols[pair], usable[row]


def _merge(
    best_d: npt.NDArray[np.float64],
    best_i: IntArray,
    rows: IntArray,
    indices: IntArray,
    distances: npt.NDArray[np.float64],
) -> None:
    """Merge new pairs into the best of their rows, in place; the lower index wins a tie."""
    k = best_d.shape[1]
    touched = np.unique(rows)
    row = np.concatenate([np.repeat(touched, k), rows])
    dist = np.concatenate([best_d[touched].ravel(), distances])
    index = np.concatenate([best_i[touched].ravel(), indices])
    order = np.lexsort((index, dist, row))
    row = row[order]
    keep = order[np.arange(len(row)) - np.searchsorted(row, row) < k]
    best_d[touched] = dist[keep].reshape(-1, k)
    best_i[touched] = index[keep].reshape(-1, k)


def feature_scale(X: FloatArray, *, floor: float = 0.1) -> FloatArray:
    """The standard deviation of each feature: distances divide by it, so that no feature decides by its unit.

    A feature that hardly varies must not decide by its noise: no scale is below `floor` times the median one.

    Parameters
    ----------
    X
        Vectors (n, d).
    floor
        The smallest scale, as a share of the median over the features that vary. With 0, vectors are z-scored, and a
        constant feature has scale 1.

    Returns
    -------
    ndarray of shape (d,)
        One scale per feature, above 0, in the precision of `X`.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import feature_scale
    >>> feature_scale(np.array([[0.0, 5.0, 0.0], [2.0, 5.0, 20.0]]), floor=0.0)
    array([ 1.,  1., 10.])
    """
    mean, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    # Rounding alone gives a constant feature some spread.
    varying = scale > 1e-6 * (np.abs(mean) + 1e-6)
    least = floor * float(np.median(scale[varying])) if varying.any() else 0.0
    out = np.where(varying, np.maximum(scale, least), least if least > 0 else 1.0)
    return out.astype(X.dtype)


_LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class ClosenessProfile:
    """Distances to the nearest real record: of released vectors, and of the real records themselves.

    Attributes
    ----------
    levels
        The levels of the quantiles, from 0 to 1.
    released
        Quantiles at `levels` of the distance from a released vector to the nearest real record.
    within_real
        The same from a real record to the nearest other one.
    mean_released, mean_within_real
        The two means, with 95 % intervals.
    copies
        The number of released vectors at distance 0.
    closer
        The share of released vectors that lie nearer to a real record than 95 % of real records lie to another: about
        0.05 for fresh data, 1 for copies.
    """

    levels: tuple[float, ...]
    released: tuple[float, ...]
    within_real: tuple[float, ...]
    mean_released: Estimate
    mean_within_real: Estimate
    copies: int
    closer: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        estimates = {k: getattr(self, k).to_dict() for k in ("mean_released", "mean_within_real")}
        return asdict(self) | estimates


def average_nearest_distance(released: npt.ArrayLike, real: npt.ArrayLike) -> Estimate:
    """D: mean distance from each released vector to its nearest real record, with its 95 % interval.

    0 for a copy of the data. Distances depend on the scale: before comparing methods, transform both sides with one
    scaler fitted on the real training set. A large D does not prove privacy: noise far away from all data has it too.
    The interval covers the sampling of released vectors, not of real ones.

    Parameters
    ----------
    released
        Released vectors (n, d).
    real
        Real records (m, d).

    Returns
    -------
    Estimate
        The mean over released vectors.

    Examples
    --------
    >>> from locum.metrics import average_nearest_distance
    >>> average_nearest_distance([[1.0], [2.0]], [[0.0], [4.0]]).value
    1.5
    """
    return mean_interval(nearest(released, real)[0])


def nearest_distance_profile(released: npt.ArrayLike, real: npt.ArrayLike) -> ClosenessProfile:
    """Distribution of the distance to the nearest real record, compared with that within the real data.

    Within the real data a record itself is left out, a duplicate of it is not. The comparison is fair only if `real`
    is dense enough that one more or fewer record makes no difference.

    Parameters
    ----------
    released
        Released vectors (n, d).
    real
        Real records (m, d), two or more.

    Returns
    -------
    ClosenessProfile
        Quantiles and means of both, the number of `copies`, and `closer`, the share of released vectors that lie
        nearer to a real record than 95 % of real records lie to another: about 0.05 for fresh data, 1 for copies.

    Examples
    --------
    >>> from locum.metrics import nearest_distance_profile
    >>> p = nearest_distance_profile([[0.0], [1.5]], [[0.0], [1.0], [3.0]])
    >>> p.copies, p.released[-1], p.within_real[-1]
    (1, 0.5, 2.0)
    """
    base = table("real", real, rows=2)
    to_real, _ = nearest(released, base)
    within, _ = nearest(base, base, exclude_self=True)
    threshold = np.quantile(within, 0.05)
    return ClosenessProfile(
        levels=_LEVELS,
        released=tuple(np.quantile(to_real, _LEVELS).tolist()),
        within_real=tuple(np.quantile(within, _LEVELS).tolist()),
        mean_released=mean_interval(to_real),
        mean_within_real=mean_interval(within),
        copies=int(np.count_nonzero(to_real == 0)),
        closer=float(np.mean(to_real < threshold)),
    )
