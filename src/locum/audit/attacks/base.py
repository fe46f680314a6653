"""What every attack offers to `audit()`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, final

import numpy as np

from locum.audit.statistics import Scores, evaluate_scores
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet


class Attack(Protocol):
    """One way to learn about the records behind a release, judged on members and on non-members.

    Any object with a `name` and this `run` can be given to `audit(attacks=[...])`.
    """

    @property
    def name(self) -> str:
        """A short name, as reports show it."""
        ...

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack `release`; members and non-members come from one population and share no subject.

        Raises `NotApplicableError` if the attack does not apply to this release or these records.
        """
        ...


class ScoreAttack(ABC):
    """An `Attack` that gives each record a score. Subclasses write `score`; `run` follows from it.

    Only attacks of this kind can say which records are most exposed.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import ScoreAttack, Scores
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> class Length(ScoreAttack):
    ...     name = "length of the vector"
    ...
    ...     def score(self, release, members, non_members, rng):
    ...         return Scores(*(np.linalg.norm(release.transform(s.X), axis=1) for s in (members, non_members)))
    >>> Length().run(release, members, others, rng).measure
    'auc'
    """

    __slots__ = ()
    name: str

    @abstractmethod
    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; members and non-members must be treated alike."""

    @final
    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Score every record, then evaluate the scores."""
        scores = self.score(release, members, non_members, rng)
        return evaluate_scores(self.name, scores, members, non_members, rng)
