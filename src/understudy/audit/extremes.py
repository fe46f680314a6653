"""How surprising is a distance that is smaller than all that strangers show?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError

__all__ = ["LEAST_DISTANCES", "lower_tail"]

Floats = npt.NDArray[np.float64]
LEAST_DISTANCES = 20
_SHARE = 0.1


def lower_tail(distances: Floats, reference: Floats) -> Floats:
    """Chance that one more distance of the kind of `reference` is as small as each of `distances`.

    Near 0, the chance to lie within r of some sample grows like a power of r, whatever the population: log-distances
    have an exponential tail, whose rate is the number of directions in which data vary. The rate is estimated from
    the smallest tenth of the reference, and the answer holds for an estimated rate, not for a known one: it is
    larger. Further up the tail falls more slowly, so the estimate errs towards "not surprising". Where the reference
    has distances up to twice as large, they are counted as if they were as small: only beyond is anything assumed.
    An exact copy has chance 0, unless the reference has copies too.
    """
    m = len(reference)
    if m < LEAST_DISTANCES:
        raise DataError(f"A tail needs at least {LEAST_DISTANCES} distances; got {m}.")
    ordered = np.sort(reference)
    counted = (1 + np.searchsorted(ordered, distances, side="right")) / (m + 1)
    # Twins lie at a distance of their own kind, somewhat more here and less there: no tail describes them.
    alike = np.searchsorted(ordered, 2 * distances, side="right") / (m + 1)
    k = max(5, round(_SHARE * m))
    bar, tail = ordered[k], ordered[:k]
    if bar <= 0 or tail[0] <= 0:
        # Copies among strangers: there is no power law here, and a count is all there is.
        return np.asarray(counted)
    mean_excess = float(np.log(bar / tail).mean())
    with np.errstate(divide="ignore"):
        excess = np.log(bar) - np.log(distances)
    if mean_excess == 0:
        return np.asarray(counted)
    with np.errstate(over="ignore"):
        # The excess over a mean of k exponentials is Pareto: exact for a rate that is itself an estimate.
        extended = (k / (m + 1)) * (1 + np.maximum(excess, 0) / (k * mean_excess)) ** -k
    return np.asarray(np.maximum(np.where(distances >= ordered[0], counted, np.minimum(extended, counted)), alike))
