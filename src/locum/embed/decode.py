"""Decodes the bytes of an image file into an 8-bit image, before it is resized for a backbone."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO

import numpy as np
from PIL import Image, _imaging
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from locum.embed.dicom import decode_dicom, is_dicom
from locum.embed.headers import check_jpeg2000, check_png, check_webp, exif_orientation, gif_size, plain_tiff
from locum.embed.pixels import (
    QUIET_PIXELS,
    Alpha,
    UnreadableImageError,
    Window,
    check_settings,
    check_size,
    on_white,
    stretch,
)

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


def decode_image(
    raw: bytes, *, window: Window | None = None, keep_gray: bool = False, alpha: Alpha = "white"
) -> Image.Image:
    """An 8-bit RGB image from the bytes of a file, or UnreadableImageError; part of the preprocessing contract.

    The content decides what a file is, not its name: DICOM (with `locum[dicom]`), PNG, JPEG, TIFF, BMP, GIF, WebP,
    JPEG 2000 and the PPM family. Nothing else is tried. Thread-safe: no process-wide setting is changed.

    - Only the first frame or page is used. The EXIF orientation is applied.
    - Palettes, gray, CMYK, YCbCr and 1-bit become RGB by Pillow's `convert("RGB")`. What is transparent, by an alpha
      channel, a palette or one transparent color, lies on white. Color profiles are ignored.
    - Gray images of 16 or 32 bits, integer or float, are mapped linearly to 0..255 and rounded: from `window`, which
      is public and the same for all images, or else from the image's own smallest and largest finite value. A flat
      image becomes black; NaN and infinities count as the smallest value. `window` does not affect 8-bit images.
      Pillow reads 16-bit color as 8 bits (the upper byte), and 16-bit TIFF where 0 is white as if 0 were black.
    - DICOM follows `decode_dicom`; there `window` applies to every gray image, in rescaled units.
    - A truncated file is refused, never filled up. More than 2**27 pixels (2**26 for GIF) are refused before they are
      decoded.

    Parameters
    ----------
    raw
        The content of a file.
    window
        Values that become black and white, the lower first; None: the image's own smallest and largest.
    keep_gray
        Return a gray image as mode L, which saves two thirds of the work.
    alpha
        "white", or "dropped" as the published processors of vision models do: colors that nobody sees then count,
        and drawings in one color on a transparent ground are all the same.

    Returns
    -------
    PIL.Image.Image
        The image in mode RGB (or L), without metadata.

    Raises
    ------
    UnreadableImageError
        If there is no usable image; the text says why in a few words.

    Examples
    --------
    >>> from locum.embed import decode_image
    >>> decode_image(b"P2 2 1 255 0 9").getpixel((1, 0))
    (9, 9, 9)
    """
    check_settings(window)
    if is_dicom(raw):
        image = decode_dicom(raw, window=window)
        return image if keep_gray else image.convert("RGB")
    try:
        return _decode(raw, window, keep_gray, alpha)
    except UnreadableImageError:
        raise
    except Exception as error:  # hostile bytes can raise anything inside a decoder
        reason = _reason(error)
    # Raised outside `except`: the decoder's own error could quote the content.
    raise UnreadableImageError(reason)


def image_size(raw: bytes) -> tuple[int, int] | None:
    """Width and height as the header gives them, or UnreadableImageError; None for DICOM, whose header is not read.

    No pixel is decoded, so a file can still turn out to be damaged.
    """
    if is_dicom(raw):
        return None
    try:
        image, _ = _opener(raw)(raw)
        check_size(*image.size)
        return image.size
    except UnreadableImageError:
        raise
    except Exception as error:  # hostile bytes can raise anything inside a decoder
        reason = _reason(error)
    raise UnreadableImageError(reason)


def may_have_alpha(raw: bytes) -> bool:
    """Whether a file can hold transparency, from its first bytes; where that takes more, yes."""
    if is_dicom(raw) or raw.startswith((b"\xff\xd8\xff", b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf")):
        return False
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        # The type of color: 4 and 6 have an alpha channel; others can name transparent colors.
        return raw[25:26] in (b"\4", b"\6") or b"tRNS" in raw
    return True


def _decode(raw: bytes, window: Window | None, keep_gray: bool, alpha: Alpha) -> Image.Image:
    image, orientation = _opener(raw)(raw)
    check_size(*image.size)
    image.load()
    if image.mode in _WIDE:
        out = Image.fromarray(stretch(np.asarray(image), window)).convert("L" if keep_gray else "RGB")
    elif image.mode in _NARROW:
        if alpha == "white" and image.has_transparency_data:
            out = on_white(image)
        else:
            # Pillow would warn about transparency that RGB cannot hold, and drop it anyway.
            image.info.pop("transparency", None)
            out = image.convert("L" if keep_gray and image.mode == "L" else "RGB")
        # The metadata can say who took the image, and where.
        out.info = {}
    else:
        raise UnreadableImageError("unknown pixel format")
    # A PNG may store its orientation after its pixels.
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
        """Skip it: Pillow would print a warning for broken EXIF data."""


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
    # With the memory already allocated, Pillow does not warn about images above its own, lower limit.
    image.im = Image.new(image.mode, image.size).im
    return image, orientation


# Pillow's `open` would try more formats, and warns above a process-wide limit.
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


# libtiff prints its complaints about a file; the error that Pillow raises is enough. Set once, at import, for the
# whole process. Some builds hide the function: damaged TIFF files then print a line, without names or pixels.
with suppress(AttributeError, OSError):
    ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)
