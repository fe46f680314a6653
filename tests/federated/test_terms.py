"""Terms of a site: its word is checked, and its epsilon is worked out anew."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from locum.accounting import Gaussian, PoissonGaussian, epsilon_of, events_to_json
from locum.errors import FormatError
from locum.federated import FederationSettings, plan_site
from locum.federated.terms import Terms, read_terms
from locum.types import DP

EVENTS = (PoissonGaussian(0.1, 3.0, 20), Gaussian(8.0))
PAID = {
    "epsilon": 0.001,
    "delta": 1e-5,
    "unit": "record",
    "relation": "add-or-remove",
    "events": events_to_json(EVENTS),
    "ledger": "a" * 64,
}
FACTS: dict[str, Any] = {"noise": 8.0, "size": 100, "terms": PAID}


def test_a_sites_own_word_for_its_epsilon_does_not_count() -> None:
    terms = read_terms(FACTS)
    assert terms.claim.dp is not None
    assert terms.claim.dp.epsilon == epsilon_of(EVENTS, 1e-5) > 0.1
    assert not terms.is_test


@pytest.mark.parametrize("facts", [FACTS, {**FACTS, "terms": None}], ids=["paid", "test"])
def test_terms_come_back_the_same(facts: dict[str, Any]) -> None:
    terms = read_terms(facts)
    assert read_terms(json.loads(json.dumps(terms.to_dict()))) == terms


def test_a_test_promises_nothing() -> None:
    terms = read_terms({"noise": 0, "size": 1, "terms": None})
    assert terms.is_test
    assert terms.claim.kind == "none"
    assert "test coins" in terms.claim.not_covered[0]
    assert math.isnan(terms.epsilon_after(1, 2))


def test_what_was_used_grows_up_to_what_was_paid(little: Callable[..., FederationSettings]) -> None:
    budget = DP(2.0, 1e-4, "record", 50)
    plan = plan_site(little(), budget)
    told = {**PAID, "delta": 1e-4, "events": events_to_json(plan.events)}
    terms = read_terms({"noise": plan.sums_noise, "size": 50, "terms": told})
    used = [terms.epsilon_after(number, 2) for number in range(3)]
    assert used[0] == epsilon_of(plan.events[1:], 1e-4)
    assert used[0] < used[1] < used[2] == epsilon_of(plan.events, 1e-4) <= 2.0
    assert plan.training is not None
    assert used[1] == pytest.approx(plan.training.epsilon_after(plan.steps_a_round))


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": "small"},
        {"delta": float("nan")},
        {"relation": "none"},
        {"unit": "galaxy"},
        {"unit": ["record"]},
        {"events": []},
        {"events": "all"},
        {"events": [{"kind": "free"}]},
        {"events": [{"kind": "gaussian", "noise_multiplier": 0.0}]},
        {"ledger": ""},
        {"ledger": "z" * 64},
        {"ledger": None},
    ],
    ids=str,
)
def test_a_promise_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        read_terms({**FACTS, "terms": {**PAID, **change}})
    with pytest.raises(FormatError):
        read_terms({**FACTS, "terms": {k: v for k, v in PAID.items() if k not in change}})


wild = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.floats(),
    st.sampled_from([10**400, -(10**400), math.inf, [], {}, {"events": []}]),
)


@given(st.dictionaries(st.sampled_from([*FACTS, "more"]), wild))
def test_whatever_a_site_says_is_read_or_refused(change: dict[str, Any]) -> None:
    """Nothing else: any other error would end the run of all."""
    try:
        terms = read_terms({**FACTS, "terms": None, **change})
    except FormatError:
        return
    assert isinstance(terms, Terms)
    assert 0 <= terms.noise < math.inf
    assert 1 <= terms.size <= 10**12


def test_a_paid_sum_without_noise_is_none() -> None:
    with pytest.raises(FormatError):
        read_terms({**FACTS, "noise": 0.0})


def test_terms_beyond_what_was_agreed_are_not_let_in(little: Callable[..., FederationSettings]) -> None:
    agreed = little(max_size=100, max_noise=50.0, max_epsilon=3.0)
    fine = {"noise": 4.0, "size": 100, "terms": None}
    assert read_terms(fine).beyond(agreed) == ""
    for worse in ({"size": 101}, {"noise": 51.0}):
        assert "more records or more noise" in read_terms({**fine, **worse}).beyond(agreed)
    paid = {"epsilon": 1.0, "unit": "record", "relation": "add-or-remove", "ledger": "0" * 64}
    events = {"weak": (0.5, 1e-4), "careless": (4.0, 0.01), "fine": (4.0, 1e-4)}
    told = {
        name: read_terms(
            {**fine, "terms": {**paid, "delta": delta, "events": [{"kind": "gaussian", "noise_multiplier": noise}]}}
        ).beyond(agreed)
        for name, (noise, delta) in events.items()
    }
    assert told == {"weak": "it promises less than the terms ask for"} | {"careless": told["weak"], "fine": ""}
