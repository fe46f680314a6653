"""Attribute inference: does the release reveal an attribute of its own members?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import evaluate_shares
from locum.audit.view import checked_vectors, one_per_subject
from locum.errors import ConfigError, NotApplicableError
from locum.metrics import clopper_pearson, feature_scale, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet

Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class AttributeInference:
    """Knowing part of a record's vector, guess an attribute of it from the nearest released vector.

    `attack` is the share of right guesses for members, `control` that for non-members, and `baseline` that of always
    guessing the most common value. What can be guessed for non-members too is knowledge about the population, which
    is what a release is for.

    Parameters
    ----------
    attribute
        A condition of the release that both sets have as a column; None: the class.
    known
        Share of the features that the attacker knows, drawn at random: above 0, at most 1.
    samples
        How many vectors to draw from a decoder; a fixed table gives all its rows.
    name
        Name in reports; the attribute is added to it.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import AttributeInference
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> AttributeInference(samples=500).run(release, members, others, rng).name
    'attribute inference: class'
    """

    attribute: str | None = None
    known: float = 0.5
    samples: int = 20_000
    name: str = "attribute inference"

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a fixed table."""
        if not 0 < self.known <= 1:
            raise ConfigError(f"`known` must be a share of the features, above 0; got {self.known!r}.")
        if self.attribute is None and len(release.classes) < 2:
            raise NotApplicableError(self.name, "the release has only one class")
        if self.attribute is not None and self.attribute not in inferable(release, members, non_members):
            reason = f"{self.attribute!r} is not an attribute of the release, the members and the non-members"
            raise NotApplicableError(self.name, reason)
        inside, outside = checked_vectors(release, members, non_members)
        drawn = release.sample_set(None if release.manifest.kind == "data" else self.samples, random_state=rng)
        columns = rng.permutation(members.dim)[: max(1, round(self.known * members.dim))]
        scale = feature_scale(np.concatenate([inside, outside]))[columns]
        released = self._values(drawn)
        mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
        right, truth = [], []
        for X, data, rows in ((inside, members, mine), (outside, non_members, theirs)):
            index = nearest(X[rows][:, columns] / scale, drawn.X[:, columns] / scale)[1]
            truth.append(self._values(data)[rows])
            right.append(released[index] == truth[-1])
        # Non-members say what is common: the members' own mode would already be knowledge about members.
        values, counts = np.unique(truth[1], return_counts=True)
        common = int((truth[0] == values[np.argmax(counts)]).sum())
        return evaluate_shares(
            f"{self.name}: {self.attribute or 'class'}",
            right[0],
            right[1],
            baseline=clopper_pearson(common, len(mine)),
            members=members.take(mine),
        )

    def _values(self, data: EmbeddingSet) -> Labels:
        return data.labels if self.attribute is None else data.attributes[self.attribute].astype(np.str_)


def inferable(release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[str, ...]:
    """Conditions of the release that both sets have as columns."""
    names = (c.name for c in release.manifest.conditions)
    return tuple(n for n in names if n in members.attributes and n in non_members.attributes)
