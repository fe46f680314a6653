"""What an attack is."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from understudy.release import Release
from understudy.types import AttackResult, EmbeddingSet

__all__ = ["Attack"]


class Attack(Protocol):
    """One way to hurt; judged on records that were used and on records that were not."""

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        """Attack `release`; members and non-members come from one population and share no subject."""
        ...
