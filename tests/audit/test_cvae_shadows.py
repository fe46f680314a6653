"""Trained together or one after another with the same seeds: the same decoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from locum.audit.shadows.cvae import CVAEShadows
from locum.errors import ConfigError
from locum.generate import CVAEGenerator

SMALL: dict[str, Any] = {"hidden": (12,), "latent": 3, "max_epochs": 12, "learning_rate": 5e-3}


def pool(n: int = 70, d: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + y[:, None]).astype(np.float32)
    # Parts of unequal size: some have a batch more than others.
    return X, y, rng.random((4, n)) < np.array([0.4, 0.5, 0.5, 0.7])[:, None]


@pytest.mark.parametrize(
    "settings",
    [
        {"patience": 0},
        {"patience": 0, "batch_size": 16, "weight_decay": 0.01, "hidden": (12, 8)},
        {"patience": 2, "max_epochs": 60, "learning_rate": 0.03},
        {"patience": 0, "authors_compat": True, "batch_size": 16},
        {"preset": "federated", "patience": 0, "authors_compat": True},
    ],
)
def test_together_as_one_after_another(settings: dict[str, Any]) -> None:
    X, y, inside = pool()
    settings = {**SMALL, **settings}
    release = CVAEGenerator(**settings, random_state=0).fit(X, y).release(no_dp=True)
    bank = CVAEShadows(release, X, y[:, None]).decoders(inside, [11, 12, 13, 14])
    epochs = set()
    for s, mask in enumerate(inside):
        alone = CVAEGenerator(**settings, random_state=11 + s).fit(X[mask], y[mask])
        epochs.add(alone.history_.best_epoch)
        for name, value in bank.tensors.items():
            np.testing.assert_allclose(
                value[s].numpy(), alone.release(no_dp=True).tensors[name], rtol=1e-3, atol=1e-4
            )
    # Stopping early is tried only where networks stop at different times.
    assert len(epochs) > 1 or not settings["patience"]


def test_the_large_network_is_trained_alone() -> None:
    X, y, inside = pool()
    release = CVAEGenerator("large", max_epochs=1, random_state=0).fit(X, y).release(no_dp=True)
    shadows = CVAEShadows(release, X, y[:, None])
    bank = shadows.decoders(inside[:1], [3])
    alone = CVAEGenerator("large", max_epochs=1, random_state=3).fit(X[inside[0]], y[inside[0]]).release(no_dp=True)
    for name, value in alone.tensors.items():
        assert np.array_equal(bank.tensors[name][0].numpy(), value)


def test_a_class_that_a_shadow_lacks_has_no_statistic() -> None:
    X, y, _ = pool()
    release = CVAEGenerator(**SMALL, patience=0, random_state=0).fit(X, y).release(no_dp=True)
    found = CVAEShadows(release, X, y[:, None]).train((y == 0)[None], [0])[0]
    assert np.array_equal(np.isnan(found), y == 1)


def test_missing_settings() -> None:
    X, y, _ = pool()
    release = CVAEGenerator(**SMALL, random_state=0).fit(X, y).release(no_dp=True)
    bare = type(release)(release.manifest.model_copy(update={"settings": {}}), release.tensors)
    with pytest.raises(ConfigError, match="lack `batch_size`"):
        CVAEShadows(bare, X, y[:, None])
