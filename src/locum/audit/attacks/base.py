"""What a membership attack gives: one number a record, larger where the record looks more like a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import DataError
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet


class Attack(Protocol):
    """One way to hurt; judged on records that were used and on records that were not."""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack `release`; members and non-members come from one population and share no subject."""
        ...


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One score for each member (`inside`) and each non-member (`outside`), in the order of their sets.

    Larger says "member". Only their order counts, and the order must not depend on which is which.
    """

    inside: Floats
    outside: Floats

    def __post_init__(self) -> None:
        for name in ("inside", "outside"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or not len(values) or np.isnan(values).any():
                raise DataError(f"An attack must give one number for each record; `{name}` is not such a list.")
            object.__setattr__(self, name, values)


class ScoreAttack(Protocol):
    """An attack that scores records; `evaluate_scores` makes a result of it."""

    @property
    def name(self) -> str:
        """In a few words, as reports show it."""
        ...

    def score(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> Scores:
        """Score every record; members and non-members must be treated alike."""
        ...


def alike(members: EmbeddingSet, non_members: EmbeddingSet) -> tuple[Floats, npt.NDArray[Any]]:
    """Vectors and labels of both in one table, members first: what an attack may treat them as."""
    return np.concatenate([members.X, non_members.X]).astype(np.float64), np.concatenate([members.y, non_members.y])
