"""Lambda: the paper's rule against a naive twin, and that the robust rule joins where it helps and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score

from locum.errors import ConfigError, DataError
from locum.federated.interpolation import (
    LAMBDAS,
    Measure,
    _f1_parts,
    _gain,
    _paired,
    choose_lambda,
    pick_lambda,
)

MEASURES: tuple[Measure, ...] = ("balanced_accuracy", "accuracy", "f1", "log_loss")


def probabilities(m: int) -> st.SearchStrategy[np.ndarray]:
    raw = st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=m, max_size=m)
    return raw.map(lambda rows: np.array(rows) / np.sum(rows, axis=1, keepdims=True))


CASES = st.integers(1, 8).flatmap(
    lambda m: st.tuples(
        probabilities(m), probabilities(m), st.lists(st.integers(0, 2), min_size=m, max_size=m).map(np.array)
    )
)


def twin(p: np.ndarray, y: np.ndarray, measure: str) -> float:
    guess = p.argmax(axis=1)
    if measure == "accuracy":
        return float(np.mean([a == b for a, b in zip(guess, y, strict=True)]))
    if measure == "f1":
        return float(f1_score(y, guess, average="macro"))
    if measure == "log_loss":
        return sum(float(np.log(p[i][c])) for i, c in enumerate(y)) / len(y)
    recalls = [np.mean([guess[i] == c for i in range(len(y)) if y[i] == c]) for c in sorted(set(y.tolist()))]
    return float(np.mean(recalls))


@given(CASES, st.sampled_from(MEASURES))
def test_the_papers_rule_takes_the_best_value(case: Any, measure: Measure) -> None:
    local, shared, y = case
    values = {lam: twin(lam * local + (1 - lam) * shared, y, measure) for lam in (k / 10 for k in range(11))}
    best = pick_lambda(local, shared, y, measure=measure, rule="paper")
    assert best in LAMBDAS
    assert values[best] >= max(values.values()) - 1e-9
    # Among equals, the smallest.
    assert all(values[lam] < values[best] + 1e-9 for lam in values if lam < best)


def heads(n: int, seed: int, local: float, shared: float, classes: int = 2) -> tuple[np.ndarray, ...]:
    """Probabilities of two heads whose errors are independent; the numbers say how good they are."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    out = []
    for quality in (local, shared):
        scores = quality * np.eye(classes)[y] + rng.normal(size=(n, classes))
        out.append(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True))
    return out[0], out[1], y


@pytest.mark.parametrize("measure", MEASURES)
def test_a_good_global_head_is_used_and_a_bad_one_is_not(measure: Measure) -> None:
    helped = [choose_lambda(*heads(100, seed, 1.5, 3.0), measure=measure) for seed in range(40)]
    assert np.mean([choice.fallback for choice in helped]) < 0.1
    assert np.median([choice.lam for choice in helped]) <= 0.5
    assert all(choice.gain.value > 0 for choice in helped if not choice.fallback)
    useless = [choose_lambda(*heads(100, seed, 1.5, -1.5), measure=measure) for seed in range(40)]
    assert np.mean([choice.fallback for choice in useless]) > 0.9
    assert all(choice.lam == 1 for choice in useless if choice.fallback)


def test_where_records_cannot_tell_shares_are_equal() -> None:
    """Two equally good heads: equal shares are chosen at most sites, and more often than by the paper's rule."""
    robust, paper = [], []
    for seed in range(40):
        case = heads(100, seed, 2.0, 2.0, classes=5)
        robust.append(pick_lambda(*case))
        paper.append(pick_lambda(*case, measure="accuracy", rule="paper"))
    assert robust.count(0.5) > 30
    assert robust.count(0.5) > paper.count(0.5)


def test_by_balanced_accuracy_rare_classes_count() -> None:
    """The local head never finds the rare class; the global one finds it, at the cost of some of the others."""
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 10 == 0).astype(np.int64)
    local = np.tile([0.95, 0.05], (200, 1))
    right = np.where(y == 1, 1.0, rng.random(200) > 0.15)
    shared = np.where((right == 1)[:, None], np.eye(2)[y], np.eye(2)[1 - y]) * 0.8 + 0.1
    balanced, plain = (choose_lambda(local, shared, y, measure=m) for m in ("balanced_accuracy", "accuracy"))
    assert balanced.lam < 0.5
    assert plain.fallback
    mix = balanced.lam * local + (1 - balanced.lam) * shared
    assert balanced_accuracy_score(y, mix.argmax(axis=1)) > balanced_accuracy_score(y, local.argmax(axis=1)) + 0.3


@given(CASES, st.sampled_from(MEASURES))
@settings(max_examples=50)
def test_a_mix_that_is_used_was_better(case: Any, measure: Measure) -> None:
    local, shared, y = case
    choice = choose_lambda(local, shared, y, measure=measure)
    assert choice.fallback == (choice.lam == 1)
    if not choice.fallback:
        mix = choice.lam * local + (1 - choice.lam) * shared
        assert choice.gain.value == pytest.approx(twin(mix, y, measure) - twin(local, y, measure))
        assert choice.gain.value > 0


def test_one_record_is_no_proof() -> None:
    wrong, right = np.array([[0.1, 0.9]] * 2), np.array([[0.9, 0.1]] * 2)
    for n in (1, 2):
        assert choose_lambda(wrong[:n], right[:n], np.zeros(n, dtype=np.int64)).fallback == (n == 1)
    # Ten records of one subject are one observation.
    many = np.zeros(10, dtype=np.int64)
    ten = wrong[:1].repeat(10, axis=0), right[:1].repeat(10, axis=0)
    assert not choose_lambda(*ten, many).fallback
    assert choose_lambda(*ten, many, unit=np.full(10, 7)).fallback


def test_equal_heads_bring_nothing() -> None:
    same = np.full((4, 2), 0.5)
    zeros = np.zeros(4, dtype=np.int64)
    assert choose_lambda(same, same, zeros).fallback
    assert pick_lambda(same, same, zeros, measure="log_loss", rule="paper") == 0.0
    # A head that gives the true class probability 0 must not break the sum.
    never = np.array([[0.0, 1.0]])
    assert pick_lambda(never, never, np.array([0]), measure="log_loss", rule="paper") == 0.0
    assert choose_lambda(never, never, np.array([0]), measure="log_loss").fallback


@pytest.mark.parametrize("measure", MEASURES)
def test_the_standard_error_is_that_of_a_bootstrap_over_units(measure: Measure) -> None:
    local, shared, y = heads(300, 1, 1.5, 2.0, classes=3)
    who = np.random.default_rng(2).integers(0, 100, 300)
    mix = 0.5 * local + 0.5 * shared
    _, error = _gain(local, mix, y, who, measure)
    rng, found = np.random.default_rng(3), []
    members = [np.flatnonzero(who == u) for u in np.unique(who)]
    for _ in range(400):
        rows = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        found.append(twin(mix[rows], y[rows], measure) - twin(local[rows], y[rows], measure))
    assert error == pytest.approx(np.std(found), rel=0.3)


def test_the_parts_of_f1_are_its_derivative() -> None:
    """Counting one record a little more moves F1 by its part."""
    rng = np.random.default_rng(0)
    y, guess = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    parts = _f1_parts(guess, y)
    assert abs(parts.sum()) < 1e-9
    for i in range(5):
        weights = np.ones(60)
        weights[i] += 1e-5
        moved = f1_score(y, guess, average="macro", sample_weight=weights) - f1_score(y, guess, average="macro")
        assert moved * 60 / 1e-5 == pytest.approx(parts[i], abs=1e-3)


def test_paired_differences_by_hand() -> None:
    # Two units with sums 2 and 0: the mean is 0.5, and each unit is 1 away from its expected sum.
    mean, error = _paired(np.array([1.0, 1.0, 0.0, 0.0]), np.ones(4), np.array([0, 0, 1, 1]))
    assert (mean, error) == (0.5, pytest.approx(np.sqrt(2) / 4))


def test_bad_input_is_one_sentence() -> None:
    local, shared, y = heads(9, 0, 1.0, 1.0)
    with pytest.raises(ConfigError, match="`measure` must be one of"):
        pick_lambda(local, shared, y, measure="auc")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`rule` must be one of"):
        pick_lambda(local, shared, y, rule="best")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="one row"):
        pick_lambda(local, shared[:5], y)
    with pytest.raises(DataError, match="one row"):
        pick_lambda(local[:0], shared[:0], y[:0])
