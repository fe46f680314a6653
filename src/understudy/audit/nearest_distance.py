"""The first attack: is a record closer to the samples than a stranger is?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from understudy.errors import DataError
from understudy.metrics import membership_auc, nearest
from understudy.release import Release
from understudy.types import AttackResult, EmbeddingSet, Estimate

__all__ = ["NearestDistance"]


@dataclass(frozen=True, slots=True)
class NearestDistance:
    """Guess "member" where the nearest of `samples` draws is close; judged by AUC.

    The control plays the same game between two halves of the non-members. A cheap first look, not an audit:
    it sees copies and near copies, and misses what a decoder remembers in other ways. Members and
    non-members must come from one population and share no subject.
    """

    samples: int = 20_000

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a release that is a fixed table."""
        if len(members) < 2 or len(non_members) < 4:
            raise DataError(
                "The membership check needs at least 2 members and 4 records that were not used; "
                f"got {len(members)} and {len(non_members)}."
            )
        X, _ = release.sample(None if release.manifest.kind == "data" else self.samples, random_state=rng)
        near = nearest(release.transform(members.X), X)[0]
        far = nearest(release.transform(non_members.X), X)[0]
        half = rng.permutation(len(far))
        return AttackResult(
            name="nearest distance",
            attack=membership_auc(near, far),
            control=membership_auc(far[half[::2]], far[half[1::2]]),
            baseline=Estimate.exact(0.5),
        )
