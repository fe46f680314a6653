"""Closest record: detects a generator that memorized even one record, by how close it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.audit.view import make_view
from locum.errors import DataError, NotApplicableError
from locum.metrics import clopper_pearson, k_nearest, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate

Floats = npt.NDArray[np.floating[Any]]
LEAST_DISTANCES = 20
_SHARE = 0.1


def lower_tail(distances: Floats, reference: Floats) -> Floats:
    """Probability that another distance like those in `reference` is as small as each of `distances`.

    Near 0, the probability of lying within r of some sample grows like a power of r, whatever the population: the
    logs of distances have an exponential tail, whose rate is the number of directions in which the data vary. The
    rate is estimated from the smallest tenth of the reference, and the result allows for the error of that estimate.
    Further up, the tail falls more slowly, so the result errs toward "not surprising". Reference distances up to
    twice as large are counted as if they were as small: the tail is extrapolated only beyond them. An exact copy has
    probability 0, unless the reference has copies too.
    """
    m = len(reference)
    if m < LEAST_DISTANCES:
        raise DataError(f"The tail needs at least {LEAST_DISTANCES} reference distances; got {m}.")
    ordered = np.sort(reference)
    counted = (1 + np.searchsorted(ordered, distances, side="right")) / (m + 1)
    # Distances between near duplicates follow no tail: they are counted.
    alike = np.searchsorted(ordered, 2 * distances, side="right") / (m + 1)
    k = max(5, round(_SHARE * m))
    bar, tail = ordered[k], ordered[:k]
    if bar <= 0 or tail[0] <= 0:
        # There are copies among the non-members, so no power law: only counts are left.
        return np.asarray(counted)
    mean_excess = float(np.log(bar / tail).mean())
    with np.errstate(divide="ignore"):
        excess = np.log(bar) - np.log(distances)
    if mean_excess == 0:
        return np.asarray(counted)
    with np.errstate(over="ignore"):
        # An exponential divided by the mean of k others is Pareto distributed: exact for an estimated rate.
        extended = (k / (m + 1)) * (1 + np.maximum(excess, 0) / (k * mean_excess)) ** -k
    return np.asarray(np.maximum(np.where(distances >= ordered[0], counted, np.minimum(extended, counted)), alike))


_FOUND = 0.01
_CROWD = 5
_CROWD_ROWS = 5000
_DUPLICATES = (
    "members lie closer to the release than non-members do, but records of this population lie as close to each "
    "other: what was released may be another subject's record"
)


@dataclass(frozen=True, slots=True)
class ClosestRecord:
    """Find members that lie closer to the release than a non-member could by chance.

    One hit among thousands hardly changes ranks, so distances count: how improbable is a member's distance to its
    nearest released vector, given the distances of non-members, extrapolated below the smallest one, and corrected
    for the number of members? `attack` is the share of members found this way, and `control` the same among
    non-members, where each half is judged by the other. If samples recur within a small ball, their mean is added to
    the samples: it shows what they were scattered around.

    If records of the population repeat each other, a copy may be another subject's record. So the distance must also
    be improbable compared with those between different records; otherwise the result is inconclusive. If the only
    near duplicates of a population are a member and a released record, this cannot be told from one memorized record.
    At least 40 non-members are needed.

    Parameters
    ----------
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.
    repeats
        How many pairs of equal records were removed from both sets before.
    name
        Name in reports.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import ClosestRecord
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> ClosestRecord(samples=500).run(release, members, others, rng).attack.value
    0.0
    """

    samples: int = 20_000
    repeats: int = 0
    name: str = "closest record"

    def too_few(self, non_members: EmbeddingSet) -> str:
        """Why so few non-members do not allow it; empty if they do."""
        enough = len(non_members) >= 2 * LEAST_DISTANCES
        return "" if enough else f"it needs at least {2 * LEAST_DISTANCES} non-members; there are {len(non_members)}"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples and the means of those that recur."""
        if reason := self.too_few(non_members):
            raise NotApplicableError(self.name, reason)
        view = make_view(release, members, non_members, self.samples, rng)
        centers = recurring(view.samples, rng)
        released = np.concatenate([view.samples, centers])
        near, far = nearest(view.inside, released)[0], nearest(view.outside, released)[0]
        pool = view.records
        within = np.append(nearest(pool, pool, exclude_self=True)[0], np.zeros(2 * self.repeats))
        # The release has more vectors than the pool, and so more chances to come close.
        more = max(1.0, len(released) / (len(pool) - 1))
        unlikely = len(near) * lower_tail(near, far)
        p = np.maximum(unlikely, len(near) * more * lower_tail(near, within))
        half = rng.permutation(len(far)) % 2
        control = np.empty(len(far), dtype=bool)
        for side in (0, 1):
            mine = half == side
            judged = np.maximum(lower_tail(far[mine], far[~mine]), more * lower_tail(far[mine], within))
            control[mine] = mine.sum() * judged <= _FOUND
        found = p <= _FOUND
        duplicates = not found.any() and bool((unlikely <= _FOUND).any())
        return AttackResult(
            name=self.name,
            measure="share",
            attack=clopper_pearson(int(found.sum()), len(found)),
            control=clopper_pearson(int(control.sum()), len(control)),
            baseline=Estimate.exact(0.0),
            p_value=float(min(1.0, p.min())),
            notes=_notes(near, centers, len(view.samples)),
            inconclusive_because=_DUPLICATES if duplicates else "",
        )


def recurring(samples: Floats, rng: np.random.Generator) -> Floats:
    """Means of five samples that lie four times closer together than usual; at most 5,000 samples are searched."""
    some = samples[rng.permutation(len(samples))[:_CROWD_ROWS]]
    if len(some) <= 2 * _CROWD:
        return some[:0]
    distances, index = k_nearest(some, some, _CROWD - 1, exclude_self=True)
    tight = np.flatnonzero(distances[:, -1] < 0.25 * np.median(distances[:, -1]))
    own = np.column_stack([tight, index[tight]])
    return np.asarray(some[own].mean(axis=1, dtype=np.float64), dtype=samples.dtype)


def _notes(near: npt.NDArray[np.float64], centers: Floats, n: int) -> tuple[str, ...]:
    out = []
    if copies := int((near == 0).sum()):
        out.append(f"{copies} members were released as exact copies")
    if len(centers):
        out.append(f"{len(centers)} of {min(n, _CROWD_ROWS)} released vectors recur within a small ball")
    return tuple(out)
