from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from locum.errors import ConfigError, DataError
from locum.metrics import (
    accuracy,
    auc_interval,
    bootstrap_interval,
    clopper_pearson,
    compare,
    mean_interval,
    paired_bootstrap,
    paired_difference,
)
from locum.types import Estimate

quick = settings(max_examples=30, deadline=None, derandomize=True)

values = st.lists(st.floats(-100, 100), min_size=2, max_size=30)


@quick
@given(x=values)
def test_mean_agrees_with_scipy_and_with_estimate_from_runs(x) -> None:
    got = mean_interval(x)
    assert got.value == pytest.approx(np.mean(x))
    runs = Estimate.from_runs(x)
    assert (got.low, got.high) == pytest.approx(
        (runs.low, runs.high), rel=1e-3, abs=1e-3 * (1 + runs.high - runs.low)
    )
    if np.std(x) > 1e-6:
        want = stats.t.interval(0.95, len(x) - 1, loc=np.mean(x), scale=stats.sem(x))
        assert (got.low, got.high) == pytest.approx(want)


def test_one_run_has_no_interval() -> None:
    assert math.isinf(mean_interval([0.5]).high)


def test_paired_difference_is_the_paired_t_test(rng) -> None:
    shared = rng.standard_normal(8)
    a, b = shared + 0.1 * rng.standard_normal(8) + 1, shared + 0.1 * rng.standard_normal(8)
    got = paired_difference(a, b)
    want = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (got.low, got.high) == pytest.approx((want.low, want.high))
    assert compare(got) == "better"
    assert compare(paired_difference(b, a)) == "worse"
    assert compare(paired_difference(a, a[::-1])) == "tie"
    with pytest.raises(DataError, match="in pairs"):
        paired_difference([1.0, 2.0], [1.0])


def test_bootstrap_covers_a_mean_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        e = bootstrap_interval(rng.exponential(size=60), rng, resamples=200)
        hits += e.low <= 1 <= e.high
    assert 84 <= hits <= 99


def test_bootstrap_keeps_arrays_together() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(50)
    e = bootstrap_interval((x, 2 * x), rng, statistic=lambda a, b: float(np.corrcoef(a, b)[0, 1]), resamples=100)
    assert e.low == pytest.approx(1)
    assert e.n == 50


def test_bootstrap_agrees_with_scipy(rng) -> None:
    x = rng.standard_normal(80)
    got = bootstrap_interval(x, rng, statistic=np.median, resamples=3000)
    want = stats.bootstrap((x,), np.median, n_resamples=3000, method="percentile", rng=rng).confidence_interval
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=0.08)


def test_bootstrap_refuses_what_it_cannot_do(rng) -> None:
    with pytest.raises(DataError, match="not finite"):
        bootstrap_interval(np.arange(5.0), rng, statistic=lambda a: float("nan"))
    with pytest.raises(DataError, match="number of records"):
        bootstrap_interval((np.arange(5), np.arange(4)), rng)
    with pytest.raises(ConfigError, match="resamples"):
        bootstrap_interval(np.arange(5), rng, resamples=10)


def test_paired_bootstrap_sees_a_small_but_steady_gain(rng) -> None:
    y = rng.integers(2, size=800)
    b = np.where(rng.random(800) < 0.8, y, 1 - y)
    a = np.where(rng.random(800) < 0.2, y, b)
    e = paired_bootstrap(accuracy, y, a, b, rng, resamples=300)
    assert e.value == pytest.approx(accuracy(y, a) - accuracy(y, b))
    assert compare(e) == "better"
    # Two intervals of their own would overlap: pairing is what tells.
    alone = bootstrap_interval((y, a), rng, statistic=accuracy, resamples=300)
    assert e.high - e.low < alone.high - alone.low
    back = paired_bootstrap(accuracy, y, b, a, rng, resamples=300)
    assert back.value == pytest.approx(-e.value)


def naive_delong(pos: np.ndarray, neg: np.ndarray) -> tuple[float, float]:
    """AUC and its variance from the full matrix of pairs."""
    psi = (pos[:, None] > neg) + 0.5 * (pos[:, None] == neg)
    v10, v01 = psi.mean(axis=1), psi.mean(axis=0)
    return float(psi.mean()), float(v10.var(ddof=1) / len(pos) + v01.var(ddof=1) / len(neg))


@quick
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(2, 30), n=st.integers(2, 30), ties=st.booleans())
def test_auc_interval_is_delongs(seed, m, n, ties) -> None:
    rng = np.random.default_rng(seed)
    pos, neg = rng.standard_normal(m) + 0.5, rng.standard_normal(n)
    if ties:
        pos, neg = np.round(pos), np.round(neg)
    got = auc_interval(pos, neg)
    auc, variance = naive_delong(pos, neg)
    assert got.value == pytest.approx(auc)
    assert got.n == m + n
    assert 0 <= got.low <= got.high <= 1
    if variance > 0:
        assert got.high == pytest.approx(min(1, auc + 1.959964 * math.sqrt(variance)), abs=1e-6)
    flipped = auc_interval(neg, pos)
    assert (flipped.value, flipped.low) == pytest.approx((1 - got.value, 1 - got.high))
    assert auc_interval(np.exp(pos), np.exp(neg)) == got


def test_auc_interval_covers_as_often_as_it_says() -> None:
    truth = stats.norm.cdf(1 / math.sqrt(2))
    rng = np.random.default_rng(0)
    intervals = [auc_interval(rng.standard_normal(60) + 1, rng.standard_normal(80)) for _ in range(400)]
    hits = sum(e.low <= truth <= e.high for e in intervals)
    assert 365 <= hits <= 395


def test_perfect_order_is_not_certainty() -> None:
    e = auc_interval([2.0, 3.0, 4.0], [0.0, 1.0, 1.5])
    assert (e.value, e.high) == (1.0, 1.0)
    assert e.low == pytest.approx(0.025 ** (1 / 3))
    assert auc_interval([0.0, 1.0], [5.0, 6.0]).high < 1
    with pytest.raises(DataError, match="at least 2"):
        auc_interval([1.0], [0.0, 2.0])


@quick
@given(n=st.integers(1, 200), data=st.data())
def test_clopper_pearson_agrees_with_scipy(n, data) -> None:
    k = data.draw(st.integers(0, n))
    got = clopper_pearson(k, n)
    want = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert (got.value, got.low, got.high) == pytest.approx((k / n, want.low, want.high))


def test_clopper_pearson_refuses_more_than_all() -> None:
    with pytest.raises(ConfigError, match="at most"):
        clopper_pearson(3, 2)
    with pytest.raises(ConfigError, match="0 or more"):
        clopper_pearson(-1, 2)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0.1, 0.3, "better"), (-0.3, -0.1, "worse"), (-0.1, 0.1, "tie"), (0.0, 0.2, "tie")]
)
def test_compare(low, high, word) -> None:
    assert compare(Estimate((low + high) / 2, low, high, 5)) == word


def test_one_run_decides_nothing() -> None:
    assert compare(Estimate.from_runs([0.2])) == "not decided"
