"""The hole attack: a table that keeps a distance from its records shows where they are."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from locum.audit.attacks.base import ScoreAttack
from locum.audit.statistics import Scores
from locum.audit.view import checked_vectors
from locum.errors import ConfigError, NotApplicableError
from locum.metrics import squared_distances
from locum.release import Release
from locum.types import EmbeddingSet

Floats = npt.NDArray[np.float64]
_ROWS = 1024
# The shell's outer radius, in radii of the hole.
_SHELL = 1.5


@dataclass(frozen=True, slots=True)
class Hole(ScoreAttack):
    """Guess "member" if released vectors surround a record, but none lies within `min_distance` of it.

    One vector inside the radius proves that the record was not used: the holder would have drawn that vector again.
    An empty ball is more telling the more vectors should lie in it. The radius is public: it is one of the release's
    settings. Only a fixed table can be attacked.

    Parameters
    ----------
    radius
        Radius of the ball; None: the setting `min_distance` of the release.
    decoder
        The release that the table was drawn from, if the attacker has it: its samples inside the ball are counted.
        None: the table's own vectors between 1 and 1.5 radii are counted.
    samples
        How many vectors to draw from `decoder`.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import Hole
    >>> from locum.generate import KSame
    >>> X, y = np.array([[0.0], [2.0], [10.0], [12.0]]), np.zeros(4, dtype=int)
    >>> table = KSame(k=2, random_state=0).fit(X, y).release(no_dp=True)  # rows at 1, 1, 11 and 11
    >>> found = Hole(radius=0.8).score(table, EmbeddingSet(X, y), EmbeddingSet(X + 1, y), np.random.default_rng(0))
    >>> found.inside.tolist(), found.outside.tolist()
    ([2.0, 2.0, 2.0, 2.0], [-2.0, 0.0, -2.0, 0.0])
    """

    radius: float | None = None
    decoder: Release | None = None
    samples: int = 20_000
    name: str = "hole"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Minus the number of vectors inside the ball or, if it is empty, the number expected there."""
        radius = self._radius(release)
        if release.manifest.kind != "data" or radius is None:
            raise NotApplicableError(self.name, "the release is not a table that keeps a distance from its records")
        if radius <= 0:
            raise ConfigError(f"`radius` must be above 0; got {radius!r}.")
        inside, outside = checked_vectors(release, members, non_members)
        records = np.concatenate([inside, outside]).astype(np.float64)
        X = release.tensors["X"].astype(np.float64)
        # The holder compared in float32: a vector right at the edge may lie on either side.
        within = _count(records, X, radius * (1 - 1e-6))
        if self.decoder is None:
            expected = _count(records, X, _SHELL * radius) - within
        else:
            drawn = self.decoder.sample(self.samples, random_state=rng, as_frame=False)[0].astype(np.float64)
            expected = _count(records, drawn, radius)
        scores = np.where(within > 0, -within, expected).astype(np.float64)
        return Scores(scores[: len(members)], scores[len(members) :])

    def _radius(self, release: Release) -> float | None:
        radius = release.manifest.settings.get("min_distance") if self.radius is None else self.radius
        return float(radius) if isinstance(radius, Real) else None


def _count(records: Floats, X: Floats, radius: float) -> npt.NDArray[np.int64]:
    """How many of `X` lie closer than `radius` to each record."""
    mean = X.mean(axis=0)
    counts = np.empty(len(records), dtype=np.int64)
    for start in range(0, len(records), _ROWS):
        part = slice(start, start + _ROWS)
        counts[part] = (squared_distances(records[part] - mean, X - mean) < radius**2).sum(axis=1)
    return counts
