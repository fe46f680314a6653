"""Public statistics: whitening and back, from vectors, from a file, and what is wrong with a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from locum.data import REFERENCES, Reference, load_reference, reference_for
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo


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
    assert (known.info.backbone, known.images, known.seed, known.drawing) == (name, 3000, 0, 1)
    file = Path(load_reference.__code__.co_filename).parent / "references" / f"{name}.safetensors"
    assert file.stat().st_size < 1_000_000


def test_what_is_wrong_is_told(rng: np.random.Generator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no public statistics"):
        load_reference("magic", 4)
    with pytest.raises(DataError, match="1280 features"):
        load_reference("efflite0", 4)
    with pytest.raises(DataError, match="There is no file"):
        load_reference(tmp_path / "missing.safetensors", 4)
    with pytest.raises(ConfigError, match="source"):
        Reference.from_vectors(some(rng), source=" ")
    with pytest.raises(DataError, match="finite table"):
        Reference.from_vectors([[np.nan, 1.0], [1.0, 2.0]], source="x")
    file = Reference.from_vectors(some(rng), source="x").save(tmp_path / "r.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match="holds no public statistics"):
        load_reference(tmp_path / "cut.safetensors", 10)
    good = {"mean": np.zeros(3), "values": np.ones(1), "rest": np.array([0.5]), "directions": np.eye(3)[:1]}
    about = {
        "source": "x",
        "backbone": "b",
        "revision": "",
        "preprocessing": "",
        "images": 0,
        "seed": 0,
        "drawing": 0,
    }
    changed = tmp_path / "changed.safetensors"

    def write(tensors: dict, told: object) -> None:
        arrays = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
        save_file(arrays, changed, metadata={"locum_reference": json.dumps(told)})

    write(good, about)
    assert load_reference(changed, 3).info.backbone == "b"
    for change in (
        {"rest": np.array([0.0])},
        {"values": np.array([0.1])},
        {"mean": np.array([np.inf, 0, 0])},
        {"directions": np.eye(2)},
        {"scale": np.array([1.0, 0.0, 1.0])},
        {"scale": np.array([1.0, np.nan, 1.0])},
        {"scale": np.ones(2)},
    ):
        write(good | change, about)
        with pytest.raises(DataError, match="holds no public statistics"):
            load_reference(changed, 3)
    for told in ([], {}, {**about, "images": "many"}, {**about, "source": None}):
        write(good, told)
        with pytest.raises(DataError, match="holds no public statistics"):
            load_reference(changed, 3)


def test_ranges_against_the_definition(rng: np.random.Generator, tmp_path: Path) -> None:
    """Each feature alone: minus the middle, divided by a quarter of the width."""
    low = rng.normal(size=7) * 10.0 ** np.arange(-3, 4)
    high = low + 10.0 ** np.arange(-3, 4)
    made = Reference.from_ranges(low, high, source="a handbook")
    X = rng.uniform(low, high, size=(50, 7))
    expected = np.array(
        [[(x - (a + b) / 2) / ((b - a) / 4) for x, a, b in zip(row, low, high, strict=True)] for row in X]
    )
    for known in (made, load_reference(made.save(tmp_path / "r.safetensors"), 7)):
        white = known.whiten(X)
        np.testing.assert_allclose(white, expected, rtol=1e-3, atol=1e-3)
        # Nothing inside the ranges is longer than two thirds of what is clipped.
        assert np.linalg.norm(white, axis=1).max() <= 2 * np.sqrt(7) * 1.001
        np.testing.assert_allclose(known.color(white), X, rtol=1e-9)
        factor, scale = known.factors()
        assert factor.shape == (0, 7)
        np.testing.assert_allclose(scale, (high - low) / 4, rtol=1e-5)
        np.testing.assert_array_equal(known.mean, made.mean)
        np.testing.assert_array_equal(known.scale, made.scale)


def test_a_scale_goes_with_directions(rng: np.random.Generator, tmp_path: Path) -> None:
    """Against a dense matrix: the covariance is that of the scaled features, scaled back."""
    plain, scale = Reference.from_vectors(some(rng), source="x", rank=3), np.linspace(0.1, 10, 10)
    known = replace(plain, scale=scale)
    factor, rest = plain.factors()
    dense = np.diag(scale) @ (factor.T @ factor + np.diag(rest**2)) @ np.diag(scale)
    X = some(rng)
    for one in (known, load_reference(known.save(tmp_path / "r.safetensors"), 10)):
        mine, spread = one.factors()
        np.testing.assert_allclose(mine.T @ mine + np.diag(spread**2), dense, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(one.color(one.whiten(X)), X, atol=1e-6)
        lengths = np.einsum("ij,jk,ik->i", X - one.mean, np.linalg.inv(dense), X - one.mean)
        np.testing.assert_allclose(np.square(one.whiten(X)).sum(axis=1), lengths, rtol=1e-2)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        ([0, 1], [1, 1], "feature 2 goes from 1 to 1"),
        ([0, 2], [1, 1], "feature 2"),
        ([0, np.nan], [1, 1], "feature 2"),
        ([0, 0], [1, np.inf], "feature 2"),
        ([0], [1, 2], "one lowest and one highest"),
        ([], [], "one lowest and one highest"),
        ([[0]], [[1]], "one lowest and one highest"),
    ],
)
def test_ranges_that_are_none_are_refused(low: list, high: list, told: str) -> None:
    with pytest.raises(DataError, match=told):
        Reference.from_ranges(low, high, source="x")
    with pytest.raises(ConfigError, match="source"):
        Reference.from_ranges([0], [1], source="")


def test_a_file_is_complete_or_not_there(rng: np.random.Generator, tmp_path: Path, monkeypatch) -> None:
    file = Reference.from_vectors(some(rng), source="x").save(tmp_path / "r.safetensors")
    before = file.read_bytes()
    assert Reference.from_vectors(some(np.random.default_rng(0)), source="x").save(file).read_bytes() == before

    def stop(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        Reference.from_vectors(some(rng) + 1, source="y").save(file)
    assert file.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["r.safetensors"]


def test_statistics_of_another_backbone_are_refused() -> None:
    pixels = "v1 resize=8x8 window={} sha256:{}"
    known = replace(
        Reference.plain(3), info=EmbeddingInfo("hf", "a" * 64, pixels.format("none", "0" * 16)), source="drawn"
    )
    same = (
        EmbeddingInfo(),
        EmbeddingInfo("a folder", "a" * 64),
        EmbeddingInfo("hf", "a" * 64, pixels.format("0,4095", "1" * 16)),
        EmbeddingInfo("hf"),
    )
    for info in same:
        known.check_source(info)
    for info in (EmbeddingInfo("hf", "b" * 64), EmbeddingInfo("other")):
        with pytest.raises(DataError, match="vectors come from"):
            known.check_source(info)
    with pytest.raises(DataError, match="prepared as"):
        known.check_source(EmbeddingInfo("hf", "a" * 64, pixels.replace("8x8", "9x9").format("none", "2" * 16)))
    with pytest.raises(DataError, match="'efflite0'"):
        load_reference("efflite0", 1280, EmbeddingInfo("efflite1"))
    assert reference_for(EmbeddingInfo("efflite2", reference="x.safetensors")) == "efflite2"
    assert reference_for(EmbeddingInfo("hf", reference="x.safetensors")) == "x.safetensors"
    assert reference_for(EmbeddingInfo("hf")) == "none"
    assert load_reference("auto", 3).name == "none"
