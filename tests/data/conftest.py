"""Sets and helpers that several test files share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from locum.data import read_splits
from locum.errors import DataError
from locum.types import EmbeddingInfo, EmbeddingSet


@pytest.fixture
def rich() -> EmbeddingSet:
    """Everything at once: text subjects, three kinds of attributes, unsorted and empty classes, info."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 5)).astype(np.float32)
    X[0, :3] = [np.float32(1) / 3, np.finfo(np.float32).max, np.float32(1e-40)]
    return EmbeddingSet(
        X=X,
        y=np.array([0, 1, 3] * 4),
        subject=np.array([f'p{i // 2:02d}, née "N"' for i in range(12)]),
        attributes={
            "sex": np.array(["f", "m", "NA"] * 4),
            "age": np.arange(40, 52),
            "smoker": np.array([True, False] * 6),
        },
        info=EmbeddingInfo("efflite0", "r1", "sha256:ab", ("malignant", "benign", "cyst", "other")),
    )


@pytest.fixture
def refuses() -> Callable[..., str]:
    """Read a file that must fail with one short text holding every one of the given pieces."""

    def check(path: object, *pieces: str) -> str:
        with pytest.raises(DataError) as caught:
            read_splits(path)  # type: ignore[arg-type]
        text = str(caught.value)
        for piece in (str(path), *pieces):
            assert piece in text, text
        assert "\n" not in text
        # The library's own text may quote records; no traceback may show it either.
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        return text

    return check


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """A file of the folder that LOCUM_DATA names, or a skip that says why."""

    def find(name: str) -> Path:
        folder = os.environ.get("LOCUM_DATA")
        if not folder:
            pytest.skip("LOCUM_DATA is not set: no real data to read")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"LOCUM_DATA has no {name}")
        return path

    return find
