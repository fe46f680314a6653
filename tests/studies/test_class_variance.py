"""The study of one more number per class, on planted data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from locum import EmbeddingSet
from locum.data import load_reference
from locum.recipes.study import load_run

STUDY = Path(__file__).parents[2] / "studies" / "private" / "run.py"


@pytest.fixture(scope="module")
def study() -> Any:
    return load_run(STUDY)


def test_the_rule_is_a_log_density(study: Any) -> None:
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(9, 3)), rng.normal(size=(2, 3))
    level, prior = np.array([0.5, 2.0]), np.array([0.3, 0.7])
    twin = [multivariate_normal(m, v).logpdf(X) + np.log(p) for m, v, p in zip(means, level, prior, strict=True)]
    found = study._isotropic(X, means, level, prior)
    assert np.allclose(np.diff(found, axis=1)[:, 0], twin[1] - twin[0])
    assert np.allclose(study._log_odds(found)[:, 1], twin[1] - twin[0])


def test_a_planted_difference_in_length_is_found(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes with one mean and different lengths: only the length tells them apart."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    X = rng.normal(size=(2000, 6)) * (1 + 0.5 * y[:, None])
    planted = EmbeddingSet(X.astype(np.float32), y)
    monkeypatch.setattr(study, "data", lambda name, part: planted)
    monkeypatch.setattr(study, "load_reference", lambda name, dim: load_reference("none", dim))
    for epsilon in (None, 3.0):
        found = study.class_variance_on_fold("planted", epsilon, 0)
        assert found["length"] > found["means"] + 0.05
        assert abs(found["means"] - 0.5) < 0.1
