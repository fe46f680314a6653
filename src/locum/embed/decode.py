"""The bytes of a file become an image of 8 bits: what a picture is, before it is resized for a backbone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, _imaging
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from locum.embed.headers import check_jpeg2000, check_png, check_webp, exif_orientation, gif_size, plain_tiff
from locum.errors import ConfigError, DataError

MAX_PIXELS = 2**27
# Where Pillow cannot be kept from printing a warning of its own, above 89 million.
QUIET_PIXELS = 2**26
Window = tuple[float, float]

_WIDE = frozenset(("I", "F", "I;16", "I;16B", "I;16L", "I;16N"))
_NARROW = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImageError(DataError):
    """A file does not hold an image that can be used; the text says why in a few words, and never names the file."""


def decode_image(raw: bytes, *, window: Window | None = None, keep_grey: bool = False) -> Image.Image:
    """An RGB image of 8 bits from the bytes of a file, or UnreadableImageError; a part of the preprocessing contract.

    Content decides what a file is, not its name: DICOM (with `locum[dicom]`), PNG, JPEG, TIFF, BMP, GIF, WebP,
    JPEG 2000 and the PPM family. Nothing else is tried.

    - The first frame or page counts. EXIF's orientation is applied.
    - Palettes, grey, CMYK, YCbCr and 1-bit become RGB by Pillow's `convert("RGB")`. Alpha is dropped, not blended
      with a background, as the published processors of vision models do. Colour profiles are ignored.
    - Grey images of 16 or 32 bits, integer or float, are mapped linearly to 0..255 and rounded: from `window`, which
      is public and the same for all images, or else from the image's own least and greatest finite value. A flat
      image becomes black; NaN and infinities count as the least value. `window` does not touch images of 8 bits.
      Pillow reads 16-bit colour as 8 bits (the upper byte), and 16-bit TIFF where 0 is white as if 0 were black.
    - DICOM follows `decode_dicom`; there `window` holds for every grey image, in rescaled units.
    - A file that is cut off inside its image is refused, never filled up. More than 2**27 pixels (of GIF 2**26) are
      refused before they are decoded.

    With `keep_grey` a grey image comes as one colour (mode L), which is three equal ones at a third of the work.
    Safe in threads: no setting of the process is changed.

    Examples
    --------
    >>> decode_image(b"P2 2 1 255 0 9").getpixel((1, 0))
    (9, 9, 9)
    """
    check_settings(window)
    if raw[128:132] == b"DICM":
        from locum.embed.dicom import decode_dicom

        image = decode_dicom(raw, window=window)
        return image if keep_grey else image.convert("RGB")
    try:
        return _decode(raw, window, keep_grey)
    except UnreadableImageError:
        raise
    except Exception as error:  # hostile bytes can raise anything inside a decoder
        reason = _reason(error)
    # Outside `except`: the decoder's own error could quote the content.
    raise UnreadableImageError(reason)


def image_from_array(array: npt.NDArray[Any], *, window: Window | None = None) -> Image.Image:
    """The image in an array (height, width[, 1, 3 or 4 colours]): RGB, or L where there is one colour.

    Bytes stay what they are, and a fourth colour, alpha, is dropped. Other numbers are mapped as `decode_image` maps
    them, the colours of an image together.
    """
    check_settings(window)
    if array.ndim not in (2, 3) or array.dtype.kind not in "uif" or array.shape[2:] not in ((), (1,), (3,), (4,)):
        raise UnreadableImageError("not an image")
    check_size(array.shape[1], array.shape[0])
    if array.ndim == 3:
        array = array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3]
    return Image.fromarray(np.ascontiguousarray(array if array.dtype == np.uint8 else stretch(array, window)))


def check_settings(window: Window | None) -> None:
    """The window is two finite numbers, the lower first, and Pillow was not told to take half a file for a whole."""
    if window is not None and not (len(window) == 2 and np.isfinite(window).all() and window[0] < window[1]):
        raise ConfigError(f"`window` must be two finite numbers, the lower first; got {window!r}.")
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ConfigError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on: half a file would pass for one. Turn it off.")


def check_size(width: int, height: int, limit: int = MAX_PIXELS) -> None:
    """There are pixels, and not more than memory is meant for."""
    if width * height > limit:
        raise UnreadableImageError(f"too many pixels ({width} x {height})")
    if min(width, height) < 1:
        raise UnreadableImageError("no pixels")


def stretch(values: npt.NDArray[Any], window: Window | None) -> npt.NDArray[np.uint8]:
    """Values as 0..255: linear between the window's ends, or else between the least and greatest finite value."""
    if values.dtype.kind in "ui" and values.dtype.itemsize == 2 and values.size > 2**16:
        # No more than 65,536 values can occur: each is mapped once.
        bounds = window if window is not None else (float(values.min()), float(values.max()))
        native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        every = np.arange(2**16, dtype=np.uint16).view(native.dtype)
        return _linear(every.astype(np.float64), *bounds)[native.view(np.uint16)]
    # Some kinds of NaN are reported when they are copied.
    with np.errstate(invalid="ignore"):
        x = values.astype(np.float64)
    finite = np.isfinite(x)
    if not finite.all():
        x[~finite] = x[finite].min(initial=np.inf) if window is None else window[0]
    return _linear(x, *(window if window is not None else (float(x.min()), float(x.max()))))


def _linear(values: npt.NDArray[Any], low: float, high: float) -> npt.NDArray[np.uint8]:
    # By halves, because the distance between two doubles may be too large for one.
    span = high / 2 - low / 2
    if not 0 < span < np.inf:
        return np.zeros(values.shape, dtype=np.uint8)
    x = values.clip(low, high) / 2
    x -= low / 2
    x /= span
    x *= 255
    return np.rint(x, out=x).astype(np.uint8)


def _decode(raw: bytes, window: Window | None, keep_grey: bool) -> Image.Image:
    image, orientation = _opener(raw)(raw)
    check_size(*image.size)
    image.load()
    if image.mode in _WIDE:
        out = Image.fromarray(stretch(np.asarray(image), window)).convert("L" if keep_grey else "RGB")
    elif image.mode in _NARROW:
        # Pillow warns of transparency that RGB cannot hold, and drops it anyway.
        image.info.pop("transparency", None)
        out = image.convert("L" if keep_grey and image.mode == "L" else "RGB")
        # Who made the image and where is in there.
        out.info = {}
    else:
        raise UnreadableImageError("unknown pixel format")
    # A PNG may tell its orientation behind its pixels.
    if orientation is None and "exif" in image.info:
        orientation = exif_orientation(image.info["exif"])
    return out.transpose(_TURNS[orientation]) if orientation in _TURNS else out


Opened = tuple[Image.Image, int | None]


def _opener(raw: bytes) -> Callable[[bytes], Opened]:
    for starts, opener in _OPENERS.items():
        if raw.startswith(starts):
            return opener
    raise UnreadableImageError("not an image" if raw else "empty file")


class _Jpeg(JpegImageFile):
    def _read_dpi_from_exif(self) -> None:
        """Not asked for; Pillow would print a warning where EXIF is broken."""


def _jpeg(raw: bytes) -> Opened:
    return _Jpeg(BytesIO(raw)), None


def _jpeg2000(raw: bytes) -> Opened:
    check_jpeg2000(raw)
    return Jpeg2KImageFile(BytesIO(raw)), 1


def _png(raw: bytes) -> Opened:
    check_png(raw)
    return PngImageFile(BytesIO(raw)), None


def _gif(raw: bytes) -> Opened:
    check_size(*gif_size(raw), QUIET_PIXELS)
    return GifImageFile(BytesIO(raw)), 1


def _webp(raw: bytes) -> Opened:
    if raw[8:12] != b"WEBP":
        raise UnreadableImageError("not an image")
    check_webp(raw)
    return WebPImageFile(BytesIO(raw)), None


def _tiff(raw: bytes) -> Opened:
    plain, orientation = plain_tiff(raw)
    image = TiffImageFile(BytesIO(plain))
    check_size(*image.size)
    # With memory in place Pillow does not warn of images above its own, lower limit.
    image.im = Image.new(image.mode, image.size).im
    return image, orientation


# Pillow's `open` would try more formats, and prints a warning above a limit that belongs to the whole process.
_OPENERS: dict[tuple[bytes, ...], Callable[[bytes], Opened]] = {
    (b"\xff\xd8\xff",): _jpeg,
    (b"\x89PNG\r\n\x1a\n",): _png,
    (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"): _tiff,
    (b"GIF87a", b"GIF89a"): _gif,
    (b"RIFF",): _webp,
    (b"BM",): lambda raw: (BmpImageFile(BytesIO(raw)), 1),
    (b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  \r\n\x87\n"): _jpeg2000,
    (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf"): lambda raw: (PpmImageFile(BytesIO(raw)), 1),
}


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels"
    if isinstance(error, EOFError | IndexError | struct.error) or "runcated" in text:
        return "cut off"
    if "pixel mode" in text:
        return "unknown pixel format"
    return "damaged"


# libtiff prints what it dislikes about a file; the error that Pillow raises is enough. Once, at import, it holds for
# the process. A build may hide the function: damaged TIFF files then print a line, with no name and no pixel in it.
with suppress(AttributeError, OSError):
    ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)
