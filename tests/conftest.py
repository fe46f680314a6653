"""Shared fixtures: small made-up data, and the folder of real data where there is one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
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


@pytest.fixture(scope="session")
def run_apart() -> Callable[..., BaseProcess]:
    """Start code in a process of its own, to be killed. It is forked from one that has loaded torch: seconds less."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "locum.audit.shadows.shadows", "locum.generate.cvae"])

    def start(code: str, **names: object) -> BaseProcess:
        process = context.Process(target=exec, args=(code, names))
        process.start()
        return process

    return start


@pytest.fixture
def hardly_trained_personal_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete federation ends with a model per site, which takes most of its time: test_personal trains them."""
    monkeypatch.setattr("locum.federated.personal._STEPS", 3)
