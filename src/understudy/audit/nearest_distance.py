"""The first attack: is a record closer to the samples than a stranger is?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError
from understudy.metrics import membership_auc, nearest
from understudy.release import Release
from understudy.types import AttackResult, EmbeddingSet, Estimate

__all__ = ["LEAST_NON_MEMBERS", "NearestDistance"]

# The control splits them into two halves of two.
LEAST_NON_MEMBERS = 4


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
        if len(members) < 2 or len(non_members) < LEAST_NON_MEMBERS:
            raise DataError(
                f"The membership check needs at least 2 members and {LEAST_NON_MEMBERS} records that were not used; "
                f"got {len(members)} and {len(non_members)}."
            )
        inside, outside = release.transform(members.X), release.transform(non_members.X)
        _check_apart(members, non_members, nearest(outside, inside)[0])
        X, _ = release.sample(None if release.manifest.kind == "data" else self.samples, random_state=rng)
        # One scale for all features, or the one with the largest unit decides alone; but a feature that hardly
        # varies must not decide by its noise.
        spread = inside.std(axis=0)
        varying = spread[spread > 0]
        spread = np.maximum(spread, 0.1 * np.median(varying) if len(varying) else 1)
        near, far = (nearest(a / spread, X / spread)[0] for a in (inside, outside))
        half = rng.permutation(len(far))
        return AttackResult(
            name="nearest distance",
            attack=membership_auc(near, far),
            control=membership_auc(far[half[::2]], far[half[1::2]]),
            baseline=Estimate.exact(0.5),
        )


def _check_apart(members: EmbeddingSet, non_members: EmbeddingSet, distance: npt.NDArray[np.float64]) -> None:
    """Members among the non-members would make any release look harmless."""
    if members.subject is not None and non_members.subject is not None:
        shared = len(np.intersect1d(members.subject, non_members.subject))
        if shared:
            raise DataError(f"{shared} subjects are both members and non-members: the check needs other people.")
    copies = int((distance == 0).sum())
    if copies > 0.05 * len(non_members):
        raise DataError(
            f"{copies} of {len(non_members)} non-members equal a member: they are not other records. "
            "Give records that the fit did not use."
        )
