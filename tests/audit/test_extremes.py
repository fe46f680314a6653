"""The tail of distances: calibrated, and a plain count where there is something to count."""

from __future__ import annotations

import numpy as np
import pytest

from locum.audit.attacks.closest_record import lower_tail
from locum.errors import DataError


@pytest.mark.parametrize("rate", [1.0, 8.0, 30.0])
def test_the_tail_is_a_valid_p_value(rate: float) -> None:
    """Distances with a power law: the share of fresh ones under chance p is at most about p, however deep."""
    rng = np.random.default_rng(0)
    called = {0.1: 0, 0.01: 0, 0.001: 0}
    draws = 400
    for _ in range(draws):
        reference, fresh = np.split(np.exp(-rng.exponential(size=400) / rate), [200])
        p = lower_tail(fresh, reference)
        for level in called:
            called[level] += int((p <= level).sum())
    for level, count in called.items():
        assert count / (200 * draws) <= 1.15 * level + 3 * np.sqrt(level / (200 * draws))


def test_a_tail_is_a_count_inside_and_vanishes_for_a_copy() -> None:
    reference = np.linspace(1, 2, 100)
    p = lower_tail(np.array([0.0, 0.01, 0.1, 1.5, 3.0]), reference)
    assert p[0] == 0
    assert 0 < p[1] < p[2] < 1e-3
    # Distances up to twice as large are counted as equal.
    assert p[3] == 100 / 101
    assert p[4] == 1
    assert (lower_tail(np.array([0.0]), np.append(reference, 0.0)) >= 1 / 102).all()
    with pytest.raises(DataError, match="at least 20"):
        lower_tail(np.zeros(1), np.ones(19))
