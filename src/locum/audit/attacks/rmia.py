"""RMIA: does the release favor this record over others, compared with what shadows expect of each?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import ScoreAttack
from locum.audit.shadows.shadows import Pool, ShadowEngine, ShadowScores, enough_shadows, no_shadows, shadow_scores
from locum.audit.statistics import Scores
from locum.errors import ConfigError, NotApplicableError
from locum.metrics import auc_interval
from locum.release import Release
from locum.types import EmbeddingSet, Progress

Floats = npt.NDArray[np.float64]
_GRID = tuple(i / 10 for i in range(11))
# How many shadows are attacked to choose `a`.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class RMIA(ScoreAttack):
    """The robust membership inference attack (Zarifzadeh et al. 2024), offline, with shadows as in `LiRA`.

    A record's ratio is its statistic under the release minus the expected one; its score is the share of the records
    of the pool, members and non-members alike, whose ratio is lower by `margin` or more. The expectation comes only
    from shadows that were not trained on the record, so `a` corrects for those that were: it is `(1 + a) / 2` times
    their mean plus `(1 - a) / 2` times the largest such mean of the pool. The statistic is a log (as in `LiRA`),
    while the authors use a probability with 1 as the largest: this is their correction on that scale.

    Parameters
    ----------
    shadows
        How many generators to train: an even number, 4 or more.
    a
        From 0 to 1. With 1, training is expected to change nothing; smaller values expect it to raise unlikely
        records most. None: the value among 0, 0.1, ..., 1 that best finds the members of the shadows themselves, each
        attacked with the others.
    margin
        By how much a ratio must be lower to count, 0 or more.
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
    >>> from locum.audit import RMIA
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> RMIA(shadows=8).score(release, members, others, rng).inside.shape
    (50,)
    """

    shadows: int = 64
    a: float | None = None
    margin: float = 0.0
    seed: int | None = None
    state: str | Path | None = None
    seconds: float | None = None
    engine: ShadowEngine | None = None
    progress: Progress | None = None
    name: str = "RMIA"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; copies of one record get the same score."""
        if (self.a is not None and not 0 <= self.a <= 1) or not self.margin >= 0:
            raise ConfigError(f"`a` must lie in 0..1 and `margin` be 0 or more; got {self.a!r} and {self.margin!r}.")
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
        found = found.centered()
        return pool.scores(relative_ratio(found, best_a(found) if self.a is None else self.a, self.margin), notes)


def relative_ratio(seen: ShadowScores, a: float, margin: float) -> Floats:
    """Share of the records that a record's ratio beats by `margin`; 0.5 if no shadow says what to expect."""
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
    """The `a` with the best attack on some shadows by means of the others; the largest in case of a tie."""
    found = dict.fromkeys(_GRID, 0.0)
    for s in range(min(_TRIED, len(seen.shadows))):
        # The other shadow of its pair was trained on exactly the records that it was not.
        others = [i for i in range(len(seen.shadows)) if i // 2 != s // 2]
        as_release = ShadowScores(seen.shadows[s], seen.shadows[others], seen.inside[others])
        for a in _GRID:
            share, inside = relative_ratio(as_release, a, 0.0), seen.inside[s]
            found[a] += auc_interval(share[inside], share[~inside]).value
    return max(_GRID, key=lambda a: (found[a], a))
