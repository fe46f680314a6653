"""Nearest-patient re-identification: does the release lead from one record of a person to another?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import evaluate_shares
from locum.audit.view import look
from locum.errors import ConfigError
from locum.metrics import nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate

LEAST_SUBJECTS = 5


@dataclass(frozen=True, slots=True)
class Reidentification:
    """From one record of a person to the nearest released vector, and on to whoever is nearest to that.

    Of each person with two records or more, one is the attacker's, and one lies in a gallery of as many people.
    Re-identified is who is found at the end of: own record, nearest released vector, nearest record of the gallery.
    `attack` is the share among members, `control` that among equally many people who were not used, `baseline` one
    in as many as the gallery holds. A dense release leads from anybody to themselves, with or without them in it:
    only the excess of members is its doing.
    """

    samples: int = 20_000
    name: str = "re-identification"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        if members.subject is None or non_members.subject is None:
            return "not applicable: the data do not say which records belong to one person"
        subjects = min(len(_subjects(members)), len(_subjects(non_members)))
        if subjects < LEAST_SUBJECTS:
            return (
                f"not applicable: {subjects} people have two records or more on one side; {LEAST_SUBJECTS} are needed"
            )
        return ""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a release that is a fixed table."""
        if reason := self.why_not(release, members, non_members):
            raise ConfigError(f"Re-identification is {reason}.")
        seen = look(release, members, non_members, self.samples, rng)
        size = min(len(_subjects(members)), len(_subjects(non_members)))
        found = []
        for X, data in ((seen.inside, members), (seen.outside, non_members)):
            own, gallery = _pairs(data, size, rng)
            bridge = nearest(X[own], seen.samples)[1]
            found.append(nearest(seen.samples[bridge], X[gallery])[1] == np.arange(size))
        return evaluate_shares(self.name, found[0], found[1], baseline=Estimate.exact(1 / size))


def _subjects(data: EmbeddingSet) -> npt.NDArray[np.generic]:
    """Who has two records or more."""
    who, counts = np.unique(np.asarray(data.subject), return_counts=True)
    return np.asarray(who[counts > 1])


def _pairs(
    data: EmbeddingSet, size: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Two different records of each of `size` people, all drawn by lot."""
    subjects = rng.permutation(_subjects(data))[:size]
    picked = [rng.permutation(np.flatnonzero(data.subject == who))[:2] for who in subjects]
    both = np.array(picked, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
