"""The first attack: is a record closer to the samples than a stranger is?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locum.audit.attacks.base import Scores
from locum.audit.view import check_apart, look, spread
from locum.metrics import membership_auc, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate


@dataclass(frozen=True, slots=True)
class NearestDistance:
    """Guess "member" where the nearest of `samples` draws is close; judged by AUC.

    The control plays the same game between two halves of the non-members. A cheap first look, not an audit:
    it sees copies and near copies, and misses what a decoder remembers in other ways. Members and
    non-members must come from one population and share no subject.
    """

    samples: int = 20_000
    name: str = "nearest distance"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Minus the distance to the nearest of fresh samples, or of all rows of a release that is a fixed table."""
        seen = look(release, members, non_members, self.samples, rng)
        return Scores(-nearest(seen.inside, seen.samples)[0], -nearest(seen.outside, seen.samples)[0])

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """The first look, after every fit: AUC and control alone, on the members' scale; `score` serves the audit."""
        inside, outside = check_apart(release, members, non_members)
        X, _ = release.sample(None if release.manifest.kind == "data" else self.samples, random_state=rng)
        scale = spread(inside)
        near, far = (nearest(a / scale, X / scale)[0] for a in (inside, outside))
        half = rng.permutation(len(far))
        return AttackResult(
            name=self.name,
            attack=membership_auc(near, far),
            control=membership_auc(far[half[::2]], far[half[1::2]]),
            baseline=Estimate.exact(0.5),
        )
