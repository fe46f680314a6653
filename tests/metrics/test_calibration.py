"""The calibration error against plain loops, its limits, and an interval that holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError
from locum.metrics import accuracy, calibration_interval, expected_calibration_error

quick = settings(max_examples=40, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def naive(y: np.ndarray, proba: np.ndarray, bins: int) -> float:
    total = 0.0
    for b in range(bins):
        inside = []
        for label, row in zip(y, proba, strict=True):
            if b / bins < row.max() <= (b + 1) / bins:
                inside.append((row.max(), row.argmax() == label))
        if inside:
            confidence, right = np.mean(inside, axis=0)
            total += len(inside) / len(y) * abs(confidence - right)
    return total


def drawn(rng: np.random.Generator, n: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn by known probabilities; these are then sharpened by `temperature`."""
    p = rng.dirichlet(np.ones(3), size=n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=2)
    sharp = p**temperature
    return y, sharp / sharp.sum(axis=1, keepdims=True)


@quick
@given(seed=seeds, c=st.integers(2, 5), bins=st.integers(1, 20), n=st.integers(1, 60))
def test_it_is_what_plain_loops_give_and_lies_in_0_to_1(seed: int, c: int, bins: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    y, p = rng.integers(c, size=n), rng.dirichlet(np.full(c, 0.5), size=n)
    found = expected_calibration_error(y, p, bins=bins)
    assert found == pytest.approx(naive(y, p, bins), abs=1e-12)
    assert 0 <= found <= 1


@quick
@given(seed=seeds, c=st.integers(2, 5))
def test_a_classifier_that_is_always_certain_has_1_minus_accuracy(seed: int, c: int) -> None:
    rng = np.random.default_rng(seed)
    y, guess = rng.integers(c, size=40), rng.integers(c, size=40)
    assert expected_calibration_error(y, np.eye(c)[guess]) == pytest.approx(1 - accuracy(y, guess))


def test_calibrated_probabilities_have_none_and_sharpened_ones_some(rng: np.random.Generator) -> None:
    assert expected_calibration_error(*drawn(rng, 100_000)) < 0.01
    assert expected_calibration_error(*drawn(rng, 100_000, 3.0)) > 0.1


@pytest.mark.parametrize("temperature", [1.0, 2.0, 4.0])
def test_the_interval_holds_what_many_records_give(rng: np.random.Generator, temperature: float) -> None:
    truth = expected_calibration_error(*drawn(rng, 200_000, temperature))
    hits = 0
    for _ in range(20):
        e = calibration_interval(*drawn(rng, 150, temperature), rng, resamples=100)
        # Calibrated in truth: the remainder is chance even among 200,000.
        hits += e.low <= truth + 0.005 and truth <= e.high
    assert hits > 14


def test_a_calibrated_classifier_is_not_accused(rng: np.random.Generator) -> None:
    found = [calibration_interval(*drawn(rng, 300), rng, resamples=100) for _ in range(20)]
    assert sum(e.low == 0 for e in found) > 16
    assert min(e.value for e in found) > 0.01
    assert calibration_interval(*drawn(rng, 300, 5.0), rng).low > 0.05


@pytest.mark.parametrize(
    ("y", "p", "words"),
    [
        ([0, 2], [[0.5, 0.5]] * 2, "column numbers"),
        (["a", "b"], [[0.5, 0.5]] * 2, "column numbers"),
        ([0, 1], [[2.0, 0.5]] * 2, "sum to 1"),
        ([0, 1], [[1.5, -0.5]] * 2, "0 or more"),
        ([0], [[0.5, 0.5]] * 2, "one label per record"),
    ],
)
def test_wrong_input_is_named(y: list, p: list, words: str) -> None:
    with pytest.raises(DataError, match=words):
        expected_calibration_error(y, p)


def test_wrong_settings_are_named(rng: np.random.Generator) -> None:
    with pytest.raises(ConfigError, match="bins"):
        expected_calibration_error([0], [[0.5, 0.5]], bins=0)
    with pytest.raises(ConfigError, match="resamples"):
        calibration_interval([0], [[0.5, 0.5]], rng, resamples=3)
