"""Public statistics: whitening and back, from vectors, from a file, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from locum.data import REFERENCES, Reference, load_reference
from locum.errors import ConfigError, DataError


def some(rng: np.random.Generator, n: int = 400, d: int = 10) -> np.ndarray:
    return rng.normal(size=(n, d)) @ np.diag(np.linspace(0.5, 4.0, d)) + 3.0


@pytest.mark.parametrize("rank", [0, 3, 9, 50])
def test_whitening_and_back(rng: np.random.Generator, rank: int, tmp_path: Path) -> None:
    X = some(rng)
    made = Reference.from_vectors(X, source="drawn", rank=rank)
    for known in (made, load_reference(made.save(tmp_path / "r.safetensors"), 10)):
        white = known.whiten(X)
        np.testing.assert_allclose(known.color(white), X, atol=1e-6)
        np.testing.assert_allclose(known.stretch(white), X - known.mean, atol=1e-6)
        factor, scale = known.factors()
        covariance = factor.T @ factor + np.diag(scale**2)
        np.testing.assert_allclose(known.stretch(known.stretch(np.eye(10))), covariance, rtol=1e-3, atol=1e-3)
        assert known.source == "drawn"
    if rank >= 9:
        # All directions but one are known: features no longer go together.
        assert np.abs(np.cov(white.T) - np.diag(white.var(axis=0, ddof=1))).max() < 0.05


@pytest.mark.parametrize("name", REFERENCES)
def test_what_ships_is_small_and_named(name: str) -> None:
    known = load_reference(name, 1280)
    assert "drawn by" in known.source
    file = Path(load_reference.__code__.co_filename).parent / "references" / f"{name}.safetensors"
    assert file.stat().st_size < 1_000_000


def test_what_is_wrong_is_told(rng: np.random.Generator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no public statistics"):
        load_reference("magic", 4)
    with pytest.raises(DataError, match="1280 features"):
        load_reference("efflite0", 4)
    with pytest.raises(DataError, match="holds no public statistics"):
        load_reference(tmp_path / "missing.safetensors", 4)
    with pytest.raises(ConfigError, match="source"):
        Reference.from_vectors(some(rng), source=" ")
    with pytest.raises(DataError, match="finite table"):
        Reference.from_vectors([[np.nan, 1.0], [1.0, 2.0]], source="x")
    file = Reference.from_vectors(some(rng), source="x").save(tmp_path / "r.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:100])
    good = {"mean": np.zeros(3), "values": np.ones(1), "rest": np.array([0.5]), "directions": np.eye(3)[:1]}
    for change in (
        {"rest": np.array([0.0])},
        {"values": np.array([0.1])},
        {"mean": np.array([np.inf, 0, 0])},
        {"directions": np.eye(2)},
    ):
        save_file({k: np.ascontiguousarray(v) for k, v in (good | change).items()}, tmp_path / "cut.safetensors")
        with pytest.raises(DataError, match="holds no public statistics"):
            load_reference(tmp_path / "cut.safetensors", 3)
