"""Exact nearest records in bounded memory, and how close released vectors come to real records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.metrics._checks import FloatArray, IntArray, at_least, same_width, table
from locum.metrics.intervals import mean_interval
from locum.types import Estimate

_CHUNK = 8192
# Queries per chunk of the reference: a tile of 32 MB of scores was fastest.
_QUERIES = 1024
# With more candidates than this per query, float32 cannot tell them apart.
_CROWD = 32
_ULP32 = 2.0**-24
_UNDERFLOW = 2.0**-126


def nearest(
    queries: npt.ArrayLike, reference: npt.ArrayLike, *, exclude_self: bool = False, chunk: int = _CHUNK
) -> tuple[npt.NDArray[np.float64], IntArray]:
    """Distance and position of the nearest reference record, for each query.

    Exact; of a few equally near records the first is returned.

    Work space is under `chunk` (12 d + 12,000) bytes plus 30 MB, whatever the number of records: 200 MB for d = 768
    and the default chunk. Time is that of one float32 matrix product. Many records that differ by less than 1e-4 of
    the spread of the data cost one more product, in float64, and are then distinguished down to 1e-7 of that spread.

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

    Like `nearest`, but up to 1.5 times as slow for small `k` above 1.

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

    # A common shift keeps distances; near the mean, products are small and lose the fewest digits.
    shift = r.mean(axis=0, dtype=np.float64).astype(np.float32)
    best_d = np.full((len(q), k), np.inf)
    best_i = np.full((len(q), k), -1, dtype=np.int64)
    scores = np.empty((min(_QUERIES, len(q)), min(chunk, len(r))), dtype=np.float32)
    for j in range(0, len(r), chunk):
        r_part = _extended(r[j : j + chunk], shift, reference=True)
        for i in range(0, len(q), _QUERIES):
            here = slice(i, min(i + _QUERIES, len(q)))
            q_part = _extended(q[here], shift, reference=False)
            tile = np.matmul(q_part, r_part.T, out=scores[: len(q_part), : len(r_part)])
            if exclude_self:
                own = np.arange(max(i, j), min(i + len(q_part), j + len(r_part)))
                tile[own - i, own - j] = -np.inf
            rows, cols, crowded = _candidates(tile, q_part, r_part, best_d[here])
            if len(crowded):
                more = _settle(q[here], r[j : j + chunk], shift, tile, crowded, k)
                rows, cols = np.append(rows, more[0]), np.append(cols, more[1])
            if len(rows):
                distances = pair_distances(q, r, rows + i, cols + j)
                _merge(best_d[here], best_i[here], rows, cols + j, distances)
    return best_d, best_i


def pair_distances(
    a: FloatArray, b: FloatArray, rows_a: npt.NDArray[np.integer], rows_b: npt.NDArray[np.integer]
) -> npt.NDArray[np.float64]:
    """|a[i] - b[j]| for given pairs (i, j) in float64: no cancellation, no n by m matrix.

    >>> pair_distances(np.eye(2), np.zeros((1, 2)), np.array([0, 1]), np.array([0, 0]))
    array([1., 1.])
    """
    out = np.empty(len(rows_a))
    step = max(1, 2**20 // a.shape[1])
    for s in range(0, len(out), step):
        gap = np.subtract(a[rows_a[s : s + step]], b[rows_b[s : s + step]], dtype=np.float64)
        out[s : s + step] = np.sqrt(np.einsum("ij,ij->i", gap, gap))
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


def _extended(x: FloatArray, shift: npt.NDArray[np.float32], *, reference: bool) -> npt.NDArray[np.float32]:
    """Shifted vectors with one extra column, so that the product is q.r - |r|^2/2: highest is nearest."""
    out = np.empty((len(x), x.shape[1] + 1), dtype=np.float32)
    np.subtract(x, shift, out=out[:, :-1], casting="same_kind")
    out[:, -1] = -0.5 * np.einsum("ij,ij->i", out[:, :-1], out[:, :-1]) if reference else 1.0
    return out


def _candidates(
    tile: npt.NDArray[np.float32],
    q: npt.NDArray[np.float32],
    r: npt.NDArray[np.float32],
    best: npt.NDArray[np.float64],
) -> tuple[IntArray, IntArray, IntArray]:
    """Rows and columns of the pairs that may be among the k nearest, and the rows with too many.

    A score's error is below `slack`: d + 8 roundings, each at most one unit of the largest term. A pair is left out
    only if k others beat it by more than both errors.
    """
    k, d = best.shape[1], r.shape[1] - 1
    q_square = np.einsum("ij,ij->i", q[:, :-1], q[:, :-1], dtype=np.float64)
    r_square = max(0.0, -2.0 * float(r[:, -1].min()))
    slack = (d + 8) * (_ULP32 * (np.sqrt(q_square) + np.sqrt(r_square)) ** 2 + _UNDERFLOW)
    floor = (q_square - best[:, -1] ** 2) / 2
    top = tile.max(axis=1)
    # Nothing beats distance 0: queries that have found k copies are done.
    active = np.flatnonzero((top >= floor - slack) & (best[:, -1] > 0))
    some, floor, slack = tile[active], floor[active], slack[active]
    if k == 1:
        floor = np.maximum(floor, top[active] - slack)
    elif k <= some.shape[1]:
        # Partitioning is expensive: only for rows where earlier results do not rule out enough candidates.
        many = _crowded(some >= _bar(floor - slack), k)
        kth = np.partition(some[many], -k, axis=1)[:, -k]
        floor[many] = np.maximum(floor[many], kth - slack[many])
    hit = some >= _bar(floor - slack)
    crowd = _crowded(hit, k)
    hit[crowd] = False
    rows, cols = np.divmod(np.flatnonzero(hit), some.shape[1])
    return active[rows], cols, active[crowd]


def _bar(limit: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """`limit` as a float32 column, rounded down so that no candidate is lost.

    It stays above -inf, which marks a record itself.
    """
    bar = np.nextafter(limit.astype(np.float32), np.float32(-np.inf))
    return np.maximum(bar, np.finfo(np.float32).min)[:, None]


def _crowded(hit: npt.NDArray[np.bool_], k: int) -> IntArray:
    """Rows with too many candidates to measure one by one."""
    return np.flatnonzero(np.count_nonzero(hit, axis=1) > _CROWD * k)


def _settle(
    q: FloatArray,
    r: FloatArray,
    shift: npt.NDArray[np.float32],
    tile: npt.NDArray[np.float32],
    crowded: IntArray,
    k: int,
) -> tuple[IntArray, IntArray]:
    """Candidates of crowded rows by float64 scores: only the best few, since the rest are practically tied."""
    keep = min(_CROWD * k, len(r))
    centered = np.subtract(r, shift, dtype=np.float64)
    half = 0.5 * np.einsum("ij,ij->i", centered, centered)
    found = []
    for s in range(0, len(crowded), 128):
        rows = crowded[s : s + 128]
        scores = np.subtract(q[rows], shift, dtype=np.float64) @ centered.T
        scores -= half
        scores[tile[rows] == -np.inf] = -np.inf
        cols = np.argpartition(scores, len(r) - keep, axis=1)[:, len(r) - keep :]
        real = np.take_along_axis(scores, cols, axis=1) > -np.inf
        found.append((np.repeat(rows, real.sum(axis=1)), cols[real]))
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


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
