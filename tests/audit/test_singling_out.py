"""Balls against a naive twin; jitter does not hide a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.audit import SinglingOut
from locum.audit.attacks.singling_out import singled_out
from locum.errors import ConfigError

RNG = np.random.default_rng


def test_singled_out_against_a_naive_twin() -> None:
    rng = RNG(0)
    records, centres = rng.normal(size=(40, 3)), rng.normal(size=(2000, 3))
    naive = np.zeros(40, dtype=bool)
    for centre in centres:
        hits = np.flatnonzero(np.linalg.norm(records - centre, axis=1) <= 0.4)
        if len(hits) == 1:
            naive[hits] = True
    assert 0 < naive.sum() < 40
    assert (singled_out(records, centres, 0.4) == naive).all()


def test_jitter_changes_nothing(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, _ = subjects(0)
    found = [
        SinglingOut().run(planted(members, None, jitter), members, others, RNG(0)).attack.value
        for jitter in (0.0, 0.001, 0.1)
    ]
    assert max(found) - min(found) < 0.02
    assert min(found) > 0.98
    with pytest.raises(ConfigError, match="above 0"):
        SinglingOut(radii=(0.0,)).run(planted(members, None), members, others, RNG(0))
