"""The hole attack: a replica that keeps its distance from the records shows where they are."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import Scores
from locum.audit.view import check_apart
from locum.errors import ConfigError
from locum.metrics import squared_distances
from locum.release import Release
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
_ROWS = 1024
# The shell's outer radius, in radii of the hole.
_SHELL = 1.5


@dataclass(frozen=True, slots=True)
class Hole:
    """Guess "member" where released vectors surround a record, but none lies within `min_distance` of it.

    One vector inside the radius proves that a record was not used: the holder would have drawn it again. How telling
    an empty ball is, the crowd around says: the vectors of `decoder`, the release that the replica was drawn from,
    within the ball, if the attacker has it; else the replica's own between one and one and a half radii. The radius
    is public: it stands in the release's settings.
    """

    radius: float | None = None
    decoder: Release | None = None
    samples: int = 20_000
    name: str = "hole"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        if release.manifest.kind != "data" or self._radius(release) is None:
            return "not applicable: the release is no table that was kept at a distance from its records"
        return ""

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Minus the vectors inside the ball, or else those expected there."""
        radius = self._radius(release)
        if reason := self.why_not(release, members, non_members):
            raise ConfigError(f"The hole attack is {reason}.")
        if radius is None or radius <= 0:
            raise ConfigError(f"`radius` must be above 0; got {radius!r}.")
        inside, outside = check_apart(release, members, non_members)
        records = np.concatenate([inside, outside]).astype(np.float64)
        X = release.tensors["X"].astype(np.float64)
        # The holder compared in float32: a vector at the very edge may lie either side of it.
        within = _count(records, X, radius * (1 - 1e-6))
        if self.decoder is None:
            crowd = _count(records, X, _SHELL * radius) - within
        else:
            drawn = self.decoder.sample(self.samples, random_state=rng)[0].astype(np.float64)
            crowd = _count(records, drawn, radius)
        scores = np.where(within > 0, -within, crowd).astype(np.float64)
        return Scores(scores[: len(members)], scores[len(members) :])

    def _radius(self, release: Release) -> float | None:
        told = release.manifest.settings.get("min_distance") if self.radius is None else self.radius
        return float(told) if isinstance(told, Real) else None


def _count(records: Floats, X: Floats, radius: float) -> npt.NDArray[np.int64]:
    """How many of `X` lie closer than `radius` to each record."""
    mean = X.mean(axis=0)
    counts = np.empty(len(records), dtype=np.int64)
    for start in range(0, len(records), _ROWS):
        part = slice(start, start + _ROWS)
        counts[part] = (squared_distances(records[part] - mean, X - mean) < radius**2).sum(axis=1)
    return counts
