"""Singling out: does a ball around a released vector hold exactly one record?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import evaluate_shares
from locum.audit.view import Floats, make_view, one_per_subject
from locum.errors import ConfigError
from locum.metrics import squared_distances
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate

_ROWS = 1024


@dataclass(frozen=True, slots=True)
class SinglingOut:
    """A record is singled out if some ball around a released vector holds it and no other record of its set.

    The radius with the lowest p-value is reported, corrected for the choice. `attack` is the share of members singled
    out and `control` that of equally many non-members: a small ball around any record singles it out, so only the
    excess of members counts. `baseline` is 0: without a release there is no ball.

    Parameters
    ----------
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.
    radii
        Radii of the balls, as shares of the feature scale in each direction: a copy and a copy with smaller jitter
        then give the same result.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import SinglingOut
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> SinglingOut(samples=500, radii=(0.2,)).run(release, members, others, rng).notes
    ('balls with a radius of 0.2 of the feature scale',)
    """

    samples: int = 5000
    radii: tuple[float, ...] = (0.05, 0.2, 0.4)
    name: str = "singling out"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with balls around fresh samples, or around all rows of a fixed table."""
        if not self.radii or min(self.radii) <= 0:
            raise ConfigError(f"`radii` must be one or more numbers above 0; got {self.radii!r}.")
        view = make_view(release, members, non_members, self.samples, rng)
        mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
        # To be alone among few is easier than among many.
        size = min(len(mine), len(theirs))
        mine, theirs = (np.sort(rng.permutation(part)[:size]) for part in (mine, theirs))
        sides = [view.inside[mine], view.outside[theirs]]
        results = []
        for radius in self.radii:
            reach = radius * float(np.sqrt(members.dim))
            inside, outside = (singled_out(side, view.samples, reach) for side in sides)
            results.append(
                evaluate_shares(
                    self.name,
                    inside,
                    outside,
                    baseline=Estimate.exact(0.0),
                    members=members.take(mine),
                    tests=len(self.radii),
                    notes=(f"balls with a radius of {radius:g} of the feature scale",),
                )
            )
        return min(results, key=lambda r: (r.p_value or 0.0, -r.attack.value))


def singled_out(records: Floats, centers: Floats, reach: float) -> npt.NDArray[np.bool_]:
    """For each record: is it the only one within `reach` of some center?

    >>> singled_out(np.array([[0.0], [1.0], [1.1]]), np.array([[0.1], [1.0]]), 0.2).tolist()
    [True, False, False]
    """
    found = np.zeros(len(records), dtype=bool)
    mean = records.mean(axis=0, dtype=np.float64)
    x = records - mean
    for start in range(0, len(centers), _ROWS):
        close = squared_distances(centers[start : start + _ROWS] - mean, x) <= reach**2
        alone = close.sum(axis=1) == 1
        found |= close[alone].any(axis=0)
    return found
