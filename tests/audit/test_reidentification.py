"""From one record of a subject to another, by way of the release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import Reidentification
from locum.errors import NotApplicableError

RNG = np.random.default_rng


def several(seed: int, first: int, n: int = 60) -> EmbeddingSet:
    """Three records of each of `n` subjects."""
    rng = RNG(seed)
    who = np.repeat(np.arange(n), 3)
    X = rng.normal(size=(n, 12))[who] + 0.3 * rng.normal(size=(3 * n, 12))
    return EmbeddingSet(X.astype(np.float32), who % 2, first + who)


def test_a_release_leads_from_a_subject_to_itself(rows: Any) -> None:
    members, others, non_members = several(0, 0), several(1, 100), several(2, 200)
    attack = Reidentification()
    result = attack.run(rows(members.X, members.y), members, others, RNG(0))
    assert result.verdict == "leak"
    assert result.attack.low > 0.8
    assert result.attack.n == 60
    assert result.baseline.value == 1 / 60
    assert attack.run(rows(non_members.X, non_members.y), members, others, RNG(0)).verdict != "leak"


def test_subjects_must_be_known(rows: Any) -> None:
    members, others = several(0, 0), several(1, 100)
    release = rows(members.X, members.y)
    nameless = EmbeddingSet(others.X, others.y)
    with pytest.raises(NotApplicableError, match="which records belong"):
        Reidentification().run(release, members, nameless, RNG(0))
    with pytest.raises(NotApplicableError, match="one set has 4"):
        Reidentification().run(release, members, others.take(np.arange(12)), RNG(0))
