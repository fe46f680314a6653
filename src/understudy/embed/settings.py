"""The settings that published models carry (`preprocessor_config.json`), as our contract on pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.embed.preprocessing import RESAMPLING, Preprocessing
from understudy.errors import DataError

__all__ = ["KEYS", "from_settings"]

# What is read; of other settings, those that switch on a further step are refused.
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
# From this side on ConvNeXt's processor cuts nothing.
_UNCUT = 384


def from_settings(given: Mapping[str, Any]) -> Preprocessing:
    """The contract for settings in the form of Hugging Face's image processors, or one sentence on what is wrong.

    Resize to a size or by the shorter side, cut the middle (`crop_size`, or `crop_pct` as ConvNeXt means it), scale
    and normalise, each of which can be switched off but for the first. A setting that is absent or null has its
    usual value: bicubic, 1/255, and every step on whose numbers are given. What asks for more is refused: the pixels
    would not be those that the model was trained on.
    """
    try:
        return _contract(given)
    except DataError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise DataError(
            "The settings must give size, image_mean and image_std, the latter by colour (and may give crop_size, "
            "crop_pct, resample, rescale_factor and do_...): correct them."
        ) from None


def _contract(given: Mapping[str, Any]) -> Preprocessing:
    told = {key: value for key, value in given.items() if value is not None}
    more = [key for key in told if key.startswith("do_") and key not in (*KEYS, _HARMLESS)] + ["rescale_offset"]
    for key in more:
        if told.get(key):
            raise DataError(
                f"The settings ask for {key[:40]!r}, which is more than resize, crop and scale: do without."
            )
    if not told.get("do_resize", True):
        raise DataError("The settings switch 'do_resize' off: images must all end with one size.")
    resize, crop = _sides(told)
    normal = told.get("do_normalize", True)
    return Preprocessing(
        resize=resize,
        resample={number: name for name, number in RESAMPLING.items()}[int(told.get("resample", 3))],
        crop=crop,
        scale=round(1 / float(told.get("rescale_factor", 1 / 255)), 9) if told.get("do_rescale", True) else 1.0,
        mean=_triple(told["image_mean"]) if normal else (0.0, 0.0, 0.0),
        std=_triple(told["image_std"]) if normal else (1.0, 1.0, 1.0),
    )


def _sides(told: Mapping[str, Any]) -> tuple[tuple[int, int] | int, tuple[int, int] | None]:
    size = told["size"]
    by_shorter = isinstance(size, Mapping) and size.get("shortest_edge") is not None
    resize = int(size["shortest_edge"]) if by_shorter else _box(size)
    cropped = told.get("do_center_crop", "crop_size" in told)
    if "crop_pct" not in told:
        return resize, _box(told["crop_size"]) if cropped else None
    share = float(told["crop_pct"])
    if cropped or not isinstance(resize, int) or not 0 < share <= 1:
        raise DataError(
            "The settings give a `crop_pct` that is not understood: it must lie in 0..1, with a size by "
            "`shortest_edge` and without `crop_size`."
        )
    square = (resize, resize)
    return (int(resize / share) if resize < _UNCUT else square), square


def _box(size: Any) -> tuple[int, int]:
    """Height and width; one number means a square."""
    return (int(size["height"]), int(size["width"])) if isinstance(size, Mapping) else (int(size), int(size))


def _triple(values: Any) -> tuple[float, float, float]:
    first, second, third = (float(v) for v in values)
    return first, second, third
