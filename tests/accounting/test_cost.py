"""What events cost, against published values, exact formulas, and accountants that work in another way."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from locum.accounting import (
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    delta_of,
    epsilon_of,
    epsilon_of_any,
    joined,
    least_delta,
    worst_of,
)
from locum.accounting.cost import _distribution, _grid, epsilon_curve
from locum.errors import ConfigError

Oracle = Callable[..., float]
SETTINGS = [(0.5, 2.0, 10), (0.128, 18.3, 2000), (0.01, 1.0, 1000), (0.01, 4.0, 10_000), (0.1, 0.8, 50)]
# rate, noise, steps
RUNS = st.tuples(st.sampled_from([0.005, 0.02, 0.1, 0.5]), st.floats(1, 8), st.integers(2, 400))


@pytest.mark.parametrize(("n", "noise"), [(500, 18.3), (2000, 9.16), (20_000, 2.94)])
def test_published_settings_cost_one(n: int, noise: float) -> None:
    """Batches of 64 for 250 epochs at delta 1e-4: dp-accounting gives these noises for epsilon 1."""
    steps = 250 * math.ceil(n / 64)
    assert epsilon_of([PoissonGaussian(64 / n, noise, steps)], 1e-4) == pytest.approx(1.0, rel=0.005)


def test_the_setting_of_abadi_et_al() -> None:
    """The moments accountant gives 1.26 for noise 4, rate 0.01, 10,000 steps, delta 1e-5; a tight one stays below."""
    assert 0.9 < epsilon_of([PoissonGaussian(0.01, 4.0, 10_000)], 1e-5) < 1.26


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("noise", [0.02, 0.3, 1.0, 10.0, 1e4])
def test_plain_noise_costs_what_the_formula_says(exact_gaussian: Oracle, noise: float, delta: float) -> None:
    exact = exact_gaussian(noise, delta)
    assert exact <= epsilon_of([Gaussian(noise)], delta) <= exact * 1.002 + 1e-6
    doubled = exact_gaussian(noise / 2, delta)
    assert doubled <= epsilon_of([Gaussian(noise)], delta, "replace-one") <= doubled * 1.002 + 1e-6


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("noise", "steps"), [(10.0, 100), (100.0, 10_000), (100.0, 100_000), (1000.0, 100_000)])
def test_many_steps_stay_an_upper_bound_and_tight(
    exact_gaussian: Oracle, noise: float, steps: int, delta: float
) -> None:
    """With everybody in every batch, `steps` steps are one with less noise. Rounding errors alone would go below."""
    exact = exact_gaussian(noise / math.sqrt(steps), delta)
    assert exact <= epsilon_of([PoissonGaussian(1.0, noise, steps)], delta) <= exact * 1.005


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.0, 10_000), (0.1, 20.0, 100_000), (0.003, 2.0, 3000)])
def test_what_is_given_away_covers_rounding(tilted_delta: Oracle, rate: float, noise: float, steps: int) -> None:
    events = (PoissonGaussian(rate, noise, steps),)
    for delta in (1e-6, max(1e-11, least_delta(events))):
        epsilon = epsilon_of(events, delta)
        assert tilted_delta(rate, noise, steps, epsilon, _grid(events)) <= delta


@pytest.mark.parametrize(("rate", "noise", "steps"), SETTINGS)
def test_between_a_lower_bound_and_renyi(rdp_epsilon: Oracle, rate: float, noise: float, steps: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    events = (PoissonGaussian(rate, noise, steps),)
    # Rounded to the favourable side: below the truth.
    favourable = pld.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=_grid(events),
        pessimistic_estimate=False,
        use_connect_dots=False,
    ).self_compose(steps)
    for delta in (1e-5, 1e-7):
        assert favourable.get_epsilon_for_delta(delta) <= epsilon_of(events, delta) <= rdp_epsilon(events, delta)


@pytest.mark.parametrize(("rate", "noise", "steps"), SETTINGS)
def test_as_dp_accounting_on_a_fixed_grid(rate: float, noise: float, steps: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    expected = theirs.self_compose(steps).get_epsilon_for_delta(1e-6)
    assert epsilon_of([PoissonGaussian(rate, noise, steps)], 1e-6) == pytest.approx(expected, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise"), [(1e-4, 1.0), (1e-3, 20.0), (1e-5, 0.5)])
def test_tiny_rates_stay_tight(rate: float, noise: float) -> None:
    """A grid twice as fine gains less than a hundredth, even after 100,000 steps."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    events = (PoissonGaussian(rate, noise, 100_000),)
    finer = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=_grid(events) / 2)
    expected = finer.self_compose(100_000).get_epsilon_for_delta(1e-5)
    assert epsilon_of(events, 1e-5) == pytest.approx(expected, rel=0.008)


@settings(max_examples=10)
@given(RUNS)
def test_renyi_is_above(rdp_epsilon: Oracle, run: tuple[float, float, int]) -> None:
    events = [PoissonGaussian(*run)]
    assert epsilon_of(events, 1e-5) <= rdp_epsilon(events, 1e-5)


@settings(max_examples=12)
@given(RUNS, st.sampled_from(["add-or-remove", "replace-one"]))
def test_more_steps_more_often_or_less_noise_cost_more(run: tuple[float, float, int], relation: str) -> None:
    rate, noise, steps = run
    cost = epsilon_of([PoissonGaussian(rate, noise, steps)], 1e-5, relation)  # type: ignore[arg-type]
    for worse in (
        PoissonGaussian(rate, noise, math.ceil(steps * 1.1)),
        PoissonGaussian(rate, noise / 1.1, steps),
        PoissonGaussian(rate * 1.1, noise, steps),
    ):
        assert epsilon_of([worse], 1e-5, relation) > cost * 1.001  # type: ignore[arg-type]


@settings(max_examples=10)
@given(RUNS)
def test_replacing_costs_more_than_removing_and_at_most_twice_the_distance(run: tuple[float, float, int]) -> None:
    rate, noise, steps = run
    replaced = epsilon_of([PoissonGaussian(rate, noise, steps)], 1e-5, "replace-one")
    assert epsilon_of([PoissonGaussian(rate, noise, steps)], 1e-5) < replaced
    assert replaced <= epsilon_of([PoissonGaussian(rate, noise / 2, steps)], 1e-5) * 1.01


@settings(max_examples=10)
@given(RUNS, st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_delta_and_epsilon_undo_each_other(run: tuple[float, float, int], delta: float) -> None:
    events = [PoissonGaussian(*run)]
    epsilon = epsilon_of(events, delta)
    if epsilon > 0:
        assert delta_of(events, epsilon) == pytest.approx(delta, rel=1e-3)
        assert delta_of(events, epsilon) <= delta * (1 + 1e-9)


def test_ten_steps_saved_loaded_and_ten_more_cost_what_twenty_cost() -> None:
    half = PoissonGaussian(0.1, 1.3, 10)
    together = epsilon_of([half, half], 1e-5)
    assert together == pytest.approx(epsilon_of([PoissonGaussian(0.1, 1.3, 20)], 1e-5), rel=1e-6)
    assert together > epsilon_of([half], 1e-5) * 1.2


def test_composition_has_no_order_and_each_part_counts() -> None:
    events: list[Event] = [PoissonGaussian(0.05, 1.5, 200), Gaussian(8.0), Laplace(20.0)]
    total = epsilon_of(events, 1e-5)
    assert epsilon_of(events[::-1], 1e-5) == pytest.approx(total, rel=1e-6)
    for left_out in range(3):
        assert epsilon_of(events[:left_out] + events[left_out + 1 :], 1e-5) < total
    # Cheaper than adding up, which is what the ledger must do across fits.
    assert total < sum(epsilon_of([event], 1e-5 / 3) for event in events)


def test_two_normal_noises_are_one_smaller_noise(exact_gaussian: Oracle) -> None:
    exact = exact_gaussian(1 / math.hypot(1 / 3, 1 / 4), 1e-6)
    assert exact <= epsilon_of([Gaussian(3.0), Gaussian(4.0)], 1e-6) <= exact * 1.001


@pytest.mark.parametrize("scale", [1.0, 4.0, 50.0])
def test_laplace_covers_a_count_with_geometric_noise(scale: float) -> None:
    """A count that moves by 1 has loss +-1/scale and nothing between: delta(e) = p (1 - exp(e - 1/scale)) by hand."""
    pure = 1 / scale
    likely = 1 / (1 + math.exp(-pure))
    for epsilon in (0.0, pure / 2, pure * 0.99):
        by_hand = likely * -math.expm1(epsilon - pure)
        assert by_hand <= delta_of([Laplace(scale)], epsilon) <= by_hand + 0.002 * pure
    assert delta_of([Laplace(scale)], pure * 1.01) < 1e-9
    # Continuous noise is kinder than that: 1 - exp((e - 1/scale) / 2).
    assert delta_of([Laplace(scale)], 0.0) > -math.expm1(-pure / 2)


def test_laplace_under_replacement_moves_twice_as_far() -> None:
    assert delta_of([Laplace(4.0)], 0.1, "replace-one") == delta_of([Laplace(2.0)], 0.1)


def test_the_curve_falls() -> None:
    events = [PoissonGaussian(0.1, 1.3, 100)]
    curve = epsilon_curve(events, [1e-8, 1e-6, 1e-4])
    assert [delta for delta, _ in curve] == [1e-8, 1e-6, 1e-4]
    assert curve[0][1] > curve[1][1] > curve[2][1] > 0


def test_nothing_done_costs_nothing() -> None:
    assert epsilon_of([], 1e-5) == 0.0
    assert delta_of([], 0.0) == 0.0


@pytest.mark.parametrize("delta", [0.0, -1e-5, 1.0, 2.0, math.nan, 1e-13])
def test_a_delta_that_cannot_be_vouched_for_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        epsilon_of([PoissonGaussian(0.1, 2.0, 1000)], delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_an_epsilon_must_be_one(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        delta_of([Gaussian(1.0)], epsilon)


@settings(max_examples=8)
@given(RUNS, RUNS)
def test_joined_events_cost_the_same(one: tuple[float, float, int], two: tuple[float, float, int]) -> None:
    events: list[Event] = [PoissonGaussian(*one), Gaussian(9.0), PoissonGaussian(*two), Gaussian(12.0)] * 2
    assert epsilon_of(joined(events), 1e-5) == pytest.approx(epsilon_of(events, 1e-5), rel=2e-3)


@settings(max_examples=8)
@given(RUNS, RUNS)
def test_the_worst_of_two_costs_more_alone_and_in_company(
    one: tuple[float, float, int], two: tuple[float, float, int]
) -> None:
    lists: list[list[Event]] = [[PoissonGaussian(*one), Gaussian(9.0)], [PoissonGaussian(*two)]]
    worst = worst_of(*lists)
    for events in lists:
        assert epsilon_of(worst, 1e-5) >= epsilon_of(events, 1e-5) * (1 - 1e-3)
        company = Gaussian(5.0)
        assert epsilon_of([*worst, company], 1e-5) >= epsilon_of([*events, company], 1e-5) * (1 - 1e-3)


@settings(max_examples=3)
@given(st.lists(RUNS, min_size=2, max_size=3), st.data())
def test_any_of_them_costs_no_more_than_the_bound(
    rdp_epsilon: Oracle, runs: list[tuple[float, float, int]], data: st.DataObject
) -> None:
    lists: list[list[Event]] = [[PoissonGaussian(*run), Gaussian(10.0)] for run in runs]
    k = data.draw(st.integers(1, len(lists)))
    bound = epsilon_of_any(lists, k, 1e-5)
    assert bound >= max(epsilon_of([e for x in some for e in x], 1e-5) for some in combinations(lists, k))
    # For all of them it is what an accountant by Renyi divergences says, who has orders between ours too.
    theirs = rdp_epsilon([e for x in lists for e in x], 1e-5)
    assert theirs * (1 - 1e-6) <= epsilon_of_any(lists, len(lists), 1e-5) <= 1.1 * theirs


@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
def test_the_bound_knows_sums_and_counts(relation: str) -> None:
    lists: list[list[Event]] = [[Gaussian(5.0), Laplace(10.0)], [Laplace(4.0)], [PoissonGaussian(1.0, 30.0, 20)]]
    for k in (1, 2, 3):
        bound = epsilon_of_any(lists, k, 1e-6, relation)  # type: ignore[arg-type]
        some = [epsilon_of([e for x in c for e in x], 1e-6, relation) for c in combinations(lists, k)]  # type: ignore[arg-type]
        assert max(some) <= bound < 1.6 * max(some)
    assert epsilon_of_any([[PoissonGaussian(0.1, 3.0, 9)]], 1, 1e-6, "replace-one") == math.inf


@pytest.mark.parametrize(("k", "delta"), [(0, 1e-5), (3, 1e-5), (1, 0.0), (1, 1.0)])
def test_a_bound_for_nothing_is_refused(k: int, delta: float) -> None:
    with pytest.raises(ConfigError, match="must lie"):
        epsilon_of_any([[Gaussian(1.0)], [Gaussian(2.0)]], k, delta)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.6, 200.0), min_size=1, max_size=6),
    st.integers(1, 50),
    st.sampled_from([1e-4, 1e-6, 1e-9]),
    st.sampled_from(["add-or-remove", "replace-one"]),
)
def test_the_closed_form_agrees_with_privacy_loss_distributions(
    noises: list[float], steps: int, delta: float, relation: str
) -> None:
    """Any mix of plain sums is one sum; the distributions of dp-accounting come to the same, a little above."""
    events = (*map(Gaussian, noises), PoissonGaussian(1.0, 10 * max(noises), steps))
    closed = epsilon_of(events, delta, relation)  # type: ignore[arg-type]
    composed = float(_distribution(events, relation).get_epsilon_for_delta(delta))  # type: ignore[arg-type]
    assert closed <= composed * (1 + 1e-6) + 1e-9
    assert composed <= closed * 1.01 + 1e-5
    assert delta_of(events, closed, relation) == pytest.approx(delta, rel=1e-3)  # type: ignore[arg-type]


def test_plain_sums_are_priced_without_dp_accounting() -> None:
    code = (
        "import sys\n"
        "from locum.accounting import Gaussian, epsilon_of, plan_query\n"
        "from locum.types import DP\n"
        "plan_query(DP(1.0, 1e-6, n_public=1000)), epsilon_of([Gaussian(3.0)] * 4, 1e-6)\n"
        "assert not {'dp_accounting', 'scipy'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
