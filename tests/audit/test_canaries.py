from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from locum.accounting import Gaussian, QueryPlan, SGDPlan
from locum.audit import Guesses, LowerBound
from locum.audit.epsilon.canaries import log_odds, run_canaries, simulate
from locum.audit.epsilon.cast import CanaryRun
from locum.errors import ConfigError, DataError
from locum.mechanisms import SecureRandom
from locum.train.dp import ClippedNetwork
from locum.types import DP

BUDGET = DP(6.0, 1e-5, n_public=500)
UNITS = ["record", "subject"]
RELATIONS = ["add-or-remove", "replace-one"]


def steps_only(unit: str = "record", relation: str = "add-or-remove", **changed: Any) -> SGDPlan:
    budget = DP(8.0, 1e-5, unit, n_public=500, relation=relation)
    return SGDPlan(budget, **{"rate": 1.0, "batch": 500, "steps": 2, "clip": 1.5, "noise_multiplier": 0.8} | changed)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    change_noise(monkeypatch, 0.0)


def change_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """A faulty generator: noise of the wrong size."""
    honest = SecureRandom.__init__

    def faulty(self: SecureRandom, counts: Any, rate: float, values: int, std: float, **rest: Any) -> None:
        honest(self, counts, rate, values, factor * std, **rest)

    monkeypatch.setattr(SecureRandom, "__init__", faulty)


@pytest.mark.parametrize("relation", RELATIONS)
def test_log_odds_are_those_of_the_two_densities(relation: str) -> None:
    x, rate, noise = np.linspace(-4, 4, 41), 0.3, 0.7
    drawn, undrawn, other = (stats.norm(m, noise).pdf(x) for m in (1.0, 0.0, -1.0))
    included = rate * drawn + (1 - rate) * undrawn
    absent = undrawn if relation == "add-or-remove" else rate * other + (1 - rate) * undrawn
    np.testing.assert_allclose(log_odds(x, rate, noise, relation), np.log(included / absent), atol=1e-9)
    assert np.isfinite(log_odds([-1e9, 1e9], 1e-9, 0.1, relation)).all()


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("network", ["cvae", "critic"])
def test_without_noise_each_step_shows_the_canary_at_full_length(network: str, unit: str, relation: str) -> None:
    """By hand: two steps in which everybody joins; a canary counts for the clip exactly, two records or one."""
    plan = steps_only(unit, relation)
    run = run_canaries(plan, canaries=40, records=30, seed=1, network=network)
    absent = 0.0 if relation == "add-or-remove" else -1.0
    expected = 2 * log_odds(np.where(run.included, 1.0, absent), 1.0, 0.8, relation)
    np.testing.assert_allclose(run.scores, expected, atol=5e-3)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", UNITS)
def test_without_noise_the_sums_show_the_canary_at_full_length(unit: str, relation: str) -> None:
    plan = QueryPlan(DP(8.0, 1e-5, unit, n_public=500, relation=relation), 1.0, 0.6)
    run = run_canaries(plan, canaries=100, records=30, seed=1)
    absent = 0.0 if relation == "add-or-remove" else -1.0
    # A canary has sums and, if it is not replaced, the count of a class to itself.
    alone = 0.98 if relation == "add-or-remove" else 0.96
    expected = log_odds(np.where(run.included, 1.0, absent), 1.0, 0.6 / np.sqrt(alone), relation)
    # Up to 40 equal records add up, and are cut to the length of one.
    np.testing.assert_allclose(run.scores, expected, rtol=1e-3)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("sums", [34, 2])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", UNITS)
def test_without_noise_a_head_shows_the_canary_at_full_length_in_every_draw(
    unit: str, relation: str, sums: int
) -> None:
    """All of the precision but a quarter of the first query's, which counts and lengths get; by hand."""
    plan = QueryPlan(DP(8.0, 1e-5, unit, n_public=500, relation=relation), 1.0, 0.6, sums)
    run = run_canaries(plan, canaries=300, records=400, seed=1)
    absent, alone = (0.0, 0.97) if relation == "add-or-remove" else (-1.0, 0.97)
    expected = log_odds(np.where(run.included, 1.0, absent), 1.0, 0.6 / np.sqrt(alone), relation)
    # Directions of canaries are a little oblique: the center that is taken off has a part of each.
    np.testing.assert_allclose(run.scores, expected, rtol=0.05)


PLANS = {
    "sums": QueryPlan(BUDGET, 1.0, 0.8),
    "head": QueryPlan(BUDGET, 1.0, 0.8, 34),
    "head, replaced": QueryPlan(DP(8.0, 1e-5, "subject", relation="replace-one"), 1.0, 1.6, 34),
    "sums and steps": steps_only(rate=0.2, steps=6, extra=(Gaussian(0.9),)),
    "steps, replaced": steps_only(relation="replace-one", rate=0.3, steps=4, noise_multiplier=1.5),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_a_run_gives_the_scores_that_the_plan_foretells(plan: SGDPlan | QueryPlan) -> None:
    """If the code follows the plan, canaries look as in the simulation, which uses only the plan's numbers."""
    run, expected = run_canaries(plan, canaries=1500, records=200, seed=5), simulate(plan, np.random.default_rng(6))
    for coin in (True, False):
        here, there = run.scores[run.included == coin], expected.scores[expected.included == coin]
        assert stats.ks_2samp(here, there).pvalue > 1e-3
    # By Bayes, log odds mean what they say.
    likely = run.scores > 0
    told = 1 / (1 + np.exp(-np.abs(run.scores)))
    assert abs((run.included == likely).mean() - told.mean()) < 0.04


def refuted(plan: SGDPlan | QueryPlan, **options: Any) -> float:
    run = run_canaries(plan, canaries=600, records=50, seed=2, **options)
    return LowerBound.from_scores(run.scores, run.included, Guesses(50, 50), plan.privacy.delta).epsilon


def test_a_fault_in_clipping_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = steps_only(noise_multiplier=6.0)
    assert plan.epsilon < 1.1
    assert refuted(plan) < plan.epsilon
    honest = ClippedNetwork.clipped_sum
    monkeypatch.setattr(ClippedNetwork, "clipped_sum", lambda self, clip, blocks=None: honest(self, 5 * clip, blocks))
    assert refuted(plan) > plan.epsilon


def test_records_of_a_subject_that_are_clipped_one_by_one_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each canary has two records: it would count twice. Its noise is meant for one."""
    plan = steps_only(unit="subject", noise_multiplier=3.0)
    once = run_canaries(plan, canaries=600, records=50, seed=2)
    honest = ClippedNetwork.clipped_sum
    monkeypatch.setattr(ClippedNetwork, "clipped_sum", lambda self, clip, blocks=None: honest(self, clip))
    twice = run_canaries(plan, canaries=600, records=50, seed=2)
    gap = [run.scores[run.included].mean() - run.scores[~run.included].mean() for run in (once, twice)]
    assert gap[1] > 1.7 * gap[0]


def test_batches_that_are_larger_than_planned_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = steps_only(rate=0.02, batch=10, steps=3, noise_multiplier=1.0)
    assert refuted(plan) < plan.epsilon
    honest = SecureRandom.__init__
    monkeypatch.setattr(
        SecureRandom, "__init__", lambda self, counts, rate, *a, **k: honest(self, counts, 1.0, *a, **k)
    )
    assert refuted(plan) > plan.epsilon


def test_a_run_is_repeatable_a_test_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = steps_only(rate=0.2, extra=(Gaussian(0.9),))
    first, again, other = (run_canaries(plan, canaries=50, records=20, seed=seed) for seed in (1, 1, 2))
    assert first.is_test
    np.testing.assert_array_equal(first.scores, again.scores)
    assert (first.scores != other.scores).all()
    assert (first.included != other.included).any()
    # No ledger, no checkpoint.
    assert not list(tmp_path.iterdir())


def test_inclusions_are_fair_and_independent_of_the_rest() -> None:
    """Their streams differ from those of the noise: without a signal, scores know nothing about them."""
    plan = steps_only(rate=1e-9, batch=1, steps=3)
    run = run_canaries(plan, canaries=4000, records=1, seed=3)
    assert abs(run.included.mean() - 0.5) < 0.03
    ranks = stats.rankdata(run.scores)
    assert abs(np.corrcoef(ranks, run.included)[0, 1]) < 0.06


@pytest.mark.parametrize("wrong", [{"canaries": 9}, {"canaries": 10.5}, {"records": 0}, {"records": True}])
def test_wrong_counts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be an integer"):
        run_canaries(QueryPlan(BUDGET, 1.0, 0.8), **wrong)


def test_scores_that_are_no_numbers_say_nothing() -> None:
    with pytest.raises(DataError, match="not finite"):
        CanaryRun(np.array([np.nan]), np.array([True]))
