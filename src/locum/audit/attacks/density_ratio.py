"""Density ratio: a record is probably a member if the release is denser around it than the population."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import Scores, evaluate_scores
from locum.audit.view import LEAST_NON_MEMBERS, Floats, make_view, principal_axes
from locum.errors import ConfigError, NotApplicableError
from locum.metrics import k_nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet


@dataclass(frozen=True, slots=True)
class DensityRatio:
    """Guess "member" if samples are denser than a reference set: this detects overfitting, not mere typicality.

    Like DOMIAS (van Breugel et al. 2023). Without a reference set one half of the non-members is the reference, and
    the other half is attacked. No record does both: two halves that score each other would share their random error.

    Parameters
    ----------
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.
    neighbors
        Log-densities come from the distances to this many nearest vectors.
    dim
        Distances are measured in at most this many principal components of the reference set.
    reference
        Records of the same population that are neither members nor non-members; None: half of the non-members.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import DensityRatio
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> DensityRatio(samples=500).run(release, members, others, rng).notes[-1]
    'half of the non-members served as the reference; the other half was attacked'
    """

    samples: int = 20_000
    neighbors: int = 3
    dim: int = 32
    reference: EmbeddingSet | None = None
    name: str = "density ratio"

    def too_few(self, non_members: EmbeddingSet) -> str:
        """Why so few non-members do not allow it without a reference set; empty if they do."""
        subjects = len(non_members) if non_members.subject is None else len(np.unique(non_members.subject))
        needed = 2 * max(LEAST_NON_MEMBERS, self.neighbors + 1)
        return (
            "" if subjects >= needed else f"it needs {needed} non-members of different subjects, or a reference set"
        )

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack by the log-density of the samples minus that of the reference."""
        if self.neighbors < 1 or self.dim < 1:
            raise ConfigError(f"`neighbors` and `dim` must be 1 or more; got {self.neighbors!r}, {self.dim!r}.")
        reference, attacked = self.reference, non_members
        if reference is None:
            if reason := self.too_few(non_members):
                raise NotApplicableError(self.name, reason)
            reference, attacked = _halves(non_members, rng)
        view = make_view(release, members, attacked, self.samples, rng)
        known = release.transform(reference.X) / view.scale
        mean, axes = principal_axes(known, self.dim, rng)
        records, samples, known = ((part - mean) @ axes for part in (view.records, view.samples, known))
        ratio = _log_distance(records, known, self.neighbors) - _log_distance(records, samples, self.neighbors)
        inside, outside = np.split(ratio, [len(members)])
        result = evaluate_scores(self.name, Scores(inside, outside), members, attacked, rng)
        if self.reference is None:
            note = "half of the non-members served as the reference; the other half was attacked"
            result = replace(result, notes=(*result.notes, note))
        return result


def _halves(data: EmbeddingSet, rng: np.random.Generator) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Two halves that share no subject."""
    subject = np.arange(len(data)) if data.subject is None else np.unique(data.subject, return_inverse=True)[1]
    side = rng.permutation(np.arange(int(subject.max()) + 1) % 2)[subject]
    return data.take(side == 0), data.take(side == 1)


def _log_distance(x: Floats, others: Floats, k: int) -> npt.NDArray[np.float64]:
    """Mean log-distance to the `k` nearest; the distance to a copy counts as 1e-9, so that the log is finite."""
    distances = k_nearest(x, others, min(k, len(others)))[0]
    return np.asarray(np.log(np.maximum(distances, 1e-9)).mean(axis=1))
