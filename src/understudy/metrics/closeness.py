"""How close released vectors come to real records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.metrics._checks import table
from understudy.metrics.intervals import mean_interval
from understudy.metrics.neighbours import nearest
from understudy.types import Estimate

__all__ = ["ClosenessProfile", "average_nearest_distance", "nearest_distance_profile"]

_LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class ClosenessProfile:
    """Distances to the nearest real record: of released vectors, and of the real records themselves.

    `released` and `within_real` are quantiles at `levels`. `copies` counts released vectors at
    distance 0. `closer` is the share of released vectors that lie nearer to a real record than 95 %
    of real records lie to another: about 0.05 for fresh data, 1 for copies.
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

    0 for a copy of the data. Distances depend on the scale: bring both sides into one space, with
    one scaler fitted on the real training set, before methods are compared. A large D is no proof
    of privacy: noise far away from all data has it too. The interval covers the draw of released
    vectors, not that of real ones.

    >>> average_nearest_distance([[1.0], [2.0]], [[0.0], [4.0]]).value
    1.5
    """
    return mean_interval(nearest(released, real)[0])


def nearest_distance_profile(released: npt.ArrayLike, real: npt.ArrayLike) -> ClosenessProfile:
    """Distribution of the distance to the nearest real record, beside that within the real data.

    Within the real data a record's own place is left out, a duplicate elsewhere is not. The two
    sides compare fairly only where `real` is dense enough that one record more or less is nothing.

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
