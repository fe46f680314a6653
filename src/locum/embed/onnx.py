"""Models in ONNX format, run by ONNX Runtime: the default backbone and the user's own files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.embed.backbone import Backbone, Run
from locum.embed.preprocessing import Preprocessing, from_settings
from locum.errors import ConfigError, DataError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


SETTINGS = "preprocessor_config.json"


# What runs a model on each device. A GPU must choose the same algorithms for the same shape, in full precision.
# "auto" is CUDA or the CPU: Core ML computes in half precision.
_CUDA = ("CUDAExecutionProvider", {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"})
_PROVIDERS: dict[str, list[Any]] = {"cpu": [], "cuda": [_CUDA], "mps": ["CoreMLExecutionProvider"], "auto": [_CUDA]}


def start_session(model: bytes | str, device: str = "auto") -> InferenceSession:
    """A session that uses one core per call: each thread that decodes images also runs the model.

    With one core per call no thread waits for another, and the bits of a vector do not depend on which images share
    its batch (tests/embed/test_onnx_model.py). On a GPU they could: `session_runner` sees to it.
    """
    if device not in _PROVIDERS:
        raise ConfigError(f"`device` must be one of auto, cpu, cuda, mps; got {device!r}.")
    # It sends telemetry unless this is set before the import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    available = onnxruntime.get_available_providers()
    wanted = [one for one in _PROVIDERS[device] if (one if isinstance(one, str) else one[0]) in available]
    try:
        session = onnxruntime.InferenceSession(model, options, providers=[*wanted, "CPUExecutionProvider"])
    except Exception as error:  # the runtime has no common class for errors from damaged files
        raise DataError("The model is damaged, or is not an ONNX file that this ONNX Runtime can run.") from error
    # The runtime falls back to the CPU without an error.
    if device in ("cuda", "mps") and device_of(session) != device:
        raise ConfigError(f"ONNX Runtime cannot use {device!r} here: leave --device out, or install its GPU version.")
    return session


def device_of(session: InferenceSession) -> str:
    """Where a session runs: "cpu", "cuda" or "mps"."""
    names = {"CUDAExecutionProvider": "cuda", "CoreMLExecutionProvider": "mps"}
    return names.get(session.get_providers()[0], "cpu")


def session_runner(session: InferenceSession) -> Run:
    """A function from pixels to vectors; a feature map or a list of tokens is averaged over positions.

    On a GPU it runs one image at a time, because the order of sums changes with the size of a batch: a vector must
    depend on its own image alone, or a guarantee for one record would not cover what it changes in others.
    """
    name, alone = session.get_inputs()[0].name, device_of(session) != "cpu"

    def run(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if not alone:
            return run_batch(pixels)
        return np.concatenate([run_batch(image) for image in np.split(pixels, len(pixels))])

    def run_batch(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        out = session.run(None, {name: pixels})[0]
        if out.ndim == 4:
            out = out.mean(axis=(2, 3))
        elif out.ndim == 3:
            out = out.mean(axis=1)
        return np.ascontiguousarray(out, dtype=np.float32)

    return run


def load_onnx(file: str, device: str = "auto") -> Backbone:
    """The user's own model: it takes images (n, 3, height, width), and its first output is used.

    The preprocessing is read from `preprocessor_config.json` beside the file, in the format of Hugging Face models;
    without one, images are resized to the model's input size and scaled with ImageNet's statistics.
    """
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"There is no file {file!r}: give the ONNX file as onnx:FILE.")
    raw = path.read_bytes()
    session = start_session(raw, device)
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
        raise DataError(f"{file!r} must take one input of float images (n, 3, height, width): export it that way.")
    if inputs[0].shape[1] not in (3, None) and not isinstance(inputs[0].shape[1], str):
        raise DataError(f"{file!r} takes {inputs[0].shape[1]} colors; images have 3. Export it for 3.")
    fixed = inputs[0].shape[0]
    if isinstance(fixed, int) and fixed > 1:
        raise DataError(
            f"{file!r} takes only batches of {fixed} images: export it with a free batch size, or with 1."
        )
    settings = path.parent / SETTINGS
    if settings.is_file():
        preprocessing = _read_settings(settings)
    else:
        sides = [s for s in inputs[0].shape[2:] if isinstance(s, int)]
        if len(sides) < 2:
            raise ConfigError(f"{file!r} takes images of any size: put a {SETTINGS} with the size next to it.")
        preprocessing = Preprocessing(resize=(sides[0], sides[1]))
    run = session_runner(session)
    dim = _width(run, preprocessing, file)
    batch = 1 if fixed == 1 else 4
    revision, where = hashlib.sha256(raw).hexdigest(), device_of(session)
    return Backbone("onnx", revision, preprocessing, dim, run, concurrent=True, batch=batch, device=where, model=raw)


def _width(run: Run, preprocessing: Preprocessing, file: str) -> int:
    try:
        out = run(np.zeros((1, *preprocessing.shape), dtype=np.float32))
    except Exception as error:
        raise DataError(
            f"{file!r} does not run on images of {preprocessing.shape}: correct {SETTINGS} beside it."
        ) from error
    if out.ndim != 2 or out.shape[0] != 1:
        raise DataError(f"{file!r} must give one vector per image; got shape {out.shape}.")
    return int(out.shape[1])


def _read_settings(file: Path) -> Preprocessing:
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        given = None
    try:
        return from_settings(given if isinstance(given, dict) else {})
    except DataError as error:
        raise DataError(f"{SETTINGS} beside the model: {error}") from None
