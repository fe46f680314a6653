"""Shared by the tests of metrics: one real data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def breast(real_data: Path) -> dict[str, np.ndarray]:
    """Embeddings of BreastMNIST: train_x, train_y, val_x, val_y, test_x, test_y."""
    file = real_data / "breastmnist_efflite0.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in LOCUM_DATA")
    with np.load(file, allow_pickle=False) as z:
        return {k: z[k] for k in z.files}
