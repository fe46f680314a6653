"""A model of one's own, made here with onnx."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from locum.embed import backbone_for, load_backbone
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo


def model(file: Path, shape=("n", 3, 8, 8), op: str = "Flatten", kind: int = TensorProto.FLOAT) -> Path:
    """A network of one operation."""
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", kind, list(shape))],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def test_vectors_and_contract(tmp_path: Path) -> None:
    found = load_backbone(f"onnx:{model(tmp_path / 'own.onnx')}")
    assert (found.name, found.dim, found.preprocessing.resize) == ("onnx", 3 * 64, (8, 8))
    assert len(found.revision) == 64
    pixels = np.arange(2 * 3 * 64, dtype=np.float32).reshape(2, 3, 8, 8)
    np.testing.assert_array_equal(found.run(pixels), pixels.reshape(2, -1))


def test_a_feature_map_is_averaged(tmp_path: Path) -> None:
    found = load_backbone(f"onnx:{model(tmp_path / 'map.onnx', op='Identity')}")
    pixels = np.arange(3 * 64, dtype=np.float32).reshape(1, 3, 8, 8)
    np.testing.assert_allclose(found.run(pixels), pixels.mean((2, 3)))


def test_settings_beside_the_file_count(tmp_path: Path) -> None:
    settings = {
        "size": {"shortest_edge": 10}, "crop_size": 8, "resample": 2, "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    found = load_backbone(f"onnx:{model(tmp_path / 'own.onnx', ('n', 3, 'h', 'w'))}").preprocessing
    assert (found.resize, found.crop, found.resample, found.scale) == (10, (8, 8), "bilinear", 255)
    for text in ("{}", "[]", "[" * 100_000, "no json", '{"size": 1e999, "image_mean": [0], "image_std": [1]}'):
        (tmp_path / "preprocessor_config.json").write_text(text)
        with pytest.raises(DataError, match=r"preprocessor_config.json .* must give size"):
            load_backbone(f"onnx:{tmp_path / 'own.onnx'}")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**settings, "do_pad": True}))
    with pytest.raises(DataError, match=r"preprocessor_config.json .* 'do_pad'"):
        load_backbone(f"onnx:{tmp_path / 'own.onnx'}")


@pytest.mark.parametrize(
    ("shape", "kind", "told"),
    [
        (("n", 3, "h", "w"), TensorProto.FLOAT, "any size"),
        (("n", 1, 8, 8), TensorProto.FLOAT, "1 colors"),
        (("n", 8, 8), TensorProto.FLOAT, "one input of float images"),
        (("n", 3, 8, 8), TensorProto.DOUBLE, "one input of float images"),
        ((4, 3, 8, 8), TensorProto.FLOAT, "batches of 4"),
    ],
)
def test_what_cannot_be_fed_is_refused(tmp_path: Path, shape: tuple, kind: int, told: str) -> None:
    with pytest.raises((DataError, ConfigError), match=told):
        load_backbone(f"onnx:{model(tmp_path / 'own.onnx', shape, kind=kind)}")


def test_damaged_or_missing(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(DataError, match="damaged"):
        load_backbone(f"onnx:{tmp_path / 'bad.onnx'}")
    with pytest.raises(ConfigError, match="no file"):
        load_backbone(f"onnx:{tmp_path / 'none.onnx'}")


def test_a_release_of_an_own_model_asks_where_it_is(tmp_path: Path) -> None:
    given = f"onnx:{model(tmp_path / 'own.onnx')}"
    info = load_backbone(given, window=(0.0, 4095.0)).info
    with pytest.raises(ConfigError, match="--backbone onnx:FILE"):
        backbone_for(info)
    found = backbone_for(info, given)
    # The window of the holder is taken over: no one has to remember it.
    assert found.preprocessing.window == (0.0, 4095.0)
    other = f"onnx:{model(tmp_path / 'other.onnx', op='Identity')}"
    with pytest.raises(DataError, match="cannot be mixed"):
        backbone_for(info, other)


def test_vectors_of_no_known_model_cannot_be_repeated() -> None:
    for name in ("unknown", "pixels", "measurements"):
        with pytest.raises(DataError, match="not from a vision model"):
            backbone_for(EmbeddingInfo(name))


def test_an_unknown_name_lists_the_known() -> None:
    for name in ("resnet", "wheel:0", "hf:", "onnx:"):
        with pytest.raises(ConfigError, match="efflite0"):
            load_backbone(name)


def test_the_device_is_checked_before_an_image_is_read(tmp_path: Path) -> None:
    import onnxruntime

    own = f"onnx:{model(tmp_path / 'own.onnx')}"
    pixels = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(load_backbone(own, device="cpu").run(pixels), load_backbone(own).run(pixels))
    with pytest.raises(ConfigError, match="got 'tpu'"):
        load_backbone(own, device="tpu")
    with pytest.raises(ConfigError, match="Hugging Face models run on the CPU"):
        load_backbone("dinov2-small", device="cuda")
    for device, provider in (("cuda", "CUDAExecutionProvider"), ("mps", "CoreMLExecutionProvider")):
        if provider not in onnxruntime.get_available_providers():
            with pytest.raises(ConfigError, match=f"cannot use '{device}' here"):
                load_backbone(own, device=device)


def test_the_runtime_sends_no_telemetry(tmp_path: Path) -> None:
    """In a fresh home: ONNX Runtime would leave an identity and a queue of reports there."""
    import os
    import subprocess
    import sys

    home = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")}
    code = "from locum.embed import load_backbone; load_backbone()"
    subprocess.run([sys.executable, "-c", code], env={**home, "HOME": str(tmp_path)}, check=True)
    assert not [p for p in tmp_path.rglob("*") if "microsoft" in p.name.lower()]
    assert list(tmp_path.rglob("*.onnx"))
