"""Wasserstein distances: how far mass must move to turn one set of vectors into the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.metrics._checks import IntArray, at_least, same_width, table
from locum.metrics.distances import squared_distances
from locum.metrics.intervals import mean_interval
from locum.types import Estimate

_Matrix = npt.NDArray[np.float64]
_MOST_PAIRS = 40_000_000
# Logarithm of the largest factor that scaling may reach before it goes through the log domain.
_TAME = 200.0


def sliced_wasserstein(
    A: npt.ArrayLike, B: npt.ArrayLike, rng: np.random.Generator, *, projections: int = 256
) -> Estimate:
    """Root mean square, over random directions, of the exact 1-D 2-Wasserstein distance.

    A distance between distributions at n log n cost; sizes may differ. Compare only values of the same dimension: a
    shift of length s in d dimensions counts about s / sqrt(d).

    Parameters
    ----------
    A, B
        Vectors (n, d) and (m, d).
    rng
        Draws the directions.
    projections
        How many directions, 2 or more.

    Returns
    -------
    Estimate
        The distance. Its interval covers the choice of directions, not of records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import sliced_wasserstein
    >>> sliced_wasserstein([[0.0], [1.0]], [[3.0], [4.0]], np.random.default_rng(0), projections=2).value
    3.0
    """
    a, b = table("A", A), table("B", B)
    same_width("A", a, "B", b)
    at_least("projections", projections, 2)
    # Only differences matter, and near 0 they keep the most digits.
    shift = b.mean(axis=0, dtype=np.float64)
    a, b = np.subtract(a, shift, dtype=np.float64), np.subtract(b, shift, dtype=np.float64)
    rows_a, rows_b, mass = _monotone_plan(len(a), len(b))
    squares = np.empty(projections)
    for s in range(0, projections, 32):
        size = min(32, projections - s)
        directions = rng.standard_normal((a.shape[1], size))
        directions /= np.linalg.norm(directions, axis=0)
        gap = np.sort(a @ directions, axis=0)[rows_a] - np.sort(b @ directions, axis=0)[rows_b]
        squares[s : s + size] = mass @ gap**2
    e = mean_interval(squares)
    return Estimate(float(np.sqrt(e.value)), float(np.sqrt(max(e.low, 0.0))), float(np.sqrt(e.high)), projections)


def entropic_wasserstein(
    A: npt.ArrayLike,
    B: npt.ArrayLike,
    *,
    epsilon: float = 0.05,
    p: int = 2,
    debias: bool = False,
    tolerance: float = 1e-4,
    max_iterations: int = 10_000,
) -> float:
    """p-Wasserstein distance of two sets by Sinkhorn iterations.

    All records have the same weight. Needs n by m memory: sub-sample sets beyond a few thousand.

    Parameters
    ----------
    A, B
        Vectors (n, d) and (m, d).
    epsilon
        The blur, as a share of the mean cost, above 0. Smaller is closer to the exact distance, and slower.
    p
        Costs are |x - y|^p; a whole number, 1 or more.
    debias
        False: the distance under the blurred plan, an upper bound that approaches the exact distance as `epsilon`
        falls, and is not 0 for equal sets. True: the root of the Sinkhorn divergence, which is 0 for equal sets and
        closer to the exact distance, but not a bound.
    tolerance
        Iterate until at most this share of the mass is out of place.
    max_iterations
        The most iterations; needing more is an error.

    Returns
    -------
    float
        The distance, in the unit of the vectors.

    Raises
    ------
    ConfigError
        If the iterations do not converge, or the sets are too large.

    Examples
    --------
    >>> from locum.metrics import entropic_wasserstein
    >>> round(entropic_wasserstein([[0.0], [10.0]], [[1.0], [11.0]], epsilon=0.01), 3)
    1.0
    """
    a, b = table("A", A), table("B", B)
    same_width("A", a, "B", b)
    if not epsilon > 0 or not tolerance > 0:
        raise ConfigError(f"`epsilon` and `tolerance` must be above 0; got {epsilon!r} and {tolerance!r}.")
    at_least("p", p, 1)
    at_least("max_iterations", max_iterations, 1)
    if max(len(a), len(b)) ** 2 > _MOST_PAIRS:
        raise ConfigError(f"{len(a)} by {len(b)} records need too much memory; sub-sample to 6,000 or fewer.")
    shift = b.mean(axis=0, dtype=np.float64)
    a, b = np.subtract(a, shift, dtype=np.float64), np.subtract(b, shift, dtype=np.float64)
    cost = squared_distances(a, b) ** (p / 2)
    blur = epsilon * float(cost.mean())
    if blur == 0:
        return 0.0
    moved, total = _sinkhorn(cost, blur, tolerance, max_iterations)
    if not debias:
        return float(moved ** (1 / p))
    total -= 0.5 * sum(_self_value(x, p, blur, tolerance, max_iterations) for x in (a, b))
    return float(max(total, 0.0) ** (1 / p))


def _monotone_plan(n: int, m: int) -> tuple[IntArray, IntArray, _Matrix]:
    """Which sorted record goes to which, and how much: the optimal plan on a line, also for n != m."""
    # Integers, in units of 1 / (n m), make the steps of the two quantile functions exact.
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    mass = np.diff(ends, prepend=0) / (n * m)
    return (ends - 1) // m, (ends - 1) // n, mass


def _sinkhorn(cost: _Matrix, blur: float, tolerance: float, max_iterations: int) -> tuple[float, float]:
    """Transport cost of the entropic plan, and the value of the entropic problem with uniform weights.

    Potentials are kept in the log domain; between two updates there, the plan is scaled directly, which is far
    cheaper than exponentials, as long as the factors stay moderate.
    """
    n, m = cost.shape
    f, g = np.zeros(n), np.zeros(m)
    # Coarse to fine: each level starts where the coarser one ended.
    level = float(cost.max())
    while level > blur:
        f, g = _log_step(cost, g, level)
        level /= 4
    done = 0
    while done < max_iterations:
        f, g = _log_step(cost, g, blur)
        plan = np.exp((f[:, None] + g - cost) / blur) / (n * m)
        u, v = np.ones(n), np.ones(m)
        tame = True
        while tame and done < max_iterations:
            done += 1
            rows = plan @ v
            if float(np.abs(u * rows - 1 / n).sum()) < tolerance:
                plan *= u[:, None] * v
                f, g = f + blur * np.log(u), g + blur * np.log(v)
                return _cost_of(plan, cost), float(f.mean() + g.mean())
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                new_u = 1 / (n * rows)
                new_v = 1 / (m * (new_u @ plan))
                tame = bool((np.abs(np.log(np.concatenate([new_u, new_v]))) < _TAME).all())
            if tame:
                u, v = new_u, new_v
        f, g = f + blur * np.log(u), g + blur * np.log(v)
    raise _unsettled(max_iterations)


def _self_value(x: _Matrix, p: int, blur: float, tolerance: float, max_iterations: int) -> float:
    """Value of the entropic problem from a set to itself: one averaged potential converges in a few steps."""
    cost = squared_distances(x, x) ** (p / 2)
    f = np.zeros(len(x))
    for _ in range(max_iterations):
        new = 0.5 * (f - blur * _log_mean_exp((f - cost) / blur))
        change = float(np.abs(new - f).max())
        f = new
        if change < tolerance * blur:
            return float(2 * f.mean())
    raise _unsettled(max_iterations)


def _cost_of(plan: _Matrix, cost: _Matrix) -> float:
    """Cost of the plan after making its marginals exact: trim excess mass, spread missing mass."""
    n, m = plan.shape
    plan = plan * np.minimum(1.0, 1 / (n * plan.sum(axis=1)))[:, None]
    plan *= np.minimum(1.0, 1 / (m * plan.sum(axis=0)))
    rows, cols = 1 / n - plan.sum(axis=1), 1 / m - plan.sum(axis=0)
    missing = float(rows.sum())
    extra = float(rows @ cost @ cols) / missing if missing > 1e-15 else 0.0
    return max(0.0, float(np.vdot(plan, cost)) + extra)


def _unsettled(iterations: int) -> ConfigError:
    return ConfigError(
        f"Sinkhorn did not converge in {iterations} iterations; raise `epsilon`, `tolerance` or `max_iterations`."
    )


def _log_step(cost: _Matrix, g: _Matrix, blur: float) -> tuple[_Matrix, _Matrix]:
    """One exact Sinkhorn iteration on the potentials."""
    f = -blur * _log_mean_exp((g - cost) / blur)
    return f, -blur * _log_mean_exp((f - cost.T) / blur)


def _log_mean_exp(x: _Matrix) -> _Matrix:
    """log of the mean of exp over rows, safe for any size; overwrites `x`."""
    top = x.max(axis=1, keepdims=True)
    x -= top
    return np.asarray(np.log(np.exp(x, out=x).mean(axis=1)) + top[:, 0])
