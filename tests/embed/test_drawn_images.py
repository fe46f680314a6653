"""Public statistics from drawn images: the images stay as they are, and every kind of backbone gets some."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from locum.data import Reference, load_reference
from locum.embed import Backbone, Preprocessing, keep_drawn_reference, load_backbone, make_drawn_reference
from locum.embed.drawn_images import draw_image, drawn_vectors
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo

COLOR = Backbone("mean color", "1", Preprocessing((8, 8)), 3, lambda x: x.mean(axis=(2, 3)), concurrent=True)


def test_the_images_of_a_seed_never_change() -> None:
    """The hash is that of the script which made the shipped statistics: with other pixels, increase `DRAWING`."""
    rng, digest = np.random.default_rng(0), hashlib.sha256()
    for _ in range(16):
        image = draw_image(rng)
        digest.update(f"{image.mode}{image.size}".encode())
        digest.update(image.tobytes())
    assert digest.hexdigest() == "d4c9e51ae4c8acaf5514b57e9d7ae68fcd8809505c7d3396c6a3060065db5907"


@pytest.mark.parametrize("name", ["mean color", "efflite0"])
def test_vectors_are_those_of_one_batch_after_the_other(name: str) -> None:
    """As the script did it: eight images at a time, in order, whatever threads do."""
    model = COLOR if name == "mean color" else load_backbone(name)
    rng = np.random.default_rng(0)
    images = [draw_image(rng) for _ in range(20)]
    batches = [images[:8], images[8:16], images[16:]]
    expected = [model.run(np.stack([model.preprocessing.apply(image) for image in batch])) for batch in batches]
    np.testing.assert_array_equal(drawn_vectors(model, 20, 0), np.concatenate(expected))


def test_what_is_made_says_how(tmp_path: Path) -> None:
    told: list[str] = []
    seen: list[int] = []
    windowed = replace(COLOR, preprocessing=COLOR.preprocessing.with_window((0, 4095)))
    made = make_drawn_reference(
        windowed, 17, 3, tell=told.append, progress=lambda done, total, note="": seen.append(done)
    )
    assert (seen[-1], len(told)) == (17, 1)
    assert "drawing 17 images once, about" in told[0]
    read = load_reference(made.save(tmp_path / "r.safetensors"), 3)
    for known in (made, read):
        assert (known.images, known.seed, known.drawing) == (17, 3, 1)
        assert known.info == EmbeddingInfo("mean color", "1", COLOR.preprocessing.opaque.text)
        # Drawn images have 8 bits: a window for others changes nothing.
        known.check_source(windowed.info)
        known.check_source(COLOR.info)
    expected = Reference.from_vectors(drawn_vectors(COLOR, 17, 3), source="x")
    np.testing.assert_array_equal(made.mean, expected.mean)
    with pytest.raises(ConfigError, match="2 or more"):
        make_drawn_reference(COLOR, 1)
    with pytest.raises(ConfigError, match="seed"):
        make_drawn_reference(COLOR, 8, -1)
    broken = replace(COLOR, run=lambda x: np.full((len(x), 3), np.nan, np.float32))
    with pytest.raises(DataError, match="not finite"):
        make_drawn_reference(broken, 8)


def test_a_file_is_made_once_per_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.embed.drawn_images.IMAGES", 16)
    first = keep_drawn_reference(COLOR, tmp_path)
    written = Path(first).stat().st_mtime_ns
    windowed = replace(COLOR, preprocessing=COLOR.preprocessing.with_window((0, 4095)))
    assert keep_drawn_reference(windowed, tmp_path) == first
    assert Path(first).stat().st_mtime_ns == written
    assert keep_drawn_reference(replace(COLOR, revision="2"), tmp_path) != first
    Path(first).write_bytes(b"cut")
    assert keep_drawn_reference(COLOR, tmp_path) == first
    assert load_reference(first, 3, COLOR.info).images == 16


def test_a_custom_onnx_model(tmp_path: Path, rng: np.random.Generator) -> None:
    weights = numpy_helper.from_array(rng.normal(size=(192, 10)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    file = tmp_path / "own.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    check(load_backbone(f"onnx:{file}"), 10)


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path)
    settings = {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "do_center_crop": True,
        "crop_size": {"height": 28, "width": 28}, "resample": 3, "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225], "do_convert_rgb": True,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    check(load_backbone(f"hf:{tmp_path}"), 16)


def check(model: Backbone, dim: int) -> None:
    """Drawn vectors come out white, and the statistics are refused for other weights."""
    made = make_drawn_reference(model, 64)
    assert (made.dim, made.info.revision) == (dim, model.revision)
    white = made.whiten(drawn_vectors(model, 64, 0))
    assert np.abs(white.mean(axis=0)).max() < 1e-4
    assert np.linalg.eigvalsh(np.cov(white.T)).max() < 1.5
    with pytest.raises(DataError, match="vectors come from"):
        made.check_source(replace(model.info, revision="0" * 64))
