"""The density ratio: it sees overfitting, and no record serves twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import DensityRatio
from locum.errors import ConfigError, NotApplicableError

RNG = np.random.default_rng


def test_the_density_ratio_sees_what_typicality_hides(subjects: Callable[..., Any], rows: Any) -> None:
    """Copies with wide jitter: typical strangers lie close to samples too, but not closer than to a reference."""
    members, others, non_members = subjects(0, n=300, d=8)
    noise = 0.3 * members.X.std(axis=0) * RNG(0).normal(size=members.X.shape)
    release = rows(members.X + noise, members.y)
    result = DensityRatio(reference=non_members).run(release, members, others, RNG(0))
    assert result.verdict == "leak"
    assert DensityRatio().run(release, members, others, RNG(0)).attack.n == 300 + 150


def test_the_density_ratio_keeps_its_level(subjects: Callable[..., Any], rows: Any) -> None:
    """Halves that scored each other gave three times too many alarms; three in 40 at 1 % have chance 0.008."""
    alarms = 0
    for seed in range(40):
        members, others, non_members = subjects(seed, n=100)
        result = DensityRatio().run(rows(non_members.X, non_members.y), members, others, RNG(seed))
        alarms += result.p_value <= 0.01
    assert alarms <= 2


def test_a_reference_of_other_people(subjects: Callable[..., Any], rows: Any) -> None:
    members, others, non_members = subjects(0, n=60)
    release = rows(non_members.X, non_members.y)
    one = EmbeddingSet(others.X, others.y, np.zeros(60, dtype=int))
    with pytest.raises(NotApplicableError, match="of different subjects"):
        DensityRatio().run(release, members, one, RNG(0))
    with pytest.raises(NotApplicableError, match="it needs 8 non-members"):
        DensityRatio().run(release, members, others.take(np.arange(6)), RNG(0))
    with pytest.raises(ConfigError, match="`neighbors`"):
        DensityRatio(neighbors=0).run(release, members, others, RNG(0))
