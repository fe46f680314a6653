from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def tail(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Four classes in six dimensions, with 60, 20, 5 and 1 records, in no order."""
    y = rng.permutation(np.repeat([0, 1, 2, 3], [60, 20, 5, 1]))
    X = rng.normal(size=(len(y), 6)) + 3 * rng.normal(size=(4, 6))[y]
    return X.astype(np.float32), y
