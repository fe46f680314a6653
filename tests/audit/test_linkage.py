"""Record linkage: what is particular to it; leaks and silence are in test_planted_leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.audit import Linkage
from locum.errors import NotApplicableError

RNG = np.random.default_rng


def test_one_feature_cannot_be_halved(subjects: Callable[..., Any], rows: Any) -> None:
    members, others, _ = subjects(0, d=1)
    with pytest.raises(NotApplicableError, match="two features"):
        Linkage().run(rows(members.X, members.y), members, others, RNG(0))


def test_equal_rows_are_one_answer(subjects: Callable[..., Any], rows: Any) -> None:
    members, others, _ = subjects(0)
    release = rows(np.repeat(members.X, 3, axis=0), np.repeat(members.y, 3))
    assert Linkage().run(release, members, others, RNG(0)).attack.value == 1
