from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import metrics as sk

from locum.errors import ConfigError, DataError
from locum.metrics import (
    accuracy,
    auc_macro,
    balanced_accuracy,
    cohen_kappa,
    expected_calibration_error,
    f1,
    score_all,
)

quick = settings(max_examples=30, deadline=None, derandomize=True)

seeds = st.integers(0, 2**32 - 1)


def naive_auc(score: np.ndarray, positive: np.ndarray) -> float:
    pairs = [(p > n) + 0.5 * (p == n) for p in score[positive] for n in score[~positive]]
    return float(np.mean(pairs))


@quick
@given(seed=seeds, c=st.integers(3, 5), coarse=st.booleans())
def test_auc_agrees_with_plain_loops_and_scikit_learn(seed, c, coarse) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(c, size=20)])
    p = rng.dirichlet(np.ones(c), size=len(y))
    if coarse:
        p = np.round(p, 1)
    got = auc_macro(y, p, range(c))
    assert got == pytest.approx(np.mean([naive_auc(p[:, k], y == k) for k in range(c)]))
    if not coarse:
        assert got == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr", average="macro"))


@quick
@given(seed=seeds, n=st.integers(2, 40))
def test_two_classes_give_the_ordinary_auc(seed, n) -> None:
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(2, size=n))
    s = np.round(rng.random(n + 2), 1)
    got = auc_macro(y, np.column_stack([1 - s, s]), [0, 1])
    assert got == pytest.approx(sk.roc_auc_score(y, s))
    assert auc_macro(y, np.column_stack([1 - s, 3 * s**3]), [0, 1]) == pytest.approx(got)


@quick
@given(seed=seeds, c=st.integers(2, 5), kind=st.sampled_from(["int", "text"]))
def test_label_scores_agree_with_scikit_learn(seed, c, kind) -> None:
    rng = np.random.default_rng(seed)
    names = np.array(["ant", "bee", "cat", "dog", "elk"]) if kind == "text" else np.arange(5) * 3
    t, p = names[rng.integers(c, size=30)], names[rng.integers(c, size=30)]
    t[:c] = names[:c]
    assert accuracy(t, p) == pytest.approx(sk.accuracy_score(t, p))
    assert balanced_accuracy(t, p) == pytest.approx(sk.balanced_accuracy_score(t, p))
    assert cohen_kappa(t, p) == pytest.approx(sk.cohen_kappa_score(t, p))
    for average in ("macro", "weighted"):
        assert f1(t, p, average=average) == pytest.approx(sk.f1_score(t, p, average=average, zero_division=0))


def test_predicted_class_that_the_truth_lacks() -> None:
    t, p = [0, 0, 1], [0, 2, 1]
    assert balanced_accuracy(t, p) == 0.75
    assert f1(t, p) == pytest.approx(sk.f1_score(t, p, average="macro"))


def test_absent_class_is_skipped_and_order_of_classes_is_free() -> None:
    y = np.array(["b", "a", "b", "a"])
    p = np.array([[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.2, 0.3, 0.5], [0.2, 0.1, 0.7]])
    got = auc_macro(y, p, ["c", "a", "b"])
    assert got == pytest.approx((naive_auc(p[:, 1], y == "a") + naive_auc(p[:, 2], y == "b")) / 2)
    assert auc_macro(y, p[:, [1, 2, 0]], ["a", "b", "c"]) == pytest.approx(got)


def test_score_all_holds_every_score(rng) -> None:
    y = rng.integers(3, size=60)
    p = rng.dirichlet(np.ones(3), size=60)
    guess = p.argmax(axis=1)
    assert score_all(y + 5, p, [5, 6, 7]) == pytest.approx(
        {
            "auc": auc_macro(y, p, [0, 1, 2]),
            "accuracy": accuracy(y, guess),
            "balanced_accuracy": balanced_accuracy(y, guess),
            "f1_macro": f1(y, guess),
            "f1_weighted": f1(y, guess, average="weighted"),
            "cohen_kappa": cohen_kappa(y, guess),
            "calibration_error": expected_calibration_error(y, p),
        }
    )


def test_perfect_chance_and_one_class() -> None:
    assert cohen_kappa([1, 1], [1, 1]) == 0
    assert cohen_kappa([0, 1], [0, 1]) == 1
    assert f1([1, 1], [1, 1]) == 1
    assert auc_macro([0, 1, 0, 1], np.full((4, 2), 0.5), [0, 1]) == 0.5


@pytest.mark.parametrize(
    ("y", "p", "classes", "words"),
    [
        ([0, 0], np.full((2, 2), 0.5), [0, 1], "two classes in the test set"),
        ([0, 2], np.full((2, 2), 0.5), [0, 1], "not among `classes`"),
        ([0, 1], np.full((2, 2), 0.5), [0, 1, 2], "each column"),
        ([0, 1], np.full((2, 2), 0.5), [1, 1], "each column"),
        ([0, 1], np.full((2, 2), 0.5), ["0", "1"], "one kind"),
        ([0, 1, 1], np.full((2, 2), 0.5), [0, 1], "one label per record"),
        ([0, 1], np.array([[0.5, np.nan], [0.5, 0.5]]), [0, 1], "finite"),
        ([0, 1], np.array([0.5, 0.5]), [0, 1], "table"),
        ([0.5, 1.0], np.full((2, 2), 0.5), [0, 1], "whole numbers"),
        ([0, 1], np.ones((2, 2)), [0, 1], "sum to 1"),
    ],
)
def test_wrong_input_is_named(y, p, classes, words) -> None:
    with pytest.raises(DataError, match=words):
        score_all(y, p, classes)


def test_wrong_labels_are_named() -> None:
    with pytest.raises(DataError, match="one label per record"):
        accuracy([0, 1], [0])
    with pytest.raises(DataError, match="none"):
        accuracy(np.array([], dtype=int), np.array([], dtype=int))
    with pytest.raises(DataError, match="one kind"):
        accuracy([0, 1], ["0", "1"])
    with pytest.raises(ConfigError, match="average"):
        f1([0, 1], [0, 1], average="micro")  # type: ignore[arg-type]
