"""From one record of a person to another, by way of the release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import Reidentification
from locum.errors import ConfigError

RNG = np.random.default_rng


def persons(seed: int, first: int, n: int = 60) -> EmbeddingSet:
    """Three records of each of `n` people."""
    rng = RNG(seed)
    who = np.repeat(np.arange(n), 3)
    X = rng.normal(size=(n, 12))[who] + 0.3 * rng.normal(size=(3 * n, 12))
    return EmbeddingSet(X.astype(np.float32), who % 2, first + who)


def test_a_release_leads_from_a_person_to_themselves(rows: Any) -> None:
    members, others, non_members = persons(0, 0), persons(1, 100), persons(2, 200)
    attack = Reidentification()
    result = attack.run(rows(members.X, members.y), members, others, RNG(0))
    assert result.verdict == "leak"
    assert result.attack.low > 0.8
    assert result.attack.n == 60
    assert result.baseline.value == 1 / 60
    assert attack.run(rows(non_members.X, non_members.y), members, others, RNG(0)).verdict != "leak"


def test_people_must_be_known(rows: Any) -> None:
    members, others = persons(0, 0), persons(1, 100)
    release = rows(members.X, members.y)
    nameless = EmbeddingSet(others.X, others.y)
    assert "which records belong" in Reidentification().why_not(release, members, nameless)
    with pytest.raises(ConfigError, match="4 people have two records"):
        Reidentification().run(release, members, others.take(np.arange(12)), RNG(0))
