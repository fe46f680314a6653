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
# Up to so many records the products of the contributions of any two fit into memory and are quickly inverted.
_MOST_JOINT = 4000


@dataclass(frozen=True, slots=True)
class SumLiRA(ScoreAttack):
    """LiRA in the space of the queries: every noisy result of a release times the record's own contribution to it.

    Each product is divided by the variance of that result's noise, and all are added up. A member moves the total by
    the squared lengths of its contributions over these variances; no other direction shows it better. What a record
    contributes to a gradient depends on the rule of that step, which follows from the results before it, and the
    release holds them all. What other records and the noise add comes from shadows: the same sums over random halves
    of the pool, each with its own noise. A result that scatters less than in any shadow has less noise than the
    release says, and counts for more. With up to 4,000 records the totals of all units are solved for together, which
    takes away most of what other units of the pool add. The score is the log likelihood ratio of two normal
    distributions of one variance. Means come from shadows without the record and are fitted to the release by class:
    it may have more records than a half.

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
        if release.manifest.conditions:
            raise NotApplicableError(self.name, "the release is conditioned on more than the class")
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
        classes = pool.codes[first, 0]
        found = self._shadows(draws, pool.halves(self.shadows, seed)[:, first], seed)
        notes = enough_shadows(found[0], self.name, self.shadows)
        weights = [_weight(draw, seen, classes) for draw, seen in zip(draws, found, strict=True)]
        own, shadows = (
            np.asarray(sum(w * values for w, values in zip(weights, parts, strict=True)))
            for parts in ([seen.own for seen in found], [seen.shadows for seen in found])
        )
        shift = np.asarray(sum(w * draw.query.squares() for w, draw in zip(weights, draws, strict=True)))
        if len(rows) <= _MOST_JOINT:
            own, shadows, shift = _apart(draws, weights, own, shadows)
        return pool.scores(_ratio(ShadowScores(own, shadows, found[0].inside), classes, shift)[of], notes)

    def _shadows(self, draws: Sequence[NoisyDraw], halves: Masks, seed: int) -> list[ShadowScores]:
        """For each draw its products with each unit's contribution, in the release and in each shadow."""
        report, begun = self.progress or no_progress, time.monotonic()
        with np.errstate(invalid="ignore"):
            own = [draw.query.products(draw.result) for draw in draws]
        if not np.isfinite(own).all():
            raise NotApplicableError(self.name, "its noisy sums lead to numbers that are not finite")
        wholes = [draw.query.sums(np.ones(halves.shape[1], dtype=bool)) for draw in draws]
        noise = np.random.default_rng([seed, self.shadows])
        rows: list[list[Floats]] = [[] for _ in draws]
        report(0, self.shadows)
        for pair in range(self.shadows // 2):
            spent = time.monotonic() - begun
            if self.seconds is not None and pair and spent * (pair + 1) / pair > self.seconds:
                break
            for draw, whole, kept in zip(draws, wholes, rows, strict=True):
                half = draw.query.sums(halves[2 * pair])
                # Units are never split, so the other half is what is left of the whole.
                for part in (half, whole - half):
                    noisy = part + noise.normal(scale=draw.noise, size=len(part))
                    kept.append(draw.query.products(noisy))
            report(len(rows[0]), self.shadows)
        inside = halves[: len(rows[0])]
        return [ShadowScores(mine, np.stack(kept), inside) for mine, kept in zip(own, rows, strict=True)]


def _weight(draw: NoisyDraw, seen: ShadowScores, classes: Codes) -> float:
    """One over the variance of a draw's noise: what the release says, or less if it scatters less than any shadow."""
    mean = seen.shadows.mean(axis=0)
    scatter = [float(np.square(_gap(row, mean, classes)).sum()) for row in (seen.own, *seen.shadows)]
    ratio = scatter[0] / max(min(scatter[1:]), 1e-300)
    return 1 / (draw.noise**2 * min(1.0, max(ratio, 1e-6)))


def _apart(
    draws: Sequence[NoisyDraw], weights: Sequence[float], own: Floats, shadows: Floats
) -> tuple[Floats, Floats, Floats]:
    """Totals from which what other units of the pool add is taken away, as far as the noise allows.

    Let K hold the products of the contributions of any two units. The totals are K m plus noise of covariance K,
    where m is 1 for each unit that is in, and the best linear estimate of m, if half of the units are, is
    (K + 4)^-1 times the totals. The third result is how far a unit moves its own estimate.
    """
    from scipy.linalg import cho_factor, cho_solve

    gram = np.asarray(sum(w * draw.query.gram() for w, draw in zip(weights, draws, strict=True)))
    factor = cho_factor(gram + 4 * np.eye(len(gram)))
    both = cho_solve(factor, np.concatenate([own[None], shadows]).T).T
    # (K + 4)^-1 K = 1 - 4 (K + 4)^-1.
    shift = 1 - 4 * np.diagonal(cho_solve(factor, np.eye(len(gram))))
    return both[0], both[1:], shift


def _gap(values: Floats, mean: Floats, classes: Codes) -> Floats:
    """How far values lie from what is expected of other records.

    A release has another number of records than a half, and its noise moves all records of a class alike: a line
    through all records of the class takes both away, and does not know who is a member.
    """
    out = np.empty(len(values))
    for c in np.unique(classes):
        mine = classes == c
        line = np.stack([mean[mine], np.ones(mine.sum())], axis=1)
        out[mine] = values[mine] - line @ np.linalg.lstsq(line, values[mine], rcond=None)[0]
    return out


def _ratio(seen: ShadowScores, classes: Codes, shift: Floats) -> Floats:
    """Log of N(own; with) / N(own; without) per unit, with means by class and one variance per unit."""
    without = ~seen.inside
    count = without.sum(axis=0)
    mean = np.where(without, seen.shadows, 0).sum(axis=0) / np.maximum(count, 1)
    spread = np.where(without, np.square(seen.shadows - mean), 0).sum(axis=0)
    pooled = spread.sum() / max((count - 1).sum(), 1)
    variance = (spread + _PRIOR_SHADOWS * pooled) / (np.maximum(count - 1, 0) + _PRIOR_SHADOWS)
    gap = _gap(seen.own, mean, classes)
    # Where the line lies between the two means is the same for all records, up to their lengths: only order counts.
    out: Floats = gap * shift / np.maximum(variance, 1e-12)
    return np.where(count >= 2, out, 0.0)
