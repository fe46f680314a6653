"""A table that keeps a distance from its records reveals them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.audit import Hole
from locum.audit.statistics import evaluate_scores
from locum.errors import ConfigError, NotApplicableError
from locum.generate import ClassGaussian, replica

RNG = np.random.default_rng


@pytest.fixture
def holed(subjects: Callable[..., Any]) -> Any:
    members, others, non_members = subjects(0, n=300, d=3)
    decoder = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
    near = np.linalg.norm(members.X[:, None] - members.X[None], axis=2)
    np.fill_diagonal(near, np.inf)
    radius = 0.2 * float(np.median(near.min(axis=1)))
    kept = replica(decoder, 10_000, min_distance=radius, real=members.X, random_state=0)
    free = replica(decoder, 2000, random_state=0)
    return members, others, decoder, kept, free


def test_a_hole_tells_who_is_in_it(holed: Any) -> None:
    members, others, decoder, kept, _ = holed
    for attack in (Hole(), Hole(decoder=decoder)):
        scores = attack.score(kept, members, others, RNG(0))
        assert scores.inside.min() >= 0
        result = evaluate_scores(attack.name, scores, members, others, RNG(0))
        assert result.verdict == "leak"


def test_without_holes_there_is_nothing_to_find(subjects: Callable[..., Any]) -> None:
    """Though the attacker believes in some: at 1 % each, three alarms in 25 have a chance of 0.002."""
    alarms = 0
    for seed in range(25):
        members, others, non_members = subjects(seed, n=100, d=3)
        decoder = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
        free = replica(decoder, 2000, random_state=seed)
        scores = Hole(0.2).score(free, members, others, RNG(0))
        alarms += evaluate_scores("hole", scores, members, others, RNG(0)).p_value <= 0.01
    assert alarms <= 2


def test_no_radius_no_hole(holed: Any) -> None:
    members, others, decoder, _, free = holed
    for attack, release in ((Hole(), free), (Hole(1.0), decoder)):
        with pytest.raises(NotApplicableError, match="keeps a distance from its records"):
            attack.score(release, members, others, RNG(0))
    with pytest.raises(ConfigError, match="above 0"):
        Hole(-1.0).score(free, members, others, RNG(0))
