"""Plans use public numbers only and stay within the budget; terms that a site sends are checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from locum.accounting import Gaussian, Ledger, NonPrivateSGD, PoissonGaussian, epsilon_of, events_to_json
from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated import FederationSettings, plan_site
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.terms import Terms, read_terms, requested_sums
from locum.generate.private import COUNTS_ONLY, MEANS, MEANS_AND_PRODUCTS
from locum.mechanisms import ExactSums
from locum.train import RowLossByAutograd
from locum.train.dp import InitialQuery, PrivateRun
from locum.types import DP

Settings = Callable[..., FederationSettings]


@settings(max_examples=6)
@given(
    epsilon=st.sampled_from([0.5, 2.0]),
    n=st.integers(20, 900),
    rounds=st.integers(1, 4),
    relation=st.sampled_from(["add-or-remove", "replace-one"]),
    initial_query=st.sampled_from(["class", "public"]),
)
def test_all_rounds_together_stay_within_the_budget(
    epsilon: float, n: int, rounds: int, relation: str, initial_query: str
) -> None:
    terms = FederationSettings(
        ("a", "b"), dim=3, mode="decoder", rounds=rounds, batch=64, initial_query=initial_query
    )
    plan = plan_site(terms, DP(epsilon, 1e-5, "record", n, relation))
    assert 0.97 * epsilon < epsilon_of(plan.events, 1e-5, relation) <= epsilon
    steps, sums = plan.events
    assert isinstance(steps, PoissonGaussian)
    assert sums == Gaussian(plan.sums_noise)
    # Whole rounds, each of `local_epochs` passes over the declared records.
    assert steps.steps == rounds * plan.steps_per_round
    assert steps.rate == min(64, n) / n
    assert abs(plan.steps_per_round * steps.rate - terms.local_epochs) <= 0.5 * steps.rate
    assert plan == plan_site(terms, DP(epsilon, 1e-5, "record", n, relation), records=7)


def test_sums_alone_get_all_of_it(little: Settings) -> None:
    budget = DP(1.0, 1e-5, "record", 100)
    plan = plan_site(little(mode="sums"), budget)
    assert plan.events == (Gaussian(plan.sums_noise),)
    assert (plan.training, plan.steps_per_round) == (None, 0)
    assert (
        plan.sums_noise
        < plan_site(little(), budget).sums_noise
        < plan_site(little(initial_query="public"), budget).sums_noise
    )


def test_without_a_budget_nothing_is_noisy_and_nothing_paid(little: Settings) -> None:
    plan = plan_site(little(local_epochs=3), None, records=100)
    assert (plan.events, plan.sums_noise) == ((), 0.0)
    assert plan.training is not None
    assert (plan.training.noise_multiplier, plan.training.rate, plan.steps_per_round) == (0.0, 0.25, 12)
    assert (plan.privacy, plan.training.privacy, plan.training.events) == (None, None, ())
    assert plan.training.clip == math.inf
    assert plan_site(little(mode="sums"), None).events == ()


def test_a_plan_without_a_budget_runs_only_with_a_seed(tmp_path: Path) -> None:
    plan, rows = NonPrivateSGD(rate=0.5, batch=5, steps=3), torch.arange(20.0).reshape(10, 2)
    loss = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -1:]).sum(dim=1))
    with pytest.raises(PrivacyError, match="only for tests"):
        PrivateRun(torch.nn.Linear(1, 1), rows, loss, plan)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_for(DP(1.0, 1e-5, n_public=10), "scans")
        with pytest.raises(PrivacyError, match="only for tests"):
            PrivateRun(torch.nn.Linear(1, 1), rows, loss, plan, ledger, "scans")
    query = InitialQuery(ExactSums(np.ones(2)), lambda noisy: rows)
    with pytest.raises(ConfigError, match="initial_query"):
        PrivateRun(torch.nn.Linear(1, 1), rows, loss, plan, insecure_seed=0, initial_query=query)


def test_without_a_budget_gradients_are_neither_clipped_nor_noisy() -> None:
    """One step on all records is a step of plain SGD, however long the gradient is."""
    rows = torch.tensor([[1e5, 3e6], [-2e5, 1e6]])
    module = torch.nn.Linear(1, 1, bias=False)
    start = float(module.weight.detach())
    expected = float((2 * (start * rows[:, 0] - rows[:, 1]) * rows[:, 0]).sum()) / 2
    loss = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -1:]).sum(dim=1))
    plan = NonPrivateSGD(rate=1.0, batch=2, steps=1)
    PrivateRun(module, rows, loss, plan, insecure_seed=0, optimizer="sgd", learning_rate=1e-9).run()
    assert start - float(module.weight.detach()) == pytest.approx(1e-9 * expected, rel=1e-4)


@pytest.mark.parametrize(
    ("more", "shares"),
    [
        ({"mode": "sums"}, MEANS),
        ({"mode": "sums", "covariance": "own"}, MEANS_AND_PRODUCTS),
        ({"initial_query": "class"}, MEANS),
        ({"initial_query": "public"}, COUNTS_ONLY),
    ],
    ids=str,
)
def test_what_is_asked_for(more: dict[str, str], shares: object, little: Settings) -> None:
    assert requested_sums(little(**more)) is shares


def test_all_sites_start_from_the_same_network(little: Settings) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (initial_network(little(seed=seed)) for seed in (3, 3, 4))
    # The global generator is not touched.
    assert torch.rand(1) == expected
    a, b, c = (decoder_tensors(net) for net in (one, two, other))
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert any(not np.array_equal(a[k], c[k]) for k in a)
    assert not any("encoder" in name for name in a)
    # A copy: what is trained later does not reach what was sent.
    kept = {k: v.copy() for k, v in a.items()}
    with torch.no_grad():
        for p in one.decoder.parameters():
            p.add_(1.0)
    assert all(np.array_equal(a[k], kept[k]) for k in a)


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


def test_the_epsilon_that_a_site_sends_is_ignored() -> None:
    terms = read_terms(FACTS)
    assert terms.claim.dp is not None
    assert terms.claim.dp.epsilon == epsilon_of(EVENTS, 1e-5) > 0.1
    assert not terms.is_test


LOOKED_FACTS = {**FACTS, "terms": {**PAID, "looked": True}}


@pytest.mark.parametrize("facts", [FACTS, LOOKED_FACTS, {**FACTS, "terms": None}], ids=["paid", "looked", "test"])
def test_terms_come_back_the_same(facts: dict[str, Any]) -> None:
    terms = read_terms(facts)
    assert read_terms(json.loads(json.dumps(terms.to_dict()))) == terms


def test_a_test_guarantees_nothing() -> None:
    terms = read_terms({"noise": 0, "size": 1, "terms": None})
    assert terms.is_test
    assert terms.claim.kind == "none"
    assert terms.claim.test
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
    assert used[1] == pytest.approx(plan.training.epsilon_after(plan.steps_per_round))


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
def test_a_guarantee_that_is_none_is_refused(change: dict[str, Any]) -> None:
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
def test_whatever_a_site_sends_is_read_or_refused(change: dict[str, Any]) -> None:
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


def test_terms_beyond_what_was_agreed_are_excluded(little: Callable[..., FederationSettings]) -> None:
    agreed = little(max_size=100, max_noise=50.0, max_epsilon=3.0)
    fine = {"noise": 4.0, "size": 100, "terms": None}
    assert read_terms(fine).why_excluded(agreed) == ""
    for worse in ({"size": 101}, {"noise": 51.0}):
        assert "more records or more noise" in read_terms({**fine, **worse}).why_excluded(agreed)
    paid = {"epsilon": 1.0, "unit": "record", "relation": "add-or-remove", "ledger": "0" * 64}
    events = {"weak": (0.5, 1e-4), "careless": (4.0, 0.01), "fine": (4.0, 1e-4)}
    told = {
        name: read_terms(
            {**fine, "terms": {**paid, "delta": delta, "events": [{"kind": "gaussian", "noise_multiplier": noise}]}}
        ).why_excluded(agreed)
        for name, (noise, delta) in events.items()
    }
    assert told == {"weak": "its guarantee is weaker than the terms require"} | {"careless": told["weak"], "fine": ""}
