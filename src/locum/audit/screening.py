"""Screening: common distance metrics (DCR, NNDR), reported without a verdict because they support none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.audit.view import Floats, make_view
from locum.metrics import bootstrap_interval, clopper_pearson, k_nearest, nearest
from locum.release import Release
from locum.types import EmbeddingSet, Estimate

_ROWS = 5000
_RESAMPLES = 500


@dataclass(frozen=True, slots=True)
class Screening:
    """How close released vectors lie to records. Data that leak can pass this check.

    `closest` is the median distance to the closest record (DCR), and `ratio` the median of that distance divided by
    the distance to the second closest (NNDR), each for members and for equally many non-members. `closer` is the
    share of released vectors whose closest record is a member: 0.5 if nothing leaks. `copies` is the share of exact
    copies of members. Intervals cover the draw of released vectors, not that of records.
    """

    closest: Estimate
    closest_non_members: Estimate
    ratio: Estimate
    ratio_non_members: Estimate
    closer: Estimate
    copies: Estimate
    title: str = "screening only"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        names = ("closest", "closest_non_members", "ratio", "ratio_non_members", "closer", "copies")
        return {"title": self.title} | {name: getattr(self, name).to_dict() for name in names}


def screen(
    release: Release,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    rng: np.random.Generator,
    *,
    samples: int = _ROWS,
) -> Screening:
    """Distances from up to `samples` released vectors to members and to equally many non-members."""
    view = make_view(release, members, non_members, samples, rng)
    size = min(len(members), len(non_members))
    inside, outside = (side[rng.permutation(len(side))[:size]] for side in (view.inside, view.outside))
    some = view.samples[rng.permutation(len(view.samples))[:samples]]
    near, near_ratio = _distances(some, inside)
    far, far_ratio = _distances(some, outside)
    # Ties count half.
    wins = int((near < far).sum() + (near == far).sum() // 2)
    # Compare with all members: a subsample would miss copies of the rest.
    copies = int((nearest(some, view.inside)[0] == 0).sum())
    return Screening(
        closest=_median(near, rng),
        closest_non_members=_median(far, rng),
        ratio=_median(near_ratio, rng),
        ratio_non_members=_median(far_ratio, rng),
        closer=clopper_pearson(wins, len(some)),
        copies=clopper_pearson(copies, len(some)),
    )


def _distances(samples: Floats, records: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Distance to the closest record, and its ratio to the second closest; 1 if both are 0."""
    distances = k_nearest(samples, records, 2)[0]
    first, second = distances[:, 0], distances[:, 1]
    return first, np.divide(first, second, out=np.ones_like(first), where=second > 0)


def _median(values: npt.NDArray[np.float64], rng: np.random.Generator) -> Estimate:
    if len(values) < 2:
        return Estimate(float(values[0]), 0.0, np.inf, 1)
    return bootstrap_interval(values, rng, statistic=np.median, resamples=_RESAMPLES)
