"""Scores carry honest intervals; vectors from elsewhere are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from locum import EmbeddingInfo
from locum.errors import DataError
from locum.metrics import clopper_pearson, score_all
from locum.recipes.inputs import check_source, scored


def guesses(rng: np.random.Generator, n: int, classes: int = 3, signal: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(classes, size=n)
    scores = np.exp(rng.normal(size=(n, classes)) + signal * np.eye(classes)[y])
    return y, scores / scores.sum(axis=1, keepdims=True)


def test_values_are_those_of_the_metrics(rng: np.random.Generator) -> None:
    y, proba = guesses(rng, 200)
    found, wanted = scored(y, proba), score_all(y, proba, np.arange(3))
    assert list(found) == ["accuracy", "auc", "balanced_accuracy", "f1_macro", "calibration_error"]
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(wanted[name])
        assert estimate.low < estimate.value < estimate.high
        assert estimate.n == 200
    assert found["accuracy"] == clopper_pearson(int((proba.argmax(axis=1) == y).sum()), 200)


@pytest.mark.slow
def test_intervals_cover_what_many_records_give(rng: np.random.Generator) -> None:
    truth = score_all(*guesses(rng, 100_000), np.arange(3))
    hits: Counter[str] = Counter()
    for _ in range(20):
        for name, e in scored(*guesses(rng, 150)).items():
            hits[name] += e.low <= truth[name] <= e.high
    # 95 % of 20 is 19; 14 or fewer has a chance below one in a thousand.
    assert min(hits.values()) > 14


def test_a_perfect_score_is_no_certainty() -> None:
    y = np.repeat([0, 1], [40, 5])
    found = scored(y, np.eye(2)[y] * 0.8 + 0.1)
    for name in ("auc", "balanced_accuracy", "f1_macro"):
        assert found[name].value == found[name].high == 1
        # Five of five right: the exact interval starts at .025 ** (1 / 5).
        assert found[name].low == pytest.approx(0.025 ** (1 / 5))


def test_one_class_has_an_accuracy_and_nothing_else() -> None:
    found = scored(np.zeros(10, int), np.tile([0.9, 0.1], (10, 1)))
    assert list(found) == ["accuracy"]
    assert found["accuracy"].low == pytest.approx(0.025 ** (1 / 10))


def test_scores_are_the_same_again(rng: np.random.Generator) -> None:
    data = guesses(rng, 80)
    assert scored(*data) == scored(*data)


@pytest.mark.parametrize("change", [{"backbone": "dinov2"}, {"preprocessing": "other"}])
def test_vectors_from_elsewhere_are_refused(change: dict[str, str]) -> None:
    mine = EmbeddingInfo("efflite0", "", "abc", ("a", "b"))
    check_source(mine, replace(mine, class_names=()), "test")
    check_source(mine, EmbeddingInfo(), "test")
    with pytest.raises(DataError, match=f"The test data hold .*{next(iter(change.values()))}.* in the same way"):
        check_source(mine, replace(mine, **change), "test")


def test_the_error_tells_two_revisions_apart() -> None:
    with pytest.raises(DataError, match=r"revision '2'.*revision '1'"):
        check_source(EmbeddingInfo("efflite0", "1"), EmbeddingInfo("efflite0", "2"), "test")
