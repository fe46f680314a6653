"""The contract on pixels: how an image is resized, cropped and scaled for a backbone, as one line of text.

It can also be read from the settings of published models (`preprocessor_config.json`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.embed.pixels import Alpha, UnreadableImageError
from locum.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


# Pillow's numbers, which published processors use too.
RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
Triple = tuple[float, float, float]

# Increase when `decode_image` or `apply` gives a different result for the same image.
_VERSION = 1
# Limit for images resized by their shorter side: a thin strip would need unbounded memory. A 4096 square needs half.
_MAX_RESIZED = 2**25
_SIDES = r"\d{1,9}x\d{1,9}"
_TEXT = re.compile(
    rf"v(?P<v>\d{{1,9}}) resize=(?P<resize>{_SIDES}|\d{{1,9}}),(?P<resample>[a-z]+)(?P<fine>,fine)? "
    rf"crop=(?P<crop>none|{_SIDES}) "
    r"scale=(?P<scale>[^ ]+) mean=(?P<mean>[^ ]+) std=(?P<std>[^ ]+) window=(?P<window>none|[^ ]+) "
    r"(?:alpha=(?P<alpha>white) )?"
    r"sha256:(?P<sha>[0-9a-f]{16})"
)


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop and scale, in that order; two contracts with the same text give the same pixels.

    Parameters
    ----------
    resize
        Exact height and width (the whole image is kept and may be stretched), or one number for the shorter side
        (the aspect ratio is kept; needs `crop`).
    resample
        Pillow's filter: "nearest", "lanczos", "bilinear", "bicubic", "box" or "hamming"; all but the first smooth
        before shrinking.
    fine
        Enlarge an image that is smaller than `resize` on both sides without rounding to 256 levels. Rounding puts
        false contours into small images: at 28 pixels it turns EfficientNet-Lite's vectors by about 12 degrees.
        Published processors round.
    crop
        Height and width of the center that is kept; outside the image is black. None: no crop.
    scale, mean, std
        A pixel `p` in 0..255 becomes `(p / scale - mean) / std`, per color.
    window
        Values of images with more than 8 bits that are mapped to 0 and 255; None takes each image's own smallest and
        largest value (see `decode_image`).
    alpha
        "white": transparent parts of an image lie on white. "dropped": their hidden colors are used, which is what a
        line without `alpha` says.

    Examples
    --------
    >>> from locum.embed import Preprocessing
    >>> p = Preprocessing(resize=(224, 224), scale=1, mean=(127,) * 3, std=(128,) * 3)
    >>> Preprocessing.parse(p.text) == p
    True
    """

    resize: tuple[int, int] | int = (224, 224)
    resample: str = "bicubic"
    fine: bool = False
    crop: tuple[int, int] | None = None
    scale: float = 255.0
    mean: Triple = (0.485, 0.456, 0.406)
    std: Triple = (0.229, 0.224, 0.225)
    window: tuple[float, float] | None = None
    alpha: Alpha = "white"

    def __post_init__(self) -> None:
        sides = [*((self.resize,) if isinstance(self.resize, int) else self.resize), *(self.crop or ())]
        if isinstance(self.resize, int) and self.crop is None:
            raise DataError("`resize` by the shorter side needs a `crop`: all images must end up the same size.")
        if not all(1 <= side <= 4096 for side in sides):
            raise DataError(f"The sides of an image must lie in 1..4096; got {sides}.")
        if self.resample not in RESAMPLING:
            raise DataError(f"`resample` must be one of {', '.join(RESAMPLING)}; got {self.resample!r}.")
        if self.alpha not in ("white", "dropped"):
            raise DataError(f"`alpha` must be white or dropped; got {self.alpha!r}.")
        if len(self.mean) != 3 or len(self.std) != 3:
            raise DataError(f"`mean` and `std` need 3 numbers each, one per color; got {self.mean}, {self.std}.")
        numbers = (self.scale, *self.mean, *self.std)
        if not np.isfinite(numbers).all() or self.scale <= 0 or min(self.std) <= 0:
            raise DataError(f"`scale` and `std` must be finite and above 0; got {self.scale}, {self.std}.")
        if self.window is not None and not -np.inf < self.window[0] < self.window[1] < np.inf:
            raise DataError(
                f"A window is two finite numbers, the lower first; got {self.window[0]:g},{self.window[1]:g}."
            )

    @cached_property
    def text(self) -> str:
        """The contract as one line that ends with a hash; equal text means equal pixels."""
        resize = str(self.resize) if isinstance(self.resize, int) else f"{self.resize[0]}x{self.resize[1]}"
        crop = "none" if self.crop is None else f"{self.crop[0]}x{self.crop[1]}"
        window = "none" if self.window is None else _joined(self.window)
        # After the window: public statistics are of images without alpha, and are compared up to there.
        alpha = "" if self.alpha == "dropped" else f" alpha={self.alpha}"
        body = (
            f"v{_VERSION} resize={resize},{self.resample}{',fine' * self.fine} crop={crop} scale={self.scale:g} "
            f"mean={_joined(self.mean)} std={_joined(self.std)} window={window}{alpha}"
        )
        return f"{body} sha256:{hashlib.sha256(body.encode()).hexdigest()[:16]}"

    @classmethod
    def parse(cls, text: str) -> Preprocessing:
        """Read a contract from its `text`; one that this version cannot reproduce is refused."""
        found = _TEXT.fullmatch(text)
        if found is None or int(found["v"]) != _VERSION:
            raise DataError(f"This version cannot prepare images as {text[:160]!r} says: embed them elsewhere.")
        try:
            resize = _sides(found["resize"])
            out = cls(
                resize=resize[0] if len(resize) == 1 else (resize[0], resize[1]),
                resample=found["resample"],
                fine=found["fine"] is not None,
                crop=None if found["crop"] == "none" else _pair(_sides(found["crop"])),
                scale=float(found["scale"]),
                mean=_triple(found["mean"]),
                std=_triple(found["std"]),
                window=None if found["window"] == "none" else _pair(_numbers(found["window"])),
                alpha=found["alpha"] or "dropped",  # type: ignore[arg-type]  # the pattern allows no other word
            )
        except (ValueError, IndexError):
            raise DataError(f"{text[:160]!r} does not describe how to prepare images: it is damaged.") from None
        if out.text != text:
            raise DataError("The hash of the preprocessing does not match its text: it was altered or damaged.")
        return out

    @property
    def shape(self) -> tuple[int, int, int]:
        """Colors, height and width of the result."""
        height, width = self.crop or self.resize  # type: ignore[misc]  # there is a crop if `resize` is one number
        return (3, height, width)

    @property
    def opaque(self) -> Preprocessing:
        """What is done to an image of 8 bits without alpha; the rest of the contract does not matter there."""
        return replace(self, window=None, alpha="dropped")

    def with_window(self, window: tuple[float, float] | None) -> Preprocessing:
        """The same contract with another window."""
        return self if window is None else replace(self, window=window)

    def apply(self, image: Image, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """The pixels of an 8-bit color or gray image, color first; written into `out` if it is given.

        UnreadableImageError if the shorter side is so short that the resized image would be too large.
        """
        if out is None:
            out = np.empty(self.shape, dtype=np.float32)
        target = self._target(image.width, image.height)
        fine = self.fine and image.width < target[0] and image.height < target[1]
        factor, shift = self._affine
        # A gray image has three equal colors: resize it once, not three times.
        bands = image.split() if fine else (image,)
        shown = [self._resized(band.convert("F") if fine else band, target) for band in bands]
        for c in range(3):
            plane = shown[c % len(shown)]
            np.multiply(plane if plane.ndim == 2 else plane[:, :, c], factor[c], out=out[c])
            out[c] += shift[c]
        return out

    def _resized(self, image: Image, target: tuple[int, int]) -> npt.NDArray[Any]:
        if image.size != target:
            image = image.resize(target, resample=RESAMPLING[self.resample])
        pixels = np.asarray(image if self.crop is None else _center(image, *self.crop))
        # Filters overshoot at edges; only rounding to 8 bits clips that by itself.
        return pixels.clip(0, 255) if image.mode == "F" else pixels

    @cached_property
    def _affine(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        mean, std = np.array(self.mean), np.array(self.std)
        return (1 / (self.scale * std)).astype(np.float32), (-mean / std).astype(np.float32)

    def _target(self, width: int, height: int) -> tuple[int, int]:
        if not isinstance(self.resize, int):
            return self.resize[1], self.resize[0]
        short, long = sorted((width, height))
        longer = max(1, int(self.resize * long / short))
        if self.resize * longer > _MAX_RESIZED:
            raise UnreadableImageError(f"too long for its width ({width} x {height})")
        return (self.resize, longer) if width <= height else (longer, self.resize)


def _center(image: Image, height: int, width: int) -> Image:
    """The center; a smaller image is padded with black."""
    top, left = (image.height - height) // 2, (image.width - width) // 2
    return image.crop((left, top, left + width, top + height))


def _joined(numbers: tuple[float, ...]) -> str:
    return ",".join(f"{n:.12g}" for n in numbers)


def _numbers(text: str) -> list[float]:
    return [float(n) for n in text.split(",")]


def _sides(text: str) -> list[int]:
    return [int(n) for n in text.split("x")]


def _pair(values: list[Any]) -> tuple[Any, Any]:
    first, second = values
    return first, second


def _triple(text: str) -> Triple:
    first, second, third = _numbers(text)
    return first, second, third


# The settings that are read; any other one that turns on a further step is refused.
KEYS = (
    "size",
    "crop_size",
    "crop_pct",
    "resample",
    "rescale_factor",
    "image_mean",
    "image_std",
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
)
_HARMLESS = "do_convert_rgb"
# From this size up ConvNeXt's processor does not crop.
_UNCUT = 384


def from_settings(given: Mapping[str, Any]) -> Preprocessing:
    """The contract for settings in the format of Hugging Face's image processors, or a DataError.

    Resize to a size or by the shorter side, crop the center (`crop_size`, or `crop_pct` as in ConvNeXt), scale and
    normalize; every step but the first can be turned off. A setting that is absent or null has its usual value:
    bicubic, 1/255, and every step on if its numbers are given. Settings that ask for more are refused: the pixels
    would differ from those that the model was trained on.
    """
    try:
        return _contract(given)
    except DataError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise DataError(
            "The settings must give size, image_mean and image_std, the latter two per color, and may give "
            "crop_size, crop_pct, resample, rescale_factor and do_...: correct them."
        ) from None


def _contract(given: Mapping[str, Any]) -> Preprocessing:
    known = {key: value for key, value in given.items() if value is not None}
    more = [key for key in known if key.startswith("do_") and key not in (*KEYS, _HARMLESS)] + ["rescale_offset"]
    for key in more:
        if known.get(key):
            raise DataError(
                f"The settings ask for {key[:40]!r}, which goes beyond resize, crop and scale: remove it."
            )
    if not known.get("do_resize", True):
        raise DataError("The settings turn 'do_resize' off, but all images must end up the same size: turn it on.")
    resize, crop = _resize_and_crop(known)
    normal = known.get("do_normalize", True)
    return Preprocessing(
        resize=resize,
        resample={number: name for name, number in RESAMPLING.items()}[int(known.get("resample", 3))],
        crop=crop,
        scale=round(1 / float(known.get("rescale_factor", 1 / 255)), 9) if known.get("do_rescale", True) else 1.0,
        mean=_three_numbers(known["image_mean"]) if normal else (0.0, 0.0, 0.0),
        std=_three_numbers(known["image_std"]) if normal else (1.0, 1.0, 1.0),
    )


def _resize_and_crop(known: Mapping[str, Any]) -> tuple[tuple[int, int] | int, tuple[int, int] | None]:
    size = known["size"]
    by_shorter = isinstance(size, Mapping) and size.get("shortest_edge") is not None
    resize = int(size["shortest_edge"]) if by_shorter else _box(size)
    cropped = known.get("do_center_crop", "crop_size" in known)
    if "crop_pct" not in known:
        return resize, _box(known["crop_size"]) if cropped else None
    share = float(known["crop_pct"])
    if cropped or not isinstance(resize, int) or not 0 < share <= 1:
        raise DataError(
            "The settings give a `crop_pct` that cannot be used: it must lie in 0..1, with a size by `shortest_edge` "
            "and without `crop_size`."
        )
    square = (resize, resize)
    return (int(resize / share) if resize < _UNCUT else square), square


def _box(size: Any) -> tuple[int, int]:
    """Height and width; one number means a square."""
    return (int(size["height"]), int(size["width"])) if isinstance(size, Mapping) else (int(size), int(size))


def _three_numbers(values: Any) -> tuple[float, float, float]:
    first, second, third = (float(v) for v in values)
    return first, second, third
