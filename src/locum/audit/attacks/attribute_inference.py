"""Attribute inference: does the release tell a fact about those who are in it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.audit.statistics import evaluate_shares
from locum.audit.view import check_apart, one_per_subject, spread
from locum.errors import ConfigError
from locum.metrics import clopper_pearson, nearest
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet

Labels = npt.NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class AttributeInference:
    """Knowing part of a record's vector, guess its `attribute` from the nearest released vector.

    `attribute` is a condition of the release that both sets have as a column, or the class, if none is named.
    `known` is the share of features that the attacker knows, drawn at random. `attack` is the share of right guesses
    for members, `control` that for non-members, `baseline` that of always guessing the commonest value. What holds
    for strangers too is knowledge about the population, which a release is for.
    """

    attribute: str | None = None
    known: float = 0.5
    samples: int = 20_000
    name: str = "attribute inference"

    def why_not(self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> str:
        """Why this attack does not apply here; empty where it does."""
        if self.attribute is None:
            return "" if len(release.classes) > 1 else "not applicable: the release has one class only"
        if self.attribute not in inferable(release, members, non_members):
            return f"not applicable: release and data do not share an attribute {self.attribute!r}"
        return ""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack with fresh samples, or with all rows of a release that is a fixed table."""
        if reason := self.why_not(release, members, non_members):
            raise ConfigError(f"Attribute inference is {reason}.")
        if not 0 < self.known <= 1:
            raise ConfigError(f"`known` must be a share of the features, above 0; got {self.known!r}.")
        inside, outside = check_apart(release, members, non_members)
        drawn = release.sample_set(None if release.manifest.kind == "data" else self.samples, random_state=rng)
        columns = rng.permutation(members.dim)[: max(1, round(self.known * members.dim))]
        scale = spread(np.concatenate([inside, outside]))[columns]
        told = self._values(drawn, release)
        mine, theirs = one_per_subject(members, rng), one_per_subject(non_members, rng)
        right, truth = [], []
        for X, data, rows in ((inside, members, mine), (outside, non_members, theirs)):
            index = nearest(X[rows][:, columns] / scale, drawn.X[:, columns] / scale)[1]
            truth.append(self._values(data, release)[rows])
            right.append(told[index] == truth[-1])
        # Strangers say what is common: the members' own mode would be a bit of knowledge about them.
        values, counts = np.unique(truth[1], return_counts=True)
        common = int((truth[0] == values[np.argmax(counts)]).sum())
        return evaluate_shares(
            f"{self.name}: {self.attribute or 'class'}",
            right[0],
            right[1],
            baseline=clopper_pearson(common, len(mine)),
            members=members.take(mine),
        )

    def _values(self, data: EmbeddingSet, release: Release) -> Labels:
        return data.labels if self.attribute is None else data.attributes[self.attribute].astype(np.str_)


def inferable(release: Release, members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[str, ...]:
    """Conditions of the release that both sets have as columns."""
    names = (c.name for c in release.manifest.conditions)
    return tuple(n for n in names if n in members.attributes and n in non_members.attributes)
