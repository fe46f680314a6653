"""A planted temperature is found; it changes confidence and no prediction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from locum import EmbeddingInfo
from locum.errors import ConfigError, DataError
from locum.generate import ClassGaussian
from locum.heads import LinearHead, MLPHead, SavedHead, fit_temperature
from locum.release import Activation


def labeled(rng: np.random.Generator, n: int, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and labels drawn by their softmax."""
    scores = 1.5 * rng.normal(size=(n, classes))
    p = np.exp(log_softmax(scores, axis=1))
    return scores, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=classes - 1)


def naive(scores: np.ndarray, y: np.ndarray) -> float:
    """The same minimum by a general search, with the targets written out."""
    n, classes = scores.shape
    targets = np.full((n, classes), 1 / (n + 2) / (classes - 1))
    targets[np.arange(n), y] = 1 - 1 / (n + 2)

    def loss(log_t: float) -> float:
        return float(-(targets * log_softmax(scores / np.exp(log_t), axis=1)).sum(axis=1).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.01), np.log(100)), method="bounded").x))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(2, 5), factor=st.floats(0.2, 8))
def test_it_is_the_minimum_that_a_search_finds(seed: int, classes: int, factor: float) -> None:
    scores, y = labeled(np.random.default_rng(seed), 300, classes)
    assert fit_temperature(factor * scores, y) == pytest.approx(naive(factor * scores, y), rel=1e-3)


def test_records_that_are_all_right_make_nobody_certain(rng: np.random.Generator) -> None:
    scores = rng.normal(size=(500, 2))
    y = scores.argmax(axis=1)
    scores[np.arange(500), y] += 6
    sharp = np.exp(log_softmax(scores / fit_temperature(scores, y), axis=1)).max(axis=1)
    assert 0.99 < sharp.mean() < 0.999


@pytest.mark.parametrize("kind", [LinearHead, MLPHead])
def test_a_planted_overconfident_head_is_found(
    kind: type, blobs: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X / 4, y).release(EmbeddingInfo("efflite0", "1", "abc"), no_dp=True)
    fitted = kind(max_epochs=15, random_state=0).fit(*release.sample(4000, random_state=0))
    head = SavedHead.from_fitted(fitted, release, {"samples": 4000})
    rows = release.sample(4000, random_state=1)[0]
    p = head.predict_proba(rows)
    drawn = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=2)
    loud = head.with_temperature(1 / 5)
    np.testing.assert_allclose(loud.decision_function(rows), 5 * head.decision_function(rows))
    found = fit_temperature(loud.decision_function(rows), drawn)
    assert found == pytest.approx(5, rel=0.15)
    quiet = loud.with_temperature(found)
    np.testing.assert_array_equal(quiet.predict(rows), head.predict(rows))
    np.testing.assert_allclose(quiet.predict_proba(rows), p, atol=0.06)
    assert quiet.manifest.settings["temperature"] == found
    assert quiet.manifest.settings["samples"] == 4000
    assert quiet.manifest.program == head.manifest.program


def test_it_survives_the_file(blobs: tuple[np.ndarray, np.ndarray], tmp_path) -> None:
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    fitted = LinearHead(max_epochs=3, random_state=0).fit(*release.sample(300, random_state=0))
    head = SavedHead.from_fitted(fitted, release).with_temperature(2.0)
    opened = SavedHead.open(head.save(tmp_path / "h.safetensors"))
    np.testing.assert_array_equal(opened.predict_proba(blobs[0]), head.predict_proba(blobs[0]))
    assert opened.manifest.settings["temperature"] == 2.0


def test_wrong_input_is_named(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(DataError, match="finite scores"):
        fit_temperature([[np.nan, 0.0]], [0])
    with pytest.raises(DataError, match="one class each"):
        fit_temperature([[1.0, 0.0]], [0, 1])
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    fitted = LinearHead(max_epochs=1, random_state=0).fit(*release.sample(300, random_state=0))
    head = SavedHead.from_fitted(fitted, release)
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ConfigError, match="above 0 and finite"):
            head.with_temperature(wrong)
    program = (*head.manifest.program, Activation(op="sigmoid"))
    other = SavedHead(head.manifest.model_copy(update={"program": program}), head.tensors)
    with pytest.raises(ConfigError, match="it ends in 'sigmoid'"):
        other.with_temperature(2.0)
