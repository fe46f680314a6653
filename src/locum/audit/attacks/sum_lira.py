"""LiRA on sums: does the noisy sum of a private release contain a record's own contribution?"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import ScoreAttack
from locum.audit.shadows.shadows import Pool, ShadowScores, check_shadows, enough_shadows
from locum.audit.statistics import Scores
from locum.data import Reference
from locum.errors import LocumError, NotApplicableError
from locum.generate.private import Shares, query_sums, reference_of, unit_vectors
from locum.release import GaussianSpec, Release, StatisticsSpec
from locum.types import EmbeddingSet, Progress, no_progress

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
# As in `LiRA`.
_PRIOR_SHADOWS = 8


@dataclass(frozen=True, slots=True)
class SumLiRA(ScoreAttack):
    """LiRA in the space of the query: the released noisy sums times the record's own contribution to them.

    A member moves the product by the squared length of its contribution, at most 1; no other direction shows it
    better. What other records and the noise add comes from shadows: the same sums over random halves of the pool,
    each with its own noise. The score is the log likelihood ratio of two normal distributions of one variance. Means
    come from shadows without the record and are fitted to the release by class: it may have more records than a half.

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
        decoder = release.manifest.decoder
        spec = decoder.statistics if isinstance(decoder, GaussianSpec) else None
        if spec is None:
            raise NotApplicableError(self.name, "the release holds no noisy sums")
        pool = Pool.of(release, members, non_members)
        try:
            reference = reference_of(spec, release.manifest.embedding.dim, members.info.reference or None)
        except LocumError as error:
            raise NotApplicableError(self.name, f"its reference cannot be read: {error}") from None
        # How shadows are made follows the release; whether they are made does not.
        by_subject = release.claim.unit == "subject" and members.subject is not None
        query = _Query(pool, len(release.manifest.classes), reference, spec, by_subject)
        seed = int(rng.integers(2**31)) if self.seed is None else self.seed
        own = query.products(release.tensors["statistics"].astype(np.float64))
        found = self._shadows(query, pool, own, seed)
        notes = enough_shadows(found, self.name, self.shadows)
        return pool.scores(query.whole(_ratio(found, pool.codes[:, 0], query.square())), notes)

    def _shadows(self, query: _Query, pool: Pool, own: Floats, seed: int) -> ShadowScores:
        report, begun = self.progress or no_progress, time.monotonic()
        halves, whole = pool.halves(self.shadows, seed), query.sums(np.ones(len(pool.X), dtype=bool))
        noise = np.random.default_rng([seed, self.shadows])
        rows: list[Floats] = []
        report(0, self.shadows)
        for pair in range(self.shadows // 2):
            spent = time.monotonic() - begun
            if self.seconds is not None and pair and spent * (pair + 1) / pair > self.seconds:
                break
            half = query.sums(halves[2 * pair])
            # Units are never split, so the other half is what is left of the whole.
            for sums in (half, whole - half):
                rows.append(query.products(sums + noise.normal(scale=query.noise, size=len(sums))))
            report(len(rows), self.shadows)
        return ShadowScores(own, np.stack(rows), halves[: len(rows)])


class _Query:
    """The query of a release over the records of a pool, and the product of any sums with each contribution."""

    def __init__(
        self, pool: Pool, classes: int, reference: Reference, spec: StatisticsSpec, by_subject: bool
    ) -> None:
        self._pool, self._classes, self._reference = pool, classes, reference
        self._codes, self._by_subject, self.noise = pool.codes[:, 0], by_subject, spec.noise
        self._shares = Shares(*spec.shares)
        self._unit, self._relative = unit_vectors(pool.X, reference)

    def sums(self, inside: npt.NDArray[np.bool_]) -> Floats:
        """The sums of a part of the pool, before noise."""
        subject = self._pool.unit[inside] if self._by_subject else None
        return query_sums(
            self._pool.X[inside], self._codes[inside], subject, self._classes, self._reference, self._shares
        )

    def products(self, sums: Floats) -> Floats:
        """Each record's contribution times these sums, without making the contributions.

        Off the diagonal a product of two features stands for two entries, so that its part is a quadratic form.
        """
        s, d = self._shares, self._unit.shape[1]
        by_class, counts, lengths, upper = s.parts(sums, self._classes, d)
        out = np.sqrt(s.counts) * counts[self._codes] + np.sqrt(s.lengths) * lengths[0] * self._relative
        if s.sums:
            table = by_class.reshape(self._classes, d)
            out = out + np.sqrt(s.sums) * np.einsum("ij,ij->i", self._unit, table[self._codes])
        if s.products:
            matrix = np.zeros((d, d))
            matrix[np.triu_indices(d)] = upper
            # u.T M u counts each entry above the diagonal once, and the contribution has it times the root of two.
            matrix *= np.sqrt(2.0)
            np.fill_diagonal(matrix, np.diagonal(matrix) / np.sqrt(2.0))
            out = out + np.sqrt(s.products) * np.einsum("ij,ij->i", self._unit @ matrix, self._unit)
        return np.asarray(out)

    def square(self) -> Floats:
        """Squared length of each record's contribution."""
        s, square = self._shares, np.square(self._unit).sum(axis=1)
        out: Floats = s.sums * square + s.counts + s.lengths * np.square(self._relative) + s.products * square**2
        return out

    def whole(self, scores: Floats) -> Floats:
        """The scores, added up over each subject where subjects are the units."""
        if not self._by_subject:
            return scores
        total: Floats = np.bincount(self._pool.unit, weights=scores).astype(np.float64)
        return total[self._pool.unit]


def _ratio(seen: ShadowScores, classes: Codes, square: Floats) -> Floats:
    """Log of N(own; with) / N(own; without) per record, with means by class and one variance per record."""
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
