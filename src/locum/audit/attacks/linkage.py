"""Record linkage: does the release join two halves of what is known about a person?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from locum.audit.statistics import evaluate_shares
from locum.audit.view import look, one_per_subject
from locum.errors import DataError
from locum.metrics import nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate


@dataclass(frozen=True, slots=True)
class Linkage:
    """Two parties know disjoint halves of a record's features; linked, if both find the same released vector nearest.

    `attack` is the share of members that are linked, `control` that of non-members, `baseline` one in as many as
    there are vectors. Halves of the features are drawn at random. Features that hang together link strangers as
    well: only what members have beyond that is the release's doing.
    """

    samples: int = 5000
    name: str = "record linkage"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        return "" if members.dim > 1 else "not applicable: it takes two features or more, one for each party"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a release that is a fixed table."""
        if reason := self.why_not(release, members, non_members):
            raise DataError(f"Record linkage is {reason}.")
        seen = look(release, members, non_members, self.samples, rng)
        order = rng.permutation(members.dim)
        parts = order[: members.dim // 2], order[members.dim // 2 :]
        # Equal rows are one answer, whoever names which of them.
        vectors = np.unique(seen.samples, axis=0)
        first, second = (nearest(seen.records[:, part], vectors[:, part])[1] for part in parts)
        linked = first == second
        mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
        return evaluate_shares(
            self.name,
            linked[: len(members)][mine],
            linked[len(members) :][theirs],
            baseline=Estimate.exact(1 / len(vectors)),
            members=members.take(mine),
        )
