"""Shared by the tests of metrics: seeded generators, one real data set, quick hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "metrics", max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("metrics")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


@pytest.fixture(scope="session")
def breast() -> dict[str, np.ndarray]:
    """Embeddings of BreastMNIST: train_x, train_y, val_x, val_y, test_x, test_y."""
    folder = os.environ.get("UNDERSTUDY_DATA")
    if not folder:
        pytest.skip("UNDERSTUDY_DATA is not set: this test needs real embeddings")
    file = Path(folder) / "breastmnist_efflite0.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in UNDERSTUDY_DATA")
    with np.load(file, allow_pickle=False) as z:
        return {k: z[k] for k in z.files}
