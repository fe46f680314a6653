"""Pixel values of any kind become 8 bits: the rules that image files, DICOM files and arrays share."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from locum.errors import ConfigError, DataError

MAX_PIXELS = 2**27
# Above 89 million pixels Pillow prints a warning that some of its readers cannot suppress.
QUIET_PIXELS = 2**26
Window = tuple[float, float]
# What becomes of transparent parts: on a white ground, or as if they were opaque.
Alpha = Literal["white", "dropped"]


class UnreadableImageError(DataError):
    """A file does not hold a usable image; the text says why in a few words and never names the file."""


def image_from_array(array: npt.NDArray[Any], *, window: Window | None = None, alpha: Alpha = "white") -> Image.Image:
    """The image in an array (height, width[, 1, 3 or 4 colors]): RGB, or L for a single color.

    Bytes are kept as they are. A fourth color is alpha, as in `decode_image`. Other numbers are mapped as
    `decode_image` maps them, with one mapping for all colors of an image; nobody can tell what opaque is among them,
    so a fourth color is refused there.
    """
    check_settings(window)
    if array.ndim not in (2, 3) or array.dtype.kind not in "uif" or array.shape[2:] not in ((), (1,), (3,), (4,)):
        raise UnreadableImageError("not an image")
    check_size(array.shape[1], array.shape[0])
    if array.shape[2:] == (4,) and alpha == "white":
        if array.dtype != np.uint8:
            raise UnreadableImageError("alpha that is not in bytes")
        return on_white(Image.fromarray(np.ascontiguousarray(array)))
    if array.ndim == 3:
        array = array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3]
    return Image.fromarray(np.ascontiguousarray(array if array.dtype == np.uint8 else stretch(array, window)))


def on_white(image: Image.Image) -> Image.Image:
    """The image on a white ground, as RGB. What is opaque keeps its bytes."""
    shown = image.convert("RGBA")
    mask = shown.getchannel("A")
    if mask.getextrema() == (255, 255):
        return shown.convert("RGB")
    out = Image.new("RGB", image.size, (255, 255, 255))
    out.paste(shown.convert("RGB"), mask=mask)
    return out


def check_settings(window: Window | None) -> None:
    """Check that the window is two finite numbers in order, and that Pillow does not accept truncated files."""
    if window is not None and not (len(window) == 2 and np.isfinite(window).all() and window[0] < window[1]):
        raise ConfigError(f"`window` must be two finite numbers, the lower first; got {window!r}.")
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ConfigError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, so a truncated file would pass as an image. Turn it off."
        )


def check_size(width: int, height: int, limit: int = MAX_PIXELS) -> None:
    """Refuse images without pixels, and images too large for memory."""
    if width * height > limit:
        raise UnreadableImageError(f"too many pixels ({width} x {height})")
    if min(width, height) < 1:
        raise UnreadableImageError("no pixels")


def stretch(values: npt.NDArray[Any], window: Window | None) -> npt.NDArray[np.uint8]:
    """Map values linearly to 0..255: from the window, or else from the smallest and largest finite value."""
    if values.dtype.kind in "ui" and values.dtype.itemsize == 2 and values.size > 2**16:
        # At most 65,536 distinct values can occur, so each is mapped only once.
        bounds = window if window is not None else (float(values.min()), float(values.max()))
        native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        every = np.arange(2**16, dtype=np.uint16).view(native.dtype)
        return _linear(every.astype(np.float64), *bounds)[native.view(np.uint16)]
    # Copying some kinds of NaN raises a floating-point warning.
    with np.errstate(invalid="ignore"):
        x = values.astype(np.float64)
    finite = np.isfinite(x)
    if not finite.all():
        x[~finite] = x[finite].min(initial=np.inf) if window is None else window[0]
    return _linear(x, *(window if window is not None else (float(x.min()), float(x.max()))))


def _linear(values: npt.NDArray[Any], low: float, high: float) -> npt.NDArray[np.uint8]:
    # Halved first, because the difference of two doubles can overflow.
    span = high / 2 - low / 2
    if not 0 < span < np.inf:
        return np.zeros(values.shape, dtype=np.uint8)
    x = values.clip(low, high) / 2
    x -= low / 2
    x /= span
    x *= 255
    return np.rint(x, out=x).astype(np.uint8)
