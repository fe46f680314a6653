"""LiRA on sums: do the noisy results of a private release contain a record's own contributions?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import ScoreAttack
from locum.audit.shadows.draws import NoisyDraw, Units, noisy_draws
from locum.audit.shadows.shadows import Masks, Pool, ShadowScores, check_shadows, enough_shadows
from locum.audit.statistics import Scores
from locum.errors import LocumError, NotApplicableError
from locum.release import Release
from locum.types import EmbeddingSet, Progress, no_progress

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
# As in `LiRA`.
_PRIOR_SHADOWS = 8


@dataclass(frozen=True, slots=True)
class SumLiRA(ScoreAttack):
    """LiRA in the space of the queries: every noisy result of a release times the record's own contribution to it.

    Each product is divided by the variance of that result's noise, and all are added up. A member moves the total by
    the squared lengths of its contributions over these variances; no other direction shows it better. What a record
    contributes to a gradient depends on the rule of that step, which follows from the results before it, and the
    release holds them all. What other records and the noise add comes from shadows: the same sums over random halves
    of the pool, each with its own noise. The score is the log likelihood ratio of two normal distributions of one
    variance. Means come from shadows without the record and are fitted to the release by class: it may have more
    records than a half.

    It applies to every release that holds noisy sums, whatever the release claims.

    Parameters
    ----------
    shadows
        How many sums to draw: an even number, 4 or more.
    seed
        Fixes the halves and the noise; None: drawn from the attack's rng.
    seconds
        How long this may take; fewer shadows are drawn if need be. None: as long as it takes.
    progress
        Called with (shadows done, total); None: nothing is shown.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import SumLiRA
    >>> from locum.generate import ClassGaussian
    >>> from locum.types import DP
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> budget = DP(1.0, 1e-6, n_public=50)
    >>> private = ClassGaussian(privacy=budget, classes=[0, 1], insecure_seed=0).fit(members.X, members.y)
    >>> SumLiRA(shadows=8).score(private.release(), members, others, rng).inside.shape
    (50,)
    """

    shadows: int = 64
    seed: int | None = None
    seconds: float | None = None
    progress: Progress | None = None
    name: str = "LiRA on sums"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; the records of a subject share a score if the release counts by subject."""
        check_shadows(self.shadows)
        pool = Pool.of(release, members, non_members)
        # How shadows are made follows the release; whether they are made does not.
        by_subject = release.claim.unit == "subject" and members.subject is not None
        of = pool.unit if by_subject else np.arange(len(pool.X))
        # In the given order: of a subject with many records a head uses the first.
        rows = np.argsort(np.unique(pool.place, return_index=True)[1])
        units, given = Units(of[rows]), members.info.reference or None
        try:
            draws = noisy_draws(release, pool.X[rows], pool.codes[rows, 0], units, given)
        except LocumError as error:
            raise NotApplicableError(self.name, f"its noisy sums cannot be read: {error}") from None
        if not draws:
            raise NotApplicableError(self.name, "the release holds no noisy sums")
        _, first = np.unique(of, return_index=True)
        seed = int(rng.integers(2**31)) if self.seed is None else self.seed
        found = self._shadows(draws, pool.halves(self.shadows, seed)[:, first], seed)
        notes = enough_shadows(found, self.name, self.shadows)
        square = sum(draw.query.squares() / draw.noise**2 for draw in draws)
        return pool.scores(_ratio(found, pool.codes[first, 0], np.asarray(square))[of], notes)

    def _shadows(self, draws: Sequence[NoisyDraw], halves: Masks, seed: int) -> ShadowScores:
        report, begun = self.progress or no_progress, time.monotonic()
        own = _products(draws, [draw.result for draw in draws])
        if not np.isfinite(own).all():
            raise NotApplicableError(self.name, "its noisy sums lead to numbers that are not finite")
        wholes = [draw.query.sums(np.ones(halves.shape[1], dtype=bool)) for draw in draws]
        noise = np.random.default_rng([seed, self.shadows])
        rows: list[Floats] = []
        report(0, self.shadows)
        for pair in range(self.shadows // 2):
            spent = time.monotonic() - begun
            if self.seconds is not None and pair and spent * (pair + 1) / pair > self.seconds:
                break
            half = [draw.query.sums(halves[2 * pair]) for draw in draws]
            # Units are never split, so the other half is what is left of the whole.
            for parts in (half, [whole - part for whole, part in zip(wholes, half, strict=True)]):
                noisy = [
                    part + noise.normal(scale=d.noise, size=len(part)) for d, part in zip(draws, parts, strict=True)
                ]
                rows.append(_products(draws, noisy))
            report(len(rows), self.shadows)
        return ShadowScores(own, np.stack(rows), halves[: len(rows)])


def _products(draws: Sequence[NoisyDraw], results: Sequence[Floats]) -> Floats:
    """Results times each unit's contributions, over the variance of their noise, added up over all draws."""
    total: Floats = np.sum([d.query.products(r) / d.noise**2 for d, r in zip(draws, results, strict=True)], axis=0)
    return total


def _ratio(seen: ShadowScores, classes: Codes, square: Floats) -> Floats:
    """Log of N(own; with) / N(own; without) per unit, with means by class and one variance per unit."""
    without = ~seen.inside
    count = without.sum(axis=0)
    mean = np.where(without, seen.shadows, 0).sum(axis=0) / np.maximum(count, 1)
    spread = np.where(without, np.square(seen.shadows - mean), 0).sum(axis=0)
    pooled = spread.sum() / max((count - 1).sum(), 1)
    variance = (spread + _PRIOR_SHADOWS * pooled) / (np.maximum(count - 1, 0) + _PRIOR_SHADOWS)
    # The release has another number of records than a half, and its noise moves all records of a class alike: a line
    # through all records of the class takes both away, and does not know who is a member.
    gap = np.empty(len(seen.own))
    for c in np.unique(classes):
        mine = classes == c
        line = np.stack([mean[mine], np.ones(mine.sum())], axis=1)
        gap[mine] = seen.own[mine] - line @ np.linalg.lstsq(line, seen.own[mine], rcond=None)[0]
    # Where the line lies between the two means is the same for all records, up to their lengths: only order counts.
    out: Floats = gap * square / np.maximum(variance, 1e-12)
    return np.where(count >= 2, out, 0.0)
