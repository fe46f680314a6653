"""Nearest distance: are members closer to the samples than non-members are?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locum.audit.attacks.base import ScoreAttack
from locum.audit.checks import shift_problem, with_problems, without_shared
from locum.audit.statistics import Scores
from locum.audit.view import make_view
from locum.metrics import membership_auc, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate


@dataclass(frozen=True, slots=True)
class NearestDistance(ScoreAttack):
    """Guess "member" if the nearest of many samples is close. The score is minus that distance.

    It detects copies and near copies, and misses what a decoder memorizes in other ways.

    Parameters
    ----------
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import NearestDistance
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> NearestDistance(samples=500).run(release, members, others, rng).verdict
    'inconclusive'
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

    The control is the same attack between two halves of the non-members. This is not an audit. If members and
    non-members come from different populations, as the audit tests it, the result is inconclusive and says so. They
    must share no subject.

    Parameters
    ----------
    release
        The release to attack.
    members
        The records that it was made from.
    non_members
        Other records of the same population; at least 4.
    rng
        Draws the samples and the halves.
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.

    Returns
    -------
    AttackResult
        Private: it depends on the records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import check_membership
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> found = check_membership(release, members, others, rng, samples=500)
    >>> found.baseline.value, found.p_value
    (0.5, None)
    """
    attack = NearestDistance(samples)
    scores = attack.score(release, members, non_members, rng)
    near, far = -scores.inside, -scores.outside
    half = rng.permutation(len(far))
    result = AttackResult(
        name=attack.name,
        measure="auc",
        attack=membership_auc(near, far),
        control=membership_auc(far[half[::2]], far[half[1::2]]),
        baseline=Estimate.exact(0.5),
    )
    # As in the audit: otherwise `fit` would call a leak what is a difference between two populations.
    return with_problems(result, shift_problem(*without_shared(members, non_members), rng))
