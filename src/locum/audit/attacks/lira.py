"""LiRA: is a record's score that of a member or that of a stranger, going by shadows that saw it and that did not?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import Scores
from locum.audit.shadows.shadows import Pool, Progress, ShadowScores, no_shadows, shadow_scores
from locum.release import Release
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
# A record's own spread counts like so many shadows more of the average record's: few shadows tell a spread badly.
_PRIOR_SHADOWS = 8


@dataclass(frozen=True, slots=True)
class LiRA:
    """The likelihood ratio attack (Carlini et al. 2022), online, with `shadows` generators on halves of the pool.

    For each record two normal distributions are fitted to its statistic: under shadows that were trained on it, and
    under those that were not. The score is the log of the ratio of both densities at the release's own value.
    The statistic is the log density for a ClassGaussian and the nearness of the decoder (`CVAEShadows`) for a CVAE,
    in both cases less its median over the pool. `seed` fixes halves and coins, so that with one `state` file several
    attacks share their shadows; without it they come from the attack's own coins. A record whose class some side
    lacks gets 0. It knows the training settings, which the manifest tells anyone.
    """

    shadows: int = 64
    seed: int | None = None
    state: str | Path | None = None
    progress: Progress | None = None
    name: str = "LiRA"

    def why_not(self, release: Release, *_: EmbeddingSet) -> str | None:
        """Why this attack cannot be made on a release, whatever the records, if so."""
        return no_shadows(release)

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; copies of one record get one score."""
        pool = Pool.of(release, members, non_members)
        seed = int(rng.integers(2**31)) if self.seed is None else self.seed
        seen = shadow_scores(release, pool, self.shadows, seed, state=self.state, progress=self.progress)
        return pool.scores(likelihood_ratio(seen.centred()))


def likelihood_ratio(seen: ShadowScores) -> Floats:
    """Log of N(own; as a member) / N(own; as a stranger), one a record; 0 where a side has fewer than 2 shadows."""
    known = ~np.isnan(seen.shadows)
    sides = (seen.inside & known, ~seen.inside & known)
    usable = np.minimum(*(side.sum(axis=0) for side in sides)) >= 2
    usable &= ~np.isnan(seen.own)
    logs = []
    for side in sides:
        count, mean = side.sum(axis=0), seen.mean(side)
        square = np.where(side, np.square(seen.shadows - mean), 0).sum(axis=0)
        pooled = square[usable].sum() / max((count[usable] - 1).sum(), 1)
        variance = (square + _PRIOR_SHADOWS * pooled) / (np.maximum(count - 1, 0) + _PRIOR_SHADOWS)
        variance = np.maximum(variance, 1e-12)
        logs.append(-0.5 * (np.square(seen.own - mean) / variance + np.log(variance)))
    return np.where(usable, logs[0] - logs[1], 0.0)
