"""Holm's correction: against its definition, and on results."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from locum import Estimate
from locum.audit.statistics import holm, holm_p_values
from locum.types import AttackResult


def result(p: float | None) -> AttackResult:
    return AttackResult(
        "a", "auc", Estimate(0.6, 0.55, 0.65, 9), Estimate(0.5, 0.4, 0.6, 9), Estimate.exact(0.5), p_value=p
    )


@given(st.lists(st.floats(0, 1), max_size=8))
def test_against_the_definition(p: list[float]) -> None:
    """The naive twin: the largest step among those of p-values that are no larger."""
    got = holm_p_values(p)
    for i, value in enumerate(p):
        steps = [q * (len(p) - sum(r < q for r in p)) for q in p if q <= value]
        assert got[i] == pytest.approx(min(1.0, max(steps)))
        assert got[i] >= value


def test_results_keep_their_order_and_those_without_a_test_stay_out() -> None:
    first, second, third = holm([result(0.008), result(None), result(0.001)])
    assert (first.adjusted, second.adjusted, third.adjusted) == (0.008, None, 0.002)
    assert second == result(None)
    assert [r.verdict for r in holm([result(0.008), result(0.5)])] == ["inconclusive", "inconclusive"]
    assert holm([]) == ()
