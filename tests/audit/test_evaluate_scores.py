"""The p-value keeps its level and sees leaks of many and of few; parts of records are judged fairly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum import EmbeddingSet
from locum.audit import Scores
from locum.audit.statistics import evaluate_scores, more_often, needed_for
from locum.errors import DataError
from locum.types import AttackResult


def plain(n: int, rng: np.random.Generator, subject: np.ndarray | None = None) -> EmbeddingSet:
    return EmbeddingSet(rng.normal(size=(n, 2)).astype(np.float32), np.arange(n) % 2, subject)


def judged(inside: np.ndarray, outside: np.ndarray, seed: int = 0) -> AttackResult:
    rng = np.random.default_rng(seed)
    return evaluate_scores("a", Scores(inside, outside), plain(len(inside), rng), plain(len(outside), rng), rng)


def test_the_level_is_kept() -> None:
    rng = np.random.default_rng(0)
    p = np.array([judged(rng.normal(size=60), rng.normal(size=90)).p_value for _ in range(200)])
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))


def test_many_records_a_little() -> None:
    rng = np.random.default_rng(0)
    result = judged(rng.normal(0.4, size=500), rng.normal(size=500))
    assert result.verdict == "leak"
    assert result.attack.low < 0.61 < result.attack.high
    assert result.control.low < 0.5 < result.control.high


@pytest.mark.parametrize(("n", "m", "known"), [(300, 300, 15), (1000, 3000, 10)], ids=["5 %", "1 %"])
def test_few_records_far(n: int, m: int, known: int) -> None:
    """The AUC's interval holds 0.5, or a trifle above it; the highest scores are members all the same."""
    rng = np.random.default_rng(1)
    inside = rng.normal(size=n)
    inside[:known] = 10
    result = judged(inside, rng.normal(size=m))
    assert result.attack.value < 0.55
    assert result.p_value < 0.01
    (note,) = [note for note in result.notes if "highest scores" in note]
    assert note.endswith(f"belong to members, who are {n / (n + m):.0%} of all records attacked")


def test_scores_without_order_and_without_end() -> None:
    flat = judged(np.zeros(30), np.zeros(30))
    assert flat.p_value == 1
    assert flat.attack.value == 0.5
    assert judged(np.full(30, np.inf), np.full(30, -np.inf)).attack.value == 1


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 6), st.integers(1, 6))
def test_fisher_against_counting(hits: int, n: int, other_hits: int, m: int) -> None:
    """The naive twin: all ways to deal the hits out."""
    from itertools import combinations

    hits, other_hits = min(hits, n), min(other_hits, m)
    total = [sum(i < n for i in who) >= hits for who in combinations(range(n + m), hits + other_hits)]
    assert more_often(hits, n, other_hits, m) == pytest.approx(np.mean(total))


def test_rates_at_a_low_fpr_need_enough_non_members() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, size=400), rng.normal(size=500)
    result = judged(inside, outside)
    assert set(result.tpr) == {0.01}
    # Five non-members pass the bar, the sixth does not.
    assert result.tpr[0.01].value == (inside > np.sort(outside)[-6]).mean()
    assert "TPR at 0.1% FPR needs 5,000 non-members; there are 500" in result.notes
    assert (needed_for(0.01), needed_for(0.001)) == (500, 5000)
    few = judged(inside, outside[:499])
    # Fewer show a coarser rate, and too few show none.
    assert set(few.tpr) == {0.02}
    assert judged(inside, outside[:49]).tpr == {}


def test_the_interval_of_a_rate_covers_the_bar_too() -> None:
    """The true rate at 1 % FPR of a shift by one standard deviation is 0.0924."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        e = judged(rng.normal(1, size=100), rng.normal(size=500)).tpr[0.01]
        covered += e.low <= 0.0924 <= e.high
    assert covered >= 54


def test_the_curve_is_on_a_logarithmic_axis() -> None:
    rng = np.random.default_rng(0)
    result = judged(rng.normal(1, size=300), rng.normal(size=400))
    fpr, tpr = np.array(result.roc).T
    assert fpr[0] == 1 / 400
    assert (fpr[-1], tpr[-1]) == (1, 1)
    assert (np.diff(fpr) > 0).all()
    assert (np.diff(tpr) >= 0).all()


def test_a_class_that_leaks_and_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    members, others = plain(200, rng), plain(200, rng)
    inside, outside = rng.normal(size=200) + 3 * (members.y == 1), rng.normal(size=200)
    result = evaluate_scores("a", Scores(inside, outside), members, others, rng)
    assert result.by_class["1"].low > 0.9
    assert result.by_class["0"].low < 0.5 < result.by_class["0"].high


def test_the_most_exposed_tenth_is_found_by_its_place() -> None:
    """Members in one corner are given away; all others score like non-members."""
    rng = np.random.default_rng(0)
    members, others = plain(400, rng), plain(400, rng)
    corner = members.X[:, 0] > 1.0
    inside, outside = rng.normal(size=400) + 4 * corner, rng.normal(size=400)
    result = evaluate_scores("a", Scores(inside, outside), members, others, rng)
    assert result.most_exposed.low > 0.8 > result.attack.high
    fresh = [judged(rng.normal(size=200), rng.normal(size=200), s).most_exposed for s in range(30)]
    assert sum(e.low > 0.5 for e in fresh) <= 4


def test_records_of_one_subject_count_once() -> None:
    """Ten records per subject with one score: counted as independent they would accuse every third release."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(60):
        who = np.repeat(np.arange(15), 10)
        members, others = plain(150, rng, who), plain(150, rng, who + 100)
        scores = Scores(rng.normal(size=15)[who], rng.normal(size=15)[who])
        result = evaluate_scores("a", scores, members, others, rng)
        alarms += result.p_value <= 0.05
    assert alarms <= 8
    assert any("one record per subject" in note for note in result.notes)
    assert result.attack.n == 30


def test_wrong_lengths_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="gave 3 and 9 scores for 4 members and 9 non-members"):
        evaluate_scores("a", Scores(np.zeros(3), np.zeros(9)), plain(4, rng), plain(9, rng), rng)
    with pytest.raises(DataError, match="at least 2 members and 4 non-members"):
        evaluate_scores("a", Scores(np.zeros(3), np.zeros(3)), plain(3, rng), plain(3, rng), rng)
