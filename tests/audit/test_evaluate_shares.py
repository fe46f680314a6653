"""Shares of hits: exact intervals, a control, a correction for choice."""

from __future__ import annotations

import numpy as np
import pytest

from locum import EmbeddingSet, Estimate
from locum.audit.statistics import evaluate_shares
from locum.errors import DataError

ZERO = Estimate.exact(0.0)


def hits(k: int, n: int) -> np.ndarray:
    return np.arange(n) < k


def test_more_hits_than_non_members_have() -> None:
    result = evaluate_shares("a", hits(40, 100), hits(10, 100), baseline=ZERO)
    assert (result.attack.value, result.control.value, result.verdict) == (0.4, 0.1, "leak")
    chosen = evaluate_shares("a", hits(40, 100), hits(10, 100), baseline=ZERO, tests=3)
    assert chosen.p_value == pytest.approx(3 * result.p_value)


def test_equal_shares_are_no_excess_however_high() -> None:
    result = evaluate_shares("a", hits(5000, 10_000), hits(5000, 10_000), baseline=ZERO)
    assert result.verdict == "no excess risk found"
    assert evaluate_shares("a", hits(5, 10), hits(5, 10), baseline=ZERO).verdict == "inconclusive"


def test_the_level_is_kept() -> None:
    rng = np.random.default_rng(0)
    p = [evaluate_shares("a", rng.random(80) < 0.3, rng.random(60) < 0.3, baseline=ZERO).p_value for _ in range(400)]
    assert np.mean(np.array(p) <= 0.05) <= 0.08


def test_by_class_where_there_are_enough() -> None:
    y = np.repeat([0, 1], [15, 5])
    members = EmbeddingSet(np.zeros((20, 1), np.float32), y)
    result = evaluate_shares("a", hits(3, 20), hits(3, 20), baseline=ZERO, members=members)
    assert {name: e.value for name, e in result.by_class.items()} == {"0": 0.2}
    with pytest.raises(DataError, match="got 0 and 3"):
        evaluate_shares("a", hits(0, 0), hits(1, 3), baseline=ZERO)
