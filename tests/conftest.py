"""Shared fixtures: small made-up data, and the folder of real data where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from locum import EmbeddingSet

# A busy machine must not fail a property.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
# Small problems: threads would wait for each other longer than they compute.
torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def blobs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in eight dimensions, with correlated features and unequal sizes."""
    mix = rng.normal(size=(8, 8))
    y = np.repeat([0, 1, 2], [120, 60, 30])
    X = rng.normal(size=(len(y), 8)) @ mix + 4 * rng.normal(size=(3, 8))[y]
    return X.astype(np.float32), y


@pytest.fixture
def blob_set(blobs: tuple[np.ndarray, np.ndarray]) -> EmbeddingSet:
    return EmbeddingSet.from_arrays(blobs[0], np.array(["ant", "bee", "cat"])[blobs[1]])


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip that says why."""
    value = os.environ.get("LOCUM_DATA")
    if not value or not Path(value).is_dir():
        pytest.skip("LOCUM_DATA names no folder of real data")
    return Path(value)


@pytest.fixture
def hardly_trained_personal_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every complete federation ends with a model per site, which takes most of its time; test_personal trains them."""
    monkeypatch.setattr("locum.federated.personal._STEPS", 3)
