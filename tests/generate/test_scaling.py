from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.generate import CVAEGenerator, fit_scaler

KINDS = ["minmax", "zscore", "class"]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS), size=st.floats(1e-3, 1e3))
def test_backward_undoes_forward(seed: int, kind: str, size: float) -> None:
    rng = np.random.default_rng(seed)
    X = (size * rng.normal(size=(40, 5))).astype(np.float32)
    y = np.arange(40) % 3
    scaler = fit_scaler(kind, X, y, 3)  # type: ignore[arg-type]
    np.testing.assert_allclose(scaler.backward(scaler.forward(X, y), y), X, rtol=1e-3, atol=1e-4 * size)


def test_scaled_values_are_of_order_one(rng: np.random.Generator) -> None:
    X = (100 + 7 * rng.normal(size=(300, 4))).astype(np.float32)
    y = np.arange(300) % 3
    X += 50 * y[:, None]
    bounds = fit_scaler("minmax", X, y, 3).forward(X, y)
    assert bounds.min() == 0
    assert bounds.max() == pytest.approx(1)
    for kind, labels in (("zscore", [slice(None)]), ("class", [y == c for c in range(3)])):
        scaled = fit_scaler(kind, X, y, 3).forward(X, y)  # type: ignore[arg-type]
        assert scaled.std(axis=0) == pytest.approx(1, rel=1e-3)
        for rows in labels:
            assert np.abs(scaled[rows].mean(axis=0)).max() < 1e-3


@pytest.mark.parametrize("scaling", KINDS)
def test_constant_features_stay_constant_in_samples(rng: np.random.Generator, scaling: str) -> None:
    X = rng.normal(size=(60, 4)).astype(np.float32)
    X[:, 2] = 3.25
    y = np.arange(60) % 2
    generator = CVAEGenerator(scaling=scaling, max_epochs=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(generator.sample(50)[0][:, 2], 3.25, rtol=1e-5)
