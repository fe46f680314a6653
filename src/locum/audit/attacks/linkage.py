"""Record linkage: does the release connect two halves of what is known about a record?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locum.audit.statistics import evaluate_shares
from locum.audit.view import make_view, one_per_subject
from locum.errors import NotApplicableError
from locum.metrics import nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate


@dataclass(frozen=True, slots=True)
class Linkage:
    """Two parties know disjoint halves of a record's features; it is linked if both find the same vector nearest.

    `attack` is the share of members that are linked, `control` that of non-members, and `baseline` one divided by the
    number of released vectors. The halves are drawn at random. Correlated features link non-members as well: only
    the excess of members counts.

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
    >>> from locum.audit import Linkage
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> Linkage(samples=500).run(release, members, others, rng).baseline.value
    0.002
    """

    samples: int = 5000
    name: str = "record linkage"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a fixed table."""
        if members.dim < 2:
            raise NotApplicableError(self.name, "it needs at least two features, one for each party")
        view = make_view(release, members, non_members, self.samples, rng)
        order = rng.permutation(members.dim)
        halves = order[: members.dim // 2], order[members.dim // 2 :]
        # Equal rows count as one vector.
        vectors = np.unique(view.samples, axis=0)
        first, second = (nearest(view.records[:, half], vectors[:, half])[1] for half in halves)
        linked = first == second
        mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
        return evaluate_shares(
            self.name,
            linked[: len(members)][mine],
            linked[len(members) :][theirs],
            baseline=Estimate.exact(1 / len(vectors)),
            members=members.take(mine),
        )
