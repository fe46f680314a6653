"""The plan of a site: from public numbers alone, within the budget, and the same for everybody."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from locum.accounting import Gaussian, PoissonGaussian, epsilon_of
from locum.federated import FederationSettings, plan_site
from locum.federated.plans import decoder_tensors, initial_network, sums_asked
from locum.generate.private import COUNTS_ONLY, MEANS, MEANS_AND_PRODUCTS
from locum.types import DP

Terms = Callable[..., FederationSettings]


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
    terms = FederationSettings(("a", "b"), dim=3, rounds=rounds, batch=64, initial_query=initial_query)
    plan = plan_site(terms, DP(epsilon, 1e-5, "record", n, relation))
    assert 0.97 * epsilon < epsilon_of(plan.events, 1e-5, relation) <= epsilon
    steps, sums = plan.events
    assert isinstance(steps, PoissonGaussian)
    assert sums == Gaussian(plan.sums_noise)
    # Whole rounds, each of `local_epochs` passes over the declared records.
    assert steps.steps == rounds * plan.steps_a_round
    assert steps.rate == min(64, n) / n
    assert abs(plan.steps_a_round * steps.rate - terms.local_epochs) <= 0.5 * steps.rate
    assert plan == plan_site(terms, DP(epsilon, 1e-5, "record", n, relation), records=7)


def test_sums_alone_get_all_of_it(little: Terms) -> None:
    budget = DP(1.0, 1e-5, "record", 100)
    plan = plan_site(little(mode="sums"), budget)
    assert plan.events == (Gaussian(plan.sums_noise),)
    assert (plan.training, plan.steps_a_round) == (None, 0)
    assert (
        plan.sums_noise
        < plan_site(little(), budget).sums_noise
        < plan_site(little(initial_query="public"), budget).sums_noise
    )


def test_without_a_budget_nothing_is_noisy_and_nothing_paid(little: Terms) -> None:
    plan = plan_site(little(local_epochs=3), None, records=100)
    assert (plan.events, plan.sums_noise) == ((), 0.0)
    assert plan.training is not None
    assert (plan.training.noise_multiplier, plan.training.rate, plan.steps_a_round) == (0.0, 0.25, 12)
    assert plan_site(little(mode="sums"), None).events == ()


@pytest.mark.parametrize(
    ("more", "shares"),
    [
        ({"mode": "sums"}, MEANS),
        ({"mode": "sums", "covariance": "own"}, MEANS_AND_PRODUCTS),
        ({"opening": "class"}, MEANS),
        ({"opening": "public"}, COUNTS_ONLY),
    ],
    ids=str,
)
def test_what_is_asked_for(more: dict[str, str], shares: object, little: Terms) -> None:
    assert sums_asked(little(**more)) is shares


def test_everybody_starts_from_the_same_network(little: Terms) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (initial_network(little(seed=seed)) for seed in (3, 3, 4))
    # Nobody else's coins are touched.
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
