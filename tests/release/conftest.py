from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingInfo
from locum.generate import ClassGaussian, CVAEGenerator
from locum.release import Release


@pytest.fixture
def gaussian(blobs: tuple[np.ndarray, np.ndarray]) -> Release:
    info = EmbeddingInfo("efflite0", "1", "abc", ("ant", "bee", "cat"))
    return ClassGaussian(random_state=0).fit(*blobs).release(info, no_dp=True)


@pytest.fixture
def network(blobs: tuple[np.ndarray, np.ndarray]) -> Release:
    return CVAEGenerator(max_epochs=2, random_state=0).fit(*blobs).release(no_dp=True)


@pytest.fixture
def folder(gaussian: Release, tmp_path: Path) -> Path:
    return gaussian.save(tmp_path / "release")
