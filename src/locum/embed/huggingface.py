"""Any vision model from the Hugging Face hub, or a folder in its format, through transformers."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.embed.backbone import Backbone, Run
from locum.embed.preprocessing import KEYS, Preprocessing, from_settings
from locum.errors import ConfigError, DataError

SHARDED = "model.safetensors.index.json"
ALL = "model.safetensors"


def load_huggingface(place: str, name: str | None = None) -> Backbone:
    """`OWNER/MODEL[@REVISION]` from the hub or its local cache, or a folder with the same files.

    Weights must be safetensors, and code that comes with a model is never run. The vector is the class token after
    the last norm; for models of images and text (or their vision part, as in CLIP) the model's own pooled output; or,
    without a class token, the average over positions. Half-precision weights are converted to single precision.
    `revision` is the hash of the weights, so a folder and the hub agree.
    """
    try:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import transformers
    except ImportError:
        raise ConfigError("This backbone needs transformers: pip install 'locum[huggingface]'.") from None
    local = Path(place).is_dir()
    reference, _, revision = (place, "", "") if local else place.partition("@")
    options: dict[str, Any] = {"revision": revision} if revision else {}
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, report = transformers.AutoModel.from_pretrained(
            reference, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **options
        )
        processor = transformers.AutoImageProcessor.from_pretrained(
            reference, backend="pil", trust_remote_code=False, **options
        )
        digest = _weights_hash(reference, options)
        run = _runner(model.float().eval())
    except (OSError, ValueError, KeyError, ImportError, TypeError, AttributeError, RuntimeError) as error:
        raise DataError(_why(place, local)) from error
    if lost := [key for key in report["missing_keys"] if not key.startswith("pooler.")]:
        raise DataError(
            f"The weights of {place!r} lack {len(lost)} tensors, which would be random: use a complete model."
        )
    preprocessing = published_preprocessing(processor, place)
    dim = _width(run, preprocessing, place)
    # A local folder's name is private: it does not travel with the vectors.
    shown = name or ("hf" if local else f"hf:{place}")
    return Backbone(shown, digest, preprocessing, dim, run, concurrent=False)


def _width(run: Run, preprocessing: Preprocessing, place: str) -> int:
    """The length of a vector, from a first run: a model may not accept the images that its processor gives."""
    try:
        out = run(np.zeros((1, *preprocessing.shape), dtype=np.float32))
    except Exception:  # each model refuses in its own way
        out = np.empty(0, dtype=np.float32)
    if out.ndim != 2 or len(out) != 1:
        _, height, width = preprocessing.shape
        raise DataError(
            f"The model {place!r}, given {height} x {width} pixels as its image processor says, does not give one "
            "vector per image: choose another vision model, or correct preprocessor_config.json."
        )
    return int(out.shape[1])


def published_preprocessing(processor: Any, place: str) -> Preprocessing:
    """Our contract for a published image processor, checked against it on two images.

    A processor that does more than resize, crop and scale is refused: its pixels could not be reproduced by others.
    """
    try:
        given: dict[str, Any] = {key: getattr(processor, key, None) for key in KEYS}
        for key in ("size", "crop_size"):
            given[key] = None if given[key] is None else dict(given[key])
        # A processor does not do a step that it does not name, whatever its numbers.
        given |= {key: bool(value) for key, value in given.items() if key.startswith("do_")}
        out = from_settings(given)
        alike = all(_agrees(processor, out, shape) for shape in ((301, 400), (97, 61)))
    except (AttributeError, KeyError, TypeError, ValueError, DataError):
        alike = False
    if not alike:
        raise DataError(
            f"The image processor of {place!r} does more than resize, crop and scale, so its pixels cannot be "
            "reproduced exactly. Choose another model, or embed elsewhere and give the vectors."
        )
    return out


def _agrees(processor: Any, ours: Preprocessing, shape: tuple[int, int]) -> bool:
    from PIL import Image

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    theirs = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
    mine = ours.apply(image)
    return theirs.shape == mine.shape and bool(np.abs(theirs - mine).max() <= 1e-5)


def _runner(model: Any) -> Run:
    import torch

    net = getattr(model, "vision_model", model)
    names = {key.split(".")[-1] for key, _ in net.named_parameters()}
    token = bool(names & {"cls_token", "class_token"})
    # CLIP calls its class token `class_embedding` and normalizes it only in the pooled output. A pooler with its own
    # weights is not used: the file may lack them.
    pooled = net is not model or ("class_embedding" in names and not hasattr(net, "pooler"))
    # Torch spreads one call over all cores; two calls at once would only compete.
    lock = threading.Lock()

    def run(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        with lock, torch.inference_mode():
            out = net(pixel_values=torch.from_numpy(pixels))
            if pooled:
                vectors = out.pooler_output
            elif out.last_hidden_state.ndim == 4:
                vectors = out.last_hidden_state.mean((2, 3))
            else:
                vectors = out.last_hidden_state[:, 0] if token else out.last_hidden_state.mean(1)
            return vectors.float().contiguous().numpy()  # type: ignore[no-any-return]

    return run


def _weights_hash(reference: str, options: dict[str, Any]) -> str:
    """One hash over the weights, in one file or in several files ordered by name."""
    import json

    from transformers.utils.hub import cached_file

    def find(name: str, must: bool) -> str | None:
        found: str | None = cached_file(
            reference,
            name,
            _raise_exceptions_for_missing_entries=must,
            _raise_exceptions_for_connection_errors=must,
            **options,
        )
        return found

    single = find(ALL, False)
    if single is not None:
        files = [single]
    else:
        index = find(SHARDED, True)
        assert index is not None
        names = sorted(set(json.loads(Path(index).read_text())["weight_map"].values()))
        files = [str(find(name, True)) for name in names]
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _why(place: str, local: bool) -> str:
    if local:
        return (
            f"{place!r} is not a complete model: it needs config.json, model.safetensors and "
            "preprocessor_config.json of a vision model that transformers supports."
        )
    return (
        f"The model {place!r} could not be loaded: it must exist on the Hugging Face hub, be a vision model with "
        "safetensors weights and an image processor, and the hub must be reachable. Without a network, copy its "
        "files into a folder and use hf:FOLDER."
    )
