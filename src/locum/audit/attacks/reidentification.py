"""Re-identification: does the release lead from one record of a subject to another?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import evaluate_shares
from locum.audit.view import make_view
from locum.errors import NotApplicableError
from locum.metrics import nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate

LEAST_SUBJECTS = 5


@dataclass(frozen=True, slots=True)
class Reidentification:
    """From one record of a subject to the nearest released vector, and from there to the nearest other record.

    Of each subject with two or more records, the attacker has one, and another is in a gallery with one record per
    subject. A subject is re-identified if this path ends at its own record: attacker's record, nearest released
    vector, nearest record of the gallery. `attack` is the share among members, `control` that among equally many
    subjects who were not used, and `baseline` one divided by the size of the gallery. A dense release leads any
    subject to its own record, whether it was used or not: only the excess of members counts. Both sets need
    `subject`, with five or more subjects of two or more records.

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
    >>> from locum.audit import Reidentification
    >>> from locum.generate import ClassGaussian
    >>> rng, who = np.random.default_rng(0), np.arange(40) // 4
    >>> members, others = (EmbeddingSet(rng.normal(size=(40, 3)), np.arange(40) % 2, who + n) for n in (0, 100))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> Reidentification(samples=500).run(release, members, others, rng).baseline.value  # 10 subjects in each set
    0.1
    """

    samples: int = 20_000
    name: str = "re-identification"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a fixed table."""
        if members.subject is None or non_members.subject is None:
            raise NotApplicableError(self.name, "the data do not say which records belong to one subject")
        size = min(len(_subjects(members)), len(_subjects(non_members)))
        if size < LEAST_SUBJECTS:
            reason = f"it needs {LEAST_SUBJECTS} subjects with two or more records in each set; one set has {size}"
            raise NotApplicableError(self.name, reason)
        view = make_view(release, members, non_members, self.samples, rng)
        found = []
        for X, data in ((view.inside, members), (view.outside, non_members)):
            own, gallery = _pairs(data, size, rng)
            bridge = nearest(X[own], view.samples)[1]
            found.append(nearest(view.samples[bridge], X[gallery])[1] == np.arange(size))
        return evaluate_shares(self.name, found[0], found[1], baseline=Estimate.exact(1 / size))


def _subjects(data: EmbeddingSet) -> npt.NDArray[np.generic]:
    """Subjects with two or more records."""
    subjects, counts = np.unique(np.asarray(data.subject), return_counts=True)
    return np.asarray(subjects[counts > 1])


def _pairs(
    data: EmbeddingSet, size: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Two different records of each of `size` subjects, all drawn at random."""
    subjects = rng.permutation(_subjects(data))[:size]
    picked = [rng.permutation(np.flatnonzero(data.subject == subject))[:2] for subject in subjects]
    both = np.array(picked, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
