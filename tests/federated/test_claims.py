"""The joint claim of several sites: never less than any choice of sites costs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from locum.accounting import (
    Event,
    Gaussian,
    PoissonGaussian,
    epsilon_of,
    events_from_json,
    events_to_json,
    joint_ledger,
)
from locum.errors import ConfigError, PrivacyError
from locum.federated import FederationSettings, joint_claim
from locum.federated.certificates import _pair
from locum.federated.claims import epsilon_against
from locum.types import DPClaim, PrivacyClaim, at_least


def claim(events: Sequence[Event], number: int, delta: float = 1e-5, **changes: Any) -> PrivacyClaim:
    """What a site would claim for these events."""
    relation = changes.pop("relation", "add-or-remove")
    epsilon = changes.pop("epsilon", None) or epsilon_of(events, delta, relation)
    tip = hashlib.sha256(str(number).encode()).hexdigest()
    dp = DPClaim(epsilon, delta, relation, tuple(events_to_json(events)), tip)
    return PrivacyClaim(
        "dp", (f"what site {number} says", "floating point"), unit=changes.get("unit", "record"), dp=dp
    )


def numbers(joint: PrivacyClaim) -> DPClaim:
    assert joint.dp is not None
    return joint.dp


def recomputed(joint: PrivacyClaim) -> float:
    """As `verify` does."""
    dp = numbers(joint)
    return epsilon_of(events_from_json(dp.events), dp.delta, dp.relation)


@pytest.mark.parametrize("events", [[Gaussian(4.0)], [PoissonGaussian(0.1, 2.0, 50), Gaussian(8.0)]])
def test_equal_sites(events: list[Event]) -> None:
    """One site: its own epsilon. Two: more, but less than the sum, and just what the composition costs."""
    sites = [claim(events, i) for i in range(4)]
    alone = numbers(sites[0]).epsilon
    found = {k: numbers(joint_claim(sites, k)) for k in (1, 2, 3, 4)}
    assert found[1].epsilon == alone
    assert found[1].delta == 1e-5
    assert alone < found[2].epsilon < 2 * alone
    for k, dp in found.items():
        assert dp.delta == pytest.approx(k * 1e-5)
        assert dp.epsilon == pytest.approx(epsilon_of(events * k, dp.delta), rel=1e-3)
        # However many sites there are, few entries say it.
        assert len(dp.events) == len(events)
    assert numbers(joint_claim(sites)) == numbers(joint_claim(sites, 4)) == numbers(joint_claim(sites, 99))


SITES = st.lists(
    st.one_of(
        st.builds(lambda z: (Gaussian(z),), st.floats(2, 12)),
        st.builds(
            lambda q, z, t: (PoissonGaussian(q, z, t), Gaussian(20.0)),
            st.sampled_from([0.02, 0.1, 0.4]),
            st.floats(2, 6),
            st.integers(5, 60),
        ),
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=8)
@given(SITES, st.data())
def test_never_less_than_any_choice_of_sites(sites: list[tuple[Event, ...]], data: st.DataObject) -> None:
    """The twin tries every choice of k sites."""
    k = data.draw(st.integers(1, len(sites)))
    deltas = data.draw(st.lists(st.sampled_from([1e-6, 1e-5, 1e-4]), min_size=len(sites), max_size=len(sites)))
    claims = [claim(events, i, delta) for i, (events, delta) in enumerate(zip(sites, deltas, strict=True))]
    joint = joint_claim(claims, k)
    dp = numbers(joint)
    assert dp.delta == pytest.approx(sum(sorted(deltas)[-k:]))
    naive = max(epsilon_of([e for events in some for e in events], dp.delta) for some in combinations(sites, k))
    # Both are upper bounds, each on a grid of its own.
    assert dp.epsilon >= naive * (1 - 2e-3)
    assert dp.epsilon <= sum(sorted(numbers(c).epsilon for c in claims)[-k:]) * (1 + 1e-3)
    assert recomputed(joint) <= dp.epsilon * (1 + 1e-6)


@settings(max_examples=6)
@given(st.lists(st.floats(1, 15), min_size=3, max_size=5))
def test_sums_alone_cost_what_the_least_noisy_cost(noises: list[float]) -> None:
    """The bound is exact then. At one delta more sites cost more; delta grows with them."""
    sites = [claim([Gaussian(z)], i) for i, z in enumerate(noises)]
    found = [numbers(joint_claim(sites, k)) for k in range(1, len(sites) + 1)]
    for k, dp in enumerate(found, start=1):
        assert dp.epsilon == pytest.approx(epsilon_of([Gaussian(z) for z in sorted(noises)[:k]], dp.delta), rel=1e-3)
    at_one_delta = [epsilon_of(events_from_json(dp.events), 1e-5) for dp in found]
    assert all(a < b for a, b in pairwise(at_one_delta))


@settings(max_examples=6)
@given(st.floats(1, 15), st.integers(2, 5), st.sampled_from([1e-4, 1e-6]))
def test_more_equal_sites_cost_more(noise: float, count: int, delta: float) -> None:
    sites = [claim([Gaussian(noise)], i, delta) for i in range(count)]
    found = [numbers(joint_claim(sites, k)).epsilon for k in range(1, count + 1)]
    assert all(a < b for a, b in pairwise(found))
    assert found[-1] < count * found[0]


def test_sites_of_one_budget_and_unlike_settings() -> None:
    """Two of ten sites with epsilon 1 each: nearer to the root of two than to two."""
    from locum.accounting import plan_sgd
    from locum.types import DP

    plans = [plan_sgd(DP(1.0, 1e-5, n_public=500 + 150 * i), batch=128, epochs=5) for i in range(4)]
    sites = [claim(plan.events, i) for i, plan in enumerate(plans)]
    assert numbers(joint_claim(sites, 1)).epsilon <= 1.0
    assert 1.35 < numbers(joint_claim(sites, 2)).epsilon < 1.6


def test_replacing_composes_too() -> None:
    sites = [claim([PoissonGaussian(0.1, z, 20)], i, relation="replace-one") for i, z in enumerate((3.0, 3.5, 4.0))]
    two = joint_claim(sites, 2)
    assert numbers(two).relation == "replace-one"
    assert recomputed(two) <= numbers(two).epsilon * (1 + 1e-6)
    assert numbers(joint_claim(sites, 1)).epsilon == pytest.approx(numbers(sites[0]).epsilon)


def test_the_costliest_sites_need_not_be_the_worst_together() -> None:
    """A rare sample with little noise costs much once and hardly more twice; sums cost less once, and then add up."""
    rare, sums = [PoissonGaussian(0.0005, 0.4, 1)], [Gaussian(6.0)]
    sites = [claim(events, i) for i, events in enumerate((rare, rare, sums, sums))]
    assert numbers(sites[0]).epsilon > numbers(sites[2]).epsilon
    joint = joint_claim(sites, 2)
    worst = epsilon_of(sums * 2, 2e-5)
    assert recomputed(joint) < worst <= numbers(joint).epsilon


def test_what_a_site_understates_is_not_passed_on() -> None:
    events: list[list[Event]] = [[PoissonGaussian(0.1, 1.5, 40)], [PoissonGaussian(0.2, 2.5, 30)], [Gaussian(4.0)]]
    honest, lying = ([claim(x, i, epsilon=e) for i, x in enumerate(events)] for e in (None, 0.01))
    for k in (1, 2, 3):
        assert numbers(joint_claim(lying, k)).epsilon == numbers(joint_claim(honest, k)).epsilon


def test_what_is_not_covered_is_said() -> None:
    sites = [claim([Gaussian(4.0)], i, unit="subject") for i in range(3)]
    every, two, one = (joint_claim(sites, k) for k in (None, 2, 1))
    assert every.unit == "subject"
    assert every.not_covered[:4] == ("what site 0 says", "floating point", "what site 1 says", "what site 2 says")
    assert "more than 2 of the 3 sites" in " ".join(two.not_covered)
    assert "more than" not in " ".join(every.not_covered)
    assert "chose its settings after" in " ".join(two.not_covered)
    assert "chose its settings after" not in " ".join(one.not_covered)


def test_the_ledgers_are_named_by_one_hash() -> None:
    sites = [claim([Gaussian(4.0)], i) for i in range(3)]
    tips = sorted(numbers(site).ledger for site in sites)
    by_hand = hashlib.sha256("\n".join(tips).encode()).hexdigest()
    assert numbers(joint_claim(sites)).ledger == numbers(joint_claim(sites[::-1])).ledger == by_hand
    with pytest.raises(ConfigError, match="given twice"):
        joint_ledger([tips[0], tips[1], tips[0]])
    with pytest.raises(ConfigError, match="given twice"):
        joint_claim([sites[0], sites[1], sites[0]])


def test_one_site_without_a_guarantee_and_there_is_none() -> None:
    none = PrivacyClaim("none", ("membership: not hidden",))
    joint = joint_claim([claim([Gaussian(4.0)], 0), none])
    assert joint.kind == "none"
    assert joint.not_covered[0] == "everything: 1 of 2 sites have no differential privacy"
    assert "membership: not hidden" in joint.not_covered
    assert not joint.test
    # Whether it is a test is a field of the claim: its prose decides nothing.
    for test in (True, False):
        seeded = PrivacyClaim("none", ("made with an insecure seed, as for a test",), test=test)
        assert joint_claim([claim([Gaussian(4.0)], 0), seeded]).test is test


@pytest.mark.parametrize("changes", [{"unit": "subject"}, {"relation": "replace-one"}])
def test_sites_must_guarantee_the_same(changes: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError, match="guarantee different"):
        joint_claim([claim([Gaussian(4.0)], 0), claim([Gaussian(4.0)], 1, **changes)])


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2"])
def test_wrong_numbers_of_sites(limit: Any) -> None:
    with pytest.raises(ConfigError, match="max_sites_per_subject"):
        joint_claim([claim([Gaussian(4.0)], i) for i in range(2)], limit)
    with pytest.raises(ConfigError, match="two sites"):
        joint_claim([claim([Gaussian(4.0)], 0)])


@given(st.lists(st.sampled_from("abcdef"), min_size=2, unique=True))
def test_the_order_of_tips_does_not_matter(letters: list[str]) -> None:
    tips = [letter * 64 for letter in letters]
    assume(tips != tips[::-1])
    assert joint_ledger(tips) == joint_ledger(tips[::-1])


def test_the_guide_says_what_more_colluding_sites_cost() -> None:
    """The table in docs/guides/federation.md."""
    names = [f"s{i}" for i in range(50)]
    keys = {name: _pair(name)[f"{name}.pub"].decode().strip() for name in names}
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "federation.md").read_text()
    for n, absent, word in ((10, 0, "none"), (10, 1, "one"), (50, 0, "none"), (50, 6, "six")):
        terms = FederationSettings(("a", "b"), dim=3, sites={name: keys[name] for name in names[:n]}, absent=absent)
        costs = [epsilon_against(terms, colluders) for colluders in (1, 2, n // 2, n - 2, n - 1)]
        assert f"| {n}, {word} | " + " | ".join(map(at_least, costs)) + " |" in guide
