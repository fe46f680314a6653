"""Nearest distance: are members closer to the samples than non-members are?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locum.audit.attacks.base import ScoreAttack
from locum.audit.statistics import Scores
from locum.audit.view import make_view
from locum.metrics import membership_auc, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate


@dataclass(frozen=True, slots=True)
class NearestDistance(ScoreAttack):
    """Guess "member" if the nearest of `samples` draws is close. The score is minus that distance.

    It detects copies and near copies, and misses what a decoder memorizes in other ways.
    """

    samples: int = 20_000
    name: str = "nearest distance"

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Minus the distance to the nearest of fresh samples, or of all rows of a fixed table."""
        view = make_view(release, members, non_members, self.samples, rng)
        return Scores(-nearest(view.inside, view.samples)[0], -nearest(view.outside, view.samples)[0])


def check_membership(
    release: Release,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    rng: np.random.Generator,
    *,
    samples: int = 20_000,
) -> AttackResult:
    """The quick check after every fit: the AUC of `NearestDistance` and its control, without a p-value.

    The control is the same attack between two halves of the non-members. This is not an audit. Members and
    non-members must come from one population and share no subject.
    """
    attack = NearestDistance(samples)
    scores = attack.score(release, members, non_members, rng)
    near, far = -scores.inside, -scores.outside
    half = rng.permutation(len(far))
    return AttackResult(
        name=attack.name,
        measure="auc",
        attack=membership_auc(near, far),
        control=membership_auc(far[half[::2]], far[half[1::2]]),
        baseline=Estimate.exact(0.5),
    )
