"""A generator that remembers one record: seen by how close it comes, not by how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.audit.view import look
from locum.errors import DataError
from locum.metrics import clopper_pearson, k_nearest, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Estimate

Floats = npt.NDArray[np.floating[Any]]
LEAST_DISTANCES = 20
_SHARE = 0.1


def lower_tail(distances: Floats, reference: Floats) -> Floats:
    """Chance that one more distance of the kind of `reference` is as small as each of `distances`.

    Near 0, the chance to lie within r of some sample grows like a power of r, whatever the population: log-distances
    have an exponential tail, whose rate is the number of directions in which data vary. The rate is estimated from
    the smallest tenth of the reference, and the answer holds for an estimated rate, not for a known one: it is
    larger. Further up the tail falls more slowly, so the estimate errs towards "not surprising". Where the reference
    has distances up to twice as large, they are counted as if they were as small: only beyond is anything assumed.
    An exact copy has chance 0, unless the reference has copies too.
    """
    m = len(reference)
    if m < LEAST_DISTANCES:
        raise DataError(f"A tail needs at least {LEAST_DISTANCES} distances; got {m}.")
    ordered = np.sort(reference)
    counted = (1 + np.searchsorted(ordered, distances, side="right")) / (m + 1)
    # Twins lie at a distance of their own kind, somewhat more here and less there: no tail describes them.
    alike = np.searchsorted(ordered, 2 * distances, side="right") / (m + 1)
    k = max(5, round(_SHARE * m))
    bar, tail = ordered[k], ordered[:k]
    if bar <= 0 or tail[0] <= 0:
        # Copies among strangers: there is no power law here, and a count is all there is.
        return np.asarray(counted)
    mean_excess = float(np.log(bar / tail).mean())
    with np.errstate(divide="ignore"):
        excess = np.log(bar) - np.log(distances)
    if mean_excess == 0:
        return np.asarray(counted)
    with np.errstate(over="ignore"):
        # The excess over a mean of k exponentials is Pareto: exact for a rate that is itself an estimate.
        extended = (k / (m + 1)) * (1 + np.maximum(excess, 0) / (k * mean_excess)) ** -k
    return np.asarray(np.maximum(np.where(distances >= ordered[0], counted, np.minimum(extended, counted)), alike))


_FOUND = 0.01
_CROWD = 5
_CROWD_ROWS = 5000
_TWINS = (
    "members lie closer to the release than strangers do, but records of this population lie as close to each other: "
    "what is released may be somebody else's"
)


@dataclass(frozen=True, slots=True)
class ClosestRecord:
    """Is some member closer to the release than any stranger could be by chance?

    One hit among thousands moves no rank, so magnitudes count: how surprising is a member's distance to its nearest
    released vector, given the distances of non-members, extended below the smallest by their own tail, and corrected
    for the number of members. `attack` is the share of members found so, `control` the same among non-members of
    which one half judges the other. Where samples recur within a small ball, their mean joins them: it shows what
    they were scattered around.

    Where records of the population repeat each other, a copy can be another person's: the distance must also surprise
    beside those between different records, and what does not is inconclusive. `repeats` counts pairs of equal records
    that were taken out of both sets before. A population whose only twins are a member and a record that the release
    shows is not told from one remembered record.
    """

    samples: int = 20_000
    repeats: int = 0
    name: str = "closest record"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        if len(non_members) < 2 * LEAST_DISTANCES:
            return f"not applicable: it takes {2 * LEAST_DISTANCES} non-members or more; there are {len(non_members)}"
        return ""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples and the means of those that recur."""
        if reason := self.why_not(release, members, non_members):
            raise DataError(f"The closest-record attack is {reason}.")
        seen = look(release, members, non_members, self.samples, rng)
        centres = recurring(seen.samples, rng)
        released = np.concatenate([seen.samples, centres])
        near, far = nearest(seen.inside, released)[0], nearest(seen.outside, released)[0]
        pool = seen.records
        within = np.append(nearest(pool, pool, exclude_self=True)[0], np.zeros(2 * self.repeats))
        # The release has more vectors to come close with than the pool has.
        more = max(1.0, len(released) / (len(pool) - 1))
        strange = len(near) * lower_tail(near, far)
        p = np.maximum(strange, len(near) * more * lower_tail(near, within))
        half = rng.permutation(len(far)) % 2
        control = np.empty(len(far), dtype=bool)
        for side in (0, 1):
            mine = half == side
            judged = np.maximum(lower_tail(far[mine], far[~mine]), more * lower_tail(far[mine], within))
            control[mine] = mine.sum() * judged <= _FOUND
        found = p <= _FOUND
        twins = not found.any() and bool((strange <= _FOUND).any())
        return AttackResult(
            name=self.name,
            attack=clopper_pearson(int(found.sum()), len(found)),
            control=clopper_pearson(int(control.sum()), len(control)),
            baseline=Estimate.exact(0.0),
            p_value=float(min(1.0, p.min())),
            notes=_notes(near, centres, len(seen.samples)),
            inconclusive_because=_TWINS if twins else "",
        )


def recurring(samples: Floats, rng: np.random.Generator) -> Floats:
    """Means of five samples that lie four times closer together than is usual; looked for among 5,000 of them."""
    some = samples[rng.permutation(len(samples))[:_CROWD_ROWS]]
    if len(some) <= 2 * _CROWD:
        return some[:0]
    distances, index = k_nearest(some, some, _CROWD - 1, exclude_self=True)
    tight = np.flatnonzero(distances[:, -1] < 0.25 * np.median(distances[:, -1]))
    own = np.column_stack([tight, index[tight]])
    return np.asarray(some[own].mean(axis=1, dtype=np.float64), dtype=samples.dtype)


def _notes(near: npt.NDArray[np.float64], centres: Floats, n: int) -> tuple[str, ...]:
    out = []
    if copies := int((near == 0).sum()):
        out.append(f"{copies} members are released as they are, to the last digit")
    if len(centres):
        out.append(f"{len(centres)} of {min(n, _CROWD_ROWS)} released vectors recur within a small ball")
    return tuple(out)
