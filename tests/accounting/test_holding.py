"""Sums are exact, and what is left can be spent to the last bit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from locum.accounting import Charge, Gaussian, Holding
from locum.accounting.holding import check_name, same_name
from locum.errors import ConfigError, PrivacyError
from locum.types import DP, at_least, at_most


def charge(epsilon: float, delta: float = 1e-9) -> Charge:
    return Charge("id", "scans", epsilon, delta, (Gaussian(1.0),), "fit", "head")


def holding(epsilon: float = 1.0, delta: float = 1e-5, *charges: Charge) -> Holding:
    return Holding("scans", "record", "add-or-remove", epsilon, delta, charges)


def allowed(known: Holding, asked: Charge) -> bool:
    try:
        known.check(asked)
    except PrivacyError:
        return False
    return True


@pytest.mark.parametrize("parts", [2, 3, 7, 10, 49, 1000])
def test_equal_parts_as_they_are_typed_fill_the_budget_and_not_one_more_fits(parts: int) -> None:
    """Ten charges of 0.1 and 1e-6 fit 1.0 and 1e-5, though floats do not add up so."""
    part = charge(0.1, 1e-6)
    budget = holding(parts / 10, float(f"{parts}e-6"), *(part,) * (parts - 1))
    assert allowed(budget, part)
    full = holding(budget.epsilon, budget.delta, *(part,) * parts)
    assert full.left == (0.0, 0.0)
    assert not allowed(full, charge(1e-12, 1e-300))


@given(st.lists(st.floats(1e-6, 0.4), max_size=6), st.floats(0.1, 2))
def test_what_is_left_may_be_asked_for_and_a_touch_more_may_not(spent: list[float], budget: float) -> None:
    known = holding(budget, 0.5, *(charge(e) for e in spent))
    left = known.left[0]
    assert left >= 0
    if left > 0:
        assert allowed(known, charge(left))
        assert not allowed(known, charge(math.nextafter(math.nextafter(left, 9), 9)))


def test_delta_is_a_budget_too() -> None:
    known = holding(10.0, 1e-5, charge(0.1, 9e-6))
    assert allowed(known, charge(0.1, 1e-6))
    assert not allowed(known, charge(0.1, 2e-6))


def test_a_budget_below_what_was_spent_leaves_nothing() -> None:
    assert holding(0.5, 1e-5, charge(0.8)).left == (0.0, pytest.approx(1e-5, rel=1e-3))


@pytest.mark.parametrize("epsilon", [math.inf, math.nan])
def test_no_number_is_no_payment(epsilon: float) -> None:
    assert not allowed(holding(1e300, 0.5), charge(epsilon))


def test_the_refusal_says_what_is_left_and_never_the_same_number_twice() -> None:
    known = holding(1.0, 1e-5, charge(0.5))
    with pytest.raises(PrivacyError, match=r"epsilon 0\.5001 .* asked for, epsilon 0\.5 .* left"):
        known.check(charge(0.5 + 1e-9))


@given(st.floats(1e-12, 1e6), st.floats(1e-12, 1e6))
def test_figures_shown_are_rounded_to_the_honest_side(one: float, other: float) -> None:
    assert float(at_most(one)) <= one <= float(at_least(one))
    assert float(at_least(one)) == pytest.approx(one, rel=1e-3)
    if one > other:
        assert at_least(one) != at_most(other)


def test_units_and_relations_are_not_mixed() -> None:
    known = holding()
    known.check_terms(DP(5.0, 1e-3))
    for other in (DP(1.0, 1e-5, "subject"), DP(1.0, 1e-5, relation="replace-one")):
        with pytest.raises(PrivacyError, match="cannot be mixed"):
            known.check_terms(other)


@pytest.mark.parametrize("name", ["", " scans", "scans ", "a\nb", "x" * 101, "\x1b[2J"])
def test_names_can_be_typed(name: str) -> None:
    with pytest.raises(ConfigError, match="printable name"):
        check_name(name)


def test_a_slip_of_the_pen_opens_no_second_budget() -> None:
    for slip in ("Scans", "SCANS", "ｓcans"):
        with pytest.raises(ConfigError, match="'scans' already"):
            same_name(slip, ["other", "scans"])
    same_name("scans 2024", ["scans"])
