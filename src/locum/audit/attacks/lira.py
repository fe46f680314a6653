"""LiRA: compares a record's statistic with that under shadows that saw the record and shadows that did not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import ScoreAttack
from locum.audit.shadows.shadows import Pool, ShadowEngine, ShadowScores, enough_shadows, no_shadows, shadow_scores
from locum.audit.statistics import Scores
from locum.errors import NotApplicableError
from locum.release import Release
from locum.types import EmbeddingSet, Progress

Floats = npt.NDArray[np.float64]
# The average variance over records counts like this many additional shadows: few shadows give a poor variance.
_PRIOR_SHADOWS = 8


@dataclass(frozen=True, slots=True)
class LiRA(ScoreAttack):
    """The likelihood ratio attack (Carlini et al. 2022), online, with generators on halves of the pool.

    For each record two normal distributions are fitted to its statistic: under shadows that were trained on it, and
    under those that were not. The score is the log ratio of the two densities at the value under the release. The
    statistic is the log density for a ClassGaussian and the closeness of the decoder (`CVAEShadows`) for a CVAE, in
    both cases minus its median over the pool. A record gets 0 if fewer than two shadows on one side know its class.
    The attack uses the training settings, which the manifest makes public.

    Parameters
    ----------
    shadows
        How many generators to train: an even number, 4 or more.
    seed
        Fixes the halves and the training, so that several attacks can share their shadows; None: drawn from the
        attack's rng.
    state
        A private file (mode 0600) that keeps the shadows: for a run that continues after an interruption, and for
        other attacks with the same seed. None: nothing is kept.
    seconds
        How long training may take; fewer shadows are trained if need be. None: as long as it takes.
    engine
        Where shadows are trained, such as `RayShadows`; None: in this process.
    progress
        Called with (shadows done, total); None: nothing is shown.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import LiRA
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> LiRA(shadows=8).score(release, members, others, rng).inside.shape
    (50,)
    """

    shadows: int = 64
    seed: int | None = None
    state: str | Path | None = None
    seconds: float | None = None
    engine: ShadowEngine | None = None
    progress: Progress | None = None
    name: str = "LiRA"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; copies of one record get the same score."""
        if reason := no_shadows(release):
            raise NotApplicableError(self.name, reason)
        pool = Pool.of(release, members, non_members)
        seed = int(rng.integers(2**31)) if self.seed is None else self.seed
        found = shadow_scores(
            release,
            pool,
            self.shadows,
            seed,
            state=self.state,
            seconds=self.seconds,
            engine=self.engine,
            progress=self.progress,
        )
        notes = enough_shadows(found, self.name, self.shadows)
        return pool.scores(likelihood_ratio(found.centered()), notes)


def likelihood_ratio(seen: ShadowScores) -> Floats:
    """Log of N(own; member) / N(own; non-member) per record; 0 if a side has fewer than 2 shadows."""
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
