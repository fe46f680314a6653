"""RMIA: does the release prefer this record more than it prefers others, going by what shadows expect of each?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import Scores
from locum.audit.shadows.shadows import Pool, Progress, ShadowScores, no_shadows, shadow_scores
from locum.errors import ConfigError
from locum.metrics import auc_interval
from locum.release import Release
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
_GRID = tuple(i / 10 for i in range(11))
# So many shadows are attacked to choose `a`.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class RMIA:
    """The robust membership inference attack (Zarifzadeh et al. 2024), offline, with shadows as in `LiRA`.

    A record's ratio is its statistic under the release less what is expected of it; its score is the share of the
    records of the pool, members and non-members alike, whose ratio is lower by `margin` or more. Only shadows that
    were not trained on a record tell what is expected, so `a` corrects for the half that would have been: their mean
    is taken `(1 + a) / 2` times, and the largest such mean of the pool `(1 - a) / 2` times. At 1 training is expected
    to change nothing, below it lifts unlikely records most. Without a value it is the one of 0, 0.1 ... 1 that best
    tells who was in the shadows themselves, each attacked by the others. The statistic is a log (as in `LiRA`), where
    the authors have a probability and 1 as the largest: this is their correction on that scale.
    """

    shadows: int = 64
    a: float | None = None
    margin: float = 0.0
    seed: int | None = None
    state: str | Path | None = None
    progress: Progress | None = None
    name: str = "RMIA"

    def why_not(self, release: Release, *_: EmbeddingSet) -> str | None:
        """Why this attack cannot be made on a release, whatever the records, if so."""
        return no_shadows(release)

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; copies of one record get one score."""
        if (self.a is not None and not 0 <= self.a <= 1) or not self.margin >= 0:
            raise ConfigError(f"`a` must lie in 0..1 and `margin` be 0 or more; got {self.a!r} and {self.margin!r}.")
        pool = Pool.of(release, members, non_members)
        seed = int(rng.integers(2**31)) if self.seed is None else self.seed
        seen = shadow_scores(release, pool, self.shadows, seed, state=self.state, progress=self.progress)
        seen = seen.centred()
        return pool.scores(relative_ratio(seen, best_a(seen) if self.a is None else self.a, self.margin))


def relative_ratio(seen: ShadowScores, a: float, margin: float) -> Floats:
    """Share of the records that a record's ratio beats by `margin`; one half where nothing is expected of it."""
    unseen = seen.mean(~seen.inside)
    expected = 0.5 * ((1 + a) * unseen + (1 - a) * np.nanmax(unseen))
    ratio = seen.own - expected
    known = np.isfinite(ratio)
    others = np.sort(ratio[known])
    beaten = np.searchsorted(others, ratio[known] - margin, side="right" if margin else "left")
    share = np.full(len(ratio), 0.5)
    share[known] = beaten / max(len(others) - 1, 1)
    out: Floats = np.minimum(share, 1.0)
    return out


def best_a(seen: ShadowScores) -> float:
    """The `a` by which shadows are best attacked through the other shadows; of equal ones, the largest."""
    found = dict.fromkeys(_GRID, 0.0)
    for s in range(min(_TRIED, len(seen.shadows))):
        # The other half of its pair would know what it saw.
        others = [i for i in range(len(seen.shadows)) if i // 2 != s // 2]
        as_release = ShadowScores(seen.shadows[s], seen.shadows[others], seen.inside[others])
        for a in _GRID:
            share, inside = relative_ratio(as_release, a, 0.0), seen.inside[s]
            found[a] += auc_interval(share[inside], share[~inside]).value
    return max(_GRID, key=lambda a: (found[a], a))
