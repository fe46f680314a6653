"""Screening: figures, and no verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from locum.audit.screening import screen

RNG = np.random.default_rng


def test_screening_has_figures_and_no_verdict(subjects: Callable[..., Any], planted: Any) -> None:
    members, others, non_members = subjects(0)
    copied = screen(planted(members, None), members, others, RNG(0))
    assert (copied.closest.value, copied.copies.value, copied.closer.value) == (0, 1, 1)
    assert copied.closest_non_members.low > 0
    fresh = screen(planted(non_members, None), members, others, RNG(0))
    assert fresh.copies.value == 0
    assert fresh.closer.low < 0.5 < fresh.closer.high
    assert 0 < fresh.ratio.value <= 1
    plain = fresh.to_dict()
    assert plain["title"] == "screening only"
    assert "verdict" not in plain
