from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from locum.audit import Guesses, LowerBound, refuted_epsilon
from locum.audit.epsilon.bounds import chance_of_guesses, plan_guesses
from locum.errors import ConfigError, DataError, LocumError


def naive_chance(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The theorem, term by term."""
    replies = stats.binom(guesses, math.exp(epsilon) / (1 + math.exp(epsilon)))
    below = replies.pmf(correct - np.arange(1, canaries + 1))
    slack = max(sum(below[:i]) / i for i in range(1, canaries + 1))
    return min(1.0, replies.sf(correct - 1) + 2 * canaries * delta * slack)


@settings(max_examples=25)
@given(
    guesses=st.integers(1, 60),
    share=st.floats(0, 1),
    more=st.integers(0, 20),
    epsilon=st.floats(0, 5),
    delta=st.sampled_from([0.0, 1e-5, 1e-3, 0.1]),
)
def test_the_chance_is_the_theorems(guesses: int, share: float, more: int, epsilon: float, delta: float) -> None:
    correct = round(share * guesses)
    told = chance_of_guesses(correct, guesses, guesses + more, epsilon, delta)
    assert told == pytest.approx(naive_chance(correct, guesses, guesses + more, epsilon, delta), abs=1e-9)


def test_many_guesses_are_cut_short_to_the_safe_side() -> None:
    """The search for the worst term ends early; what it leaves out is bounded, and not missed where it decides."""
    replies = stats.binom(4000, 1 / (1 + math.exp(-2.5)))
    for correct in (3000, 3700, 3720, 3800, 3990):
        i = np.arange(1, correct + 1)
        slack = ((replies.cdf(correct - 1) - replies.cdf(correct - 1 - i)) / i).max()
        exact = min(1.0, replies.sf(correct - 1) + 2 * 9000 * 1e-5 * slack)
        told = chance_of_guesses(correct, 4000, 9000, 2.5, 1e-5)
        assert exact - 1e-9 <= told <= 2 * exact
        if 0.01 < exact < 0.1:
            assert told == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("correct", "guesses"), [(75, 100), (500, 500), (940, 1000), (12, 12)])
def test_without_delta_it_is_the_one_sided_clopper_pearson_bound(correct: int, guesses: int) -> None:
    share = stats.binomtest(correct, guesses, alternative="greater").proportion_ci(0.95, method="exact").low
    told = refuted_epsilon(correct, guesses, guesses, delta=0.0)
    assert told == pytest.approx(math.log(share / (1 - share)), abs=1e-4)


def test_figures_of_the_paper() -> None:
    """Appendix D and section 7 of Steinke, Nasr and Jagielski (2023)."""
    assert refuted_epsilon(75, 100, 1000, 1e-4) == pytest.approx(0.673, abs=1e-3)
    assert refuted_epsilon(1439, 1510, 100_000, 1e-5) == pytest.approx(2.675, abs=2e-3)


@settings(max_examples=30)
@given(correct=st.integers(1, 199), delta=st.floats(0, 1e-3))
def test_better_guesses_refute_more_and_delta_refutes_less(correct: int, delta: float) -> None:
    here = refuted_epsilon(correct, 200, 400, delta)
    assert here <= refuted_epsilon(correct + 1, 200, 400, delta) + 1e-5
    assert here <= refuted_epsilon(correct, 200, 400, 0.0) + 1e-5
    assert here <= refuted_epsilon(correct, 200, 400, delta, error=0.2) + 1e-5
    assert refuted_epsilon(100, 200, 400, delta) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_randomised_response_is_never_over_estimated_beyond_the_error_and_is_tight(
    delta: float, rng: np.random.Generator
) -> None:
    """With delta: each coin is shown outright with that chance, which (epsilon, delta) allows."""
    epsilon, canaries, seen = 1.0, 400, []
    for _ in range(400):
        bits = rng.random(canaries) < 0.5
        replies = np.where(rng.random(canaries) < 1 / (1 + math.exp(-epsilon)), bits, ~bits)
        replies = np.where(rng.random(canaries) < delta, bits, replies)
        # All answers "in" and all "out" are guesses: their number is random, but does not tell which are right.
        seen.append(int((replies == bits).sum()))
    bounds = {correct: refuted_epsilon(correct, canaries, canaries, delta) for correct in set(seen)}
    found = [bounds[correct] for correct in seen]
    # Three standard errors above one in twenty.
    assert np.mean(np.array(found) > epsilon) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    if delta == 0:
        assert np.mean(np.array(found) > epsilon) > 0.01
        assert np.median(found) > 0.75


def test_the_bound_gets_tight_with_many_canaries(rng: np.random.Generator) -> None:
    bits = rng.random(200_000) < 0.5
    replies = np.where(rng.random(200_000) < 1 / (1 + math.exp(-3.0)), bits, ~bits)
    assert 2.95 < LowerBound.from_scores(replies, bits, Guesses(90_000, 90_000), delta=0.0).epsilon < 3.0


def test_planned_guesses_find_nothing_where_there_is_nothing(rng: np.random.Generator) -> None:
    """The number of guesses was chosen on another run, so the error is what it says."""
    alarms = 0
    for _ in range(200):
        before, bits = rng.random(1000) < 0.5, rng.random(300) < 0.5
        plan = plan_guesses(rng.standard_normal(1000), before, 300, delta=0.0)
        alarms += LowerBound.from_scores(rng.standard_normal(300), bits, plan, delta=0.0).epsilon > 0
    assert alarms <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_guesses_are_planned_for_what_shows(rng: np.random.Generator) -> None:
    bits = np.arange(20_000) % 2 == 0
    rarely = np.where(bits & (rng.random(20_000) < 0.05), 10.0, 0.0) + rng.standard_normal(20_000)
    only_presence = plan_guesses(rarely, bits, 1000, delta=1e-5)
    assert only_presence.low == 0
    # One in forty can be told at all.
    assert only_presence.high <= 30
    assert plan_guesses(20.0 * bits, bits, 1000, delta=1e-5) == Guesses(500, 500)


def test_a_bound_says_what_it_rests_on() -> None:
    bits = np.arange(100) % 2 == 0
    bound = LowerBound.from_scores(bits, bits, Guesses(20, 10), delta=1e-5)
    assert (bound.canaries, bound.guesses, bound.correct) == (100, 30, 30)
    assert bound.accuracy.value == 1.0
    assert bound.to_dict()["accuracy"]["low"] < 1
    assert bound.to_dict()["confidence"] == 0.95


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: chance_of_guesses(5, 4, 10, 1.0, 0.0),
        lambda: chance_of_guesses(3, 4, 10, -1.0, 0.0),
        lambda: chance_of_guesses(3, 4, 10, 1.0, 2.0),
        lambda: refuted_epsilon(3, 4, 10, 0.0, error=0.0),
        lambda: Guesses(0, 0),
        lambda: LowerBound.from_scores([1.0, 2.0], [True, False], Guesses(2, 1), 0.0),
        lambda: LowerBound.from_scores([1.0, math.nan], [True, False], Guesses(1, 1), 0.0),
        lambda: LowerBound.from_scores([1.0], [True, False], Guesses(1, 0), 0.0),
    ],
)
def test_wrong_numbers_are_refused_in_one_sentence(wrong: object) -> None:
    with pytest.raises((ConfigError, DataError)) as error:
        wrong()  # type: ignore[operator]
    assert isinstance(error.value, LocumError)
    assert "\n" not in str(error.value)
