"""The first frame of a DICOM data set as an 8-bit image. Needs pydicom."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from pydicom import Dataset
from pydicom.datadict import DicomDictionary  # type: ignore[attr-defined]
from pydicom.encaps import get_frame
from pydicom.pixels.decoders.base import Decoder, get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut, apply_voi
from pydicom.uid import UID

from locum.embed.pixels import QUIET_PIXELS, UnreadableImageError, Window, check_size, stretch


@cache
def pixel_tags() -> list[int]:
    """Every tag of the groups that describe pixels, frames and windows; none of them can name a patient."""
    return [tag for tag in DicomDictionary if tag >> 16 in (0x0028, 0x5200, 0x7FE0)]


def first_image(syntax: str, data: Dataset, window: Window | None) -> Image.Image:
    """The first frame as 8 bits; see `decode_dicom` for the rules."""
    if not any(word in data for word in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise UnreadableImageError("a DICOM file without pixels, or cut off")
    check_size(int(data.Columns), int(data.Rows))
    _lift_frame_settings(data)
    values, kind = _first_frame(syntax, data)
    if kind in ("MONOCHROME1", "MONOCHROME2"):
        # The numbers in a file can be absurd, and numpy would warn about them.
        with np.errstate(all="ignore"):
            gray = _windowed(_rescaled(values, data), data, window)
        return Image.fromarray(255 - gray if kind == "MONOCHROME1" else gray)
    bits = int(data.BitsStored)
    if kind == "PALETTE COLOR":
        values, bits = apply_color_lut(values, data), int(data.RedPaletteColorLookupTableDescriptor[2])
    elif kind != "RGB":
        raise UnreadableImageError("unknown pixel format")
    if values.dtype.kind != "u" or values.shape[2:] != (3,):
        raise UnreadableImageError("unknown pixel format")
    return Image.fromarray(np.ascontiguousarray((values >> max(0, bits - 8)).astype(np.uint8)))


def _lift_frame_settings(data: Dataset) -> None:
    """Copy rescaling and window to the top level: newer files keep them in shared and per-frame groups."""
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in (data.get(groups) or [])[:1]:
            for macro in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
                for item in (group.get(macro) or [])[:1]:
                    data.update(item)


def _first_frame(syntax: str, data: Dataset) -> tuple[npt.NDArray[Any], str]:
    """Stored values and their photometric interpretation; YBR becomes RGB."""
    decoder = _decoder(syntax)
    if decoder.is_encapsulated:
        _check_frame_size(get_frame(data.PixelData, 0, number_of_frames=int(data.get("NumberOfFrames") or 1)), data)
    reason = ""
    try:
        values, facts = decoder.as_array(data, index=0)
    except RuntimeError:
        # pydicom raises this when every decoder it has failed.
        reason = f"compressed as {UID(syntax).name}: damaged, or needs pylibjpeg or gdcm"
    if reason:
        raise UnreadableImageError(reason if decoder.is_encapsulated else "damaged")
    return values, str(facts["photometric_interpretation"])


def _decoder(syntax: str) -> Decoder:
    with suppress(NotImplementedError):
        decoder = get_decoder(syntax)
        if decoder.is_available:
            return decoder
    name = UID(syntax).name
    if name == syntax:
        raise UnreadableImageError("compressed in a way that is not known")
    raise UnreadableImageError(f"compressed as {name}: install pylibjpeg or gdcm")


def _check_frame_size(frame: bytes, data: Dataset) -> None:
    """Refuse a compressed frame whose size differs from the header: it could ask for any amount of memory."""
    size: tuple[int, int] | None = None
    for opener in (JpegImageFile, Jpeg2KImageFile):
        # What Pillow cannot open, it will not decode either.
        with suppress(Exception):
            size = opener(BytesIO(frame)).size
    if size is None:
        return
    check_size(*size, QUIET_PIXELS)
    if size != (data.Columns, data.Rows):
        raise UnreadableImageError("damaged")


def _rescaled(values: npt.NDArray[Any], data: Dataset) -> npt.NDArray[Any]:
    if data.get("ModalityLUTSequence"):
        return apply_modality_lut(values, data)
    slope, intercept = _number(data, "RescaleSlope", 1.0), _number(data, "RescaleIntercept", 0.0)
    return values if (slope, intercept) == (1, 0) else values * slope + intercept


def _windowed(values: npt.NDArray[Any], data: Dataset, window: Window | None) -> npt.NDArray[np.uint8]:
    if window is not None:
        return stretch(values, window)
    if data.get("VOILUTSequence"):
        depth = int(data.VOILUTSequence[0].LUTDescriptor[2])
        return stretch(apply_voi(np.rint(values).astype(np.int64), data), (0, 2**depth - 1))
    center, width = _number(data, "WindowCenter", np.nan), _number(data, "WindowWidth", np.nan)
    kind = str(data.get("VOILUTFunction") or "LINEAR").strip().upper()
    if kind == "SIGMOID" and np.isfinite(center) and width > 0:
        return stretch(np.tanh(2 * (values - center) / width), (-1, 1))
    if kind == "LINEAR":
        # The standard gives the number of values inside the window, not the distance between its ends.
        center, width = center - 0.5, width - 1
    if not (np.isfinite(center) and width >= 0):
        return stretch(values, None)
    low, high = center - width / 2, center + width / 2
    # A window of a single value is a step.
    return stretch(values, (low, max(high, float(np.nextafter(low, np.inf)))))


def _number(data: Dataset, keyword: str, default: float) -> float:
    """An element's value; the first one if there are several."""
    value: Any = data.get(keyword)
    if isinstance(value, Sequence):
        value = value[0] if value else None
    return default if value is None else float(value)
