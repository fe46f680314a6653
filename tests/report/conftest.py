from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingInfo
from locum.generate import ClassGaussian, KSame
from locum.release import Release

Make = Callable[..., Release]


@pytest.fixture
def make() -> Make:
    """A release of made-up data with classes of any name."""

    def made(names: tuple[str, ...] = ("ant", "bee", "cat"), *, features: int = 6, rows: bool = False) -> Release:
        rng = np.random.default_rng(1)
        y = np.arange(12 * len(names)) % len(names)
        X = rng.normal(size=(len(y), features)) + 3 * rng.normal(size=(len(names), features))[y]
        model: Any = KSame(k=3, random_state=0) if rows else ClassGaussian(random_state=0)
        return model.fit(X, y).release(EmbeddingInfo("efflite0", "r1", "abc", names), no_dp=True)

    return made


@pytest.fixture
def measured() -> dict[str, Any]:
    """An evaluation as `evaluate` gives it, with figures that can be recognized."""

    def estimate(value: float, n: int) -> dict[str, Any]:
        return {"value": value, "low": value - 0.01234, "high": value + 0.01234, "n": n}

    def row(method: str, auc: float, distance: float | None) -> dict[str, Any]:
        scores = {m: estimate(auc, 3) for m in ("auc", "accuracy", "balanced_accuracy", "f1_macro", "cohen_kappa")}
        return {
            "method": method,
            "rows": 1237,
            "scores": scores,
            "distance": None if distance is None else estimate(distance, 1237),
        }

    return {
        "head": "linear",
        "seeds": 3,
        "test_records": 313,
        "rows": [row("release (ClassGaussian)", 0.87654, 5.4321), row("real data", 0.89123, None)],
        "membership": {
            "name": "nearest distance",
            "measure": "auc",
            "verdict": "inconclusive",
            "material": 0.05,
            "level": 0.01,
            "attack": {"value": 0.52345, "low": 0.48765, "high": 0.55925, "n": 1550},
            "control": estimate(0.49876, 313),
            "baseline": {"value": 0.5, "low": 0.5, "high": 0.5, "n": 1},
        },
    }
