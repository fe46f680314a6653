"""Membership where the release is denser than the population: what is too likely was seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import Scores
from locum.audit.statistics import evaluate_scores
from locum.audit.view import LEAST_NON_MEMBERS, Floats, look, principal_axes
from locum.errors import ConfigError, DataError
from locum.metrics import k_nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet


@dataclass(frozen=True, slots=True)
class DensityRatio:
    """Guess "member" where samples are dense beside a reference set: overfitting, apart from mere typicality.

    In the manner of DOMIAS (van Breugel et al. 2023). Log-densities come from the distances to the `neighbours`
    nearest vectors, in at most `dim` principal components of the reference. That is `reference`, records of the same
    population that are neither members nor non-members; or else one half of the non-members, while the other is
    attacked. No record both serves and is attacked: halves that score each other would share their luck.
    """

    samples: int = 20_000
    neighbours: int = 3
    dim: int = 32
    reference: EmbeddingSet | None = None
    name: str = "density ratio"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        if self.reference is not None:
            return ""
        subjects = len(non_members) if non_members.subject is None else len(np.unique(non_members.subject))
        needed = 2 * max(LEAST_NON_MEMBERS, self.neighbours + 1)
        if subjects < needed:
            return f"not applicable: it takes {needed} non-members, each another person, or a reference set"
        return ""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack by the log-density of the samples minus that of the reference."""
        if self.neighbours < 1 or self.dim < 1:
            raise ConfigError(f"`neighbours` and `dim` must be 1 or more; got {self.neighbours!r}, {self.dim!r}.")
        if reason := self.why_not(release, members, non_members):
            raise DataError(f"The density ratio is {reason}.")
        reference, attacked = self.reference, non_members
        if reference is None:
            reference, attacked = _halves(non_members, rng)
        seen = look(release, members, attacked, self.samples, rng)
        known = release.transform(reference.X) / seen.scale
        mean, axes = principal_axes(known, self.dim, rng)
        records, samples, known = ((part - mean) @ axes for part in (seen.records, seen.samples, known))
        ratio = _log_distance(records, known, self.neighbours) - _log_distance(records, samples, self.neighbours)
        inside, outside = np.split(ratio, [len(members)])
        result = evaluate_scores(self.name, Scores(inside, outside), members, attacked, rng)
        if self.reference is None:
            words = "half of the non-members served as the reference; the other half was attacked"
            result = replace(result, notes=(*result.notes, words))
        return result


def _halves(data: EmbeddingSet, rng: np.random.Generator) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Two halves that share no person."""
    who = np.arange(len(data)) if data.subject is None else np.unique(data.subject, return_inverse=True)[1]
    side = rng.permutation(np.arange(int(who.max()) + 1) % 2)[who]
    return data.take(side == 0), data.take(side == 1)


def _log_distance(x: Floats, others: Floats, k: int) -> npt.NDArray[np.float64]:
    """Mean log-distance to the `k` nearest; a copy is near beyond measure, but not beyond comparison."""
    distances = k_nearest(x, others, min(k, len(others)))[0]
    return np.asarray(np.log(np.maximum(distances, 1e-9)).mean(axis=1))
