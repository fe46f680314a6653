"""DICOM files: images of 8 bits, and patients that a local key turns into subjects without a name.

Needs `locum[dicom]`. Elements that could name a person are only hashed, as bytes: pydicom quotes values that it
finds odd.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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

from locum.embed.decode import QUIET_PIXELS, UnreadableImageError, check_settings, check_size, stretch
from locum.errors import PrivacyError
from locum.io import STATE_FOLDER, create_bytes, private_folder

if TYPE_CHECKING:
    from pydicom import Dataset


@cache
def pixel_tags() -> list[int]:
    """Every tag of the groups that describe pixels, frames and windows; none of these names a person."""
    return [tag for tag in DicomDictionary if tag >> 16 in (0x0028, 0x5200, 0x7FE0)]


def first_image(syntax: str, data: Dataset, window: tuple[float, float] | None) -> Image.Image:
    """The first frame in 8 bits; see `decode_dicom` for the rules."""
    if not any(word in data for word in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
        raise UnreadableImageError("a DICOM file without pixels, or cut off")
    check_size(int(data.Columns), int(data.Rows))
    _lift_frame_settings(data)
    values, kind = _first_frame(syntax, data)
    if kind in ("MONOCHROME1", "MONOCHROME2"):
        # Numbers in a file can be absurd, and numpy would print that.
        with np.errstate(all="ignore"):
            grey = _windowed(_rescaled(values, data), data, window)
        return Image.fromarray(255 - grey if kind == "MONOCHROME1" else grey)
    bits = int(data.BitsStored)
    if kind == "PALETTE COLOR":
        values, bits = apply_color_lut(values, data), int(data.RedPaletteColorLookupTableDescriptor[2])
    elif kind != "RGB":
        raise UnreadableImageError("unknown pixel format")
    if values.dtype.kind != "u" or values.shape[2:] != (3,):
        raise UnreadableImageError("unknown pixel format")
    return Image.fromarray(np.ascontiguousarray((values >> max(0, bits - 8)).astype(np.uint8)))


def _lift_frame_settings(data: Dataset) -> None:
    """Newer multi-frame files keep the rescaling and the window apart, for all frames and for each."""
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in (data.get(groups) or [])[:1]:
            for macro in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
                for item in (group.get(macro) or [])[:1]:
                    data.update(item)


def _first_frame(syntax: str, data: Dataset) -> tuple[npt.NDArray[Any], str]:
    """Stored values and what they mean; YBR has become RGB."""
    decoder = _decoder(syntax)
    if decoder.is_encapsulated:
        _check_claim(get_frame(data.PixelData, 0, number_of_frames=int(data.get("NumberOfFrames") or 1)), data)
    reason = ""
    try:
        values, told = decoder.as_array(data, index=0)
    except RuntimeError:
        # So pydicom says that each decoder that it has failed.
        reason = f"compressed as {UID(syntax).name}: damaged, or needs pylibjpeg or gdcm"
    if reason:
        raise UnreadableImageError(reason if decoder.is_encapsulated else "damaged")
    return values, str(told["photometric_interpretation"])


def _decoder(syntax: str) -> Decoder:
    with suppress(NotImplementedError):
        decoder = get_decoder(syntax)
        if decoder.is_available:
            return decoder
    name = UID(syntax).name
    if name == syntax:
        raise UnreadableImageError("compressed in a way that is not known")
    raise UnreadableImageError(f"compressed as {name}: install pylibjpeg or gdcm")


def _check_claim(frame: bytes, data: Dataset) -> None:
    """A compressed frame has the size that the header says: no memory is asked for any other."""
    size: tuple[int, int] | None = None
    for opener in (JpegImageFile, Jpeg2KImageFile):
        # What Pillow cannot open it will not decode either.
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


def _windowed(values: npt.NDArray[Any], data: Dataset, window: tuple[float, float] | None) -> npt.NDArray[np.uint8]:
    if window is not None:
        return stretch(values, window)
    if data.get("VOILUTSequence"):
        depth = int(data.VOILUTSequence[0].LUTDescriptor[2])
        return stretch(apply_voi(np.rint(values).astype(np.int64), data), (0, 2**depth - 1))
    centre, width = _number(data, "WindowCenter", np.nan), _number(data, "WindowWidth", np.nan)
    kind = str(data.get("VOILUTFunction") or "LINEAR").strip().upper()
    if kind == "SIGMOID" and np.isfinite(centre) and width > 0:
        return stretch(np.tanh(2 * (values - centre) / width), (-1, 1))
    if kind == "LINEAR":
        # The standard counts the values inside the window, not the distance between its ends.
        centre, width = centre - 0.5, width - 1
    if not (np.isfinite(centre) and width >= 0):
        return stretch(values, None)
    low, high = centre - width / 2, centre + width / 2
    # A window of one value is a step.
    return stretch(values, (low, max(high, float(np.nextafter(low, np.inf)))))


def _number(data: Dataset, keyword: str, default: float) -> float:
    """An element's value, the first where there are several."""
    value: Any = data.get(keyword)
    if isinstance(value, Sequence):
        value = value[0] if value else None
    return default if value is None else float(value)


T = TypeVar("T")
KEY_BYTES = 32
# Of deflated files: a few bytes of those can ask for all memory.
_MAX_INFLATED = 2**29
_IMPLICIT, _DEFLATED, _BIG_ENDIAN = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2"
_CHARSET, _PATIENT, _ISSUER, _PIXELS = 0x00080005, 0x00100020, 0x00100021, 0x7FE00000
_UNDEFINED = 0xFFFFFFFF

# Once, when this module is imported. What pydicom warns of is either refused here or does not touch the pixels.
warnings.filterwarnings("ignore", module=r"pydicom\.")


def is_dicom(raw: bytes) -> bool:
    """Whether the file says so itself, behind its preamble; files without a preamble do not count."""
    return raw[128:132] == b"DICM"


def decode_dicom(raw: bytes, *, window: tuple[float, float] | None = None) -> Image.Image:
    """The first frame of a DICOM file as 8 bits (mode L or RGB), or UnreadableImageError.

    - Grey: stored values are rescaled (slope and intercept, or the modality's table), then mapped linearly to 0..255
      from `window` in rescaled units; where none is given, by the file's own table or first window; where it has none
      either, from the least to the greatest value, padding included. MONOCHROME1 is inverted at the end.
    - Colour: RGB, YBR and palettes; of more than 8 bits the upper 8 are kept. No window applies.
    - Compressed pixels need a decoder that pydicom finds: with Pillow alone those of RLE, 8-bit JPEG and JPEG 2000.

    Overlays and presentation states are not drawn, and pixels are taken to be square.
    """
    check_settings(window)

    def work() -> Image.Image:

        return first_image(*_read(raw, pixel_tags(), pixels=True), window)

    return _guarded(work)


def dicom_subject(raw: bytes, key: bytes) -> str | None:
    """32 hex digits that stand for the patient, or None where the file names none; only the header is read.

    The same PatientID and issuer under the same key give the same digits. Without the key they tell nothing; with it
    patients' numbers can be guessed and tried, so it stays where the data are. A patient with several numbers, or
    with an issuer in some files only, counts as several; people who share a placeholder count as one.
    """
    if len(key) != KEY_BYTES:
        raise PrivacyError(f"The key that hides patients must have {KEY_BYTES} bytes; got {len(key)}.")

    def work() -> tuple[str, str]:
        _, header = _read(raw, [_PATIENT, _ISSUER], pixels=False)
        return _text(header, _ISSUER), _text(header, _PATIENT)

    issuer, patient = _guarded(work)
    if not patient:
        return None
    return hmac.new(key, json.dumps([issuer, patient]).encode(), hashlib.sha256).hexdigest()[:32]


def subject_key(folder: Path) -> bytes:
    """The key for the data in `folder`, made on first use: 32 random bytes in `.locum/subject.key`, mode 0600.

    Processes that ask at the same time get the same key, and a crash leaves a whole key or none. OSError where the
    folder cannot be written.
    """
    file = folder / STATE_FOLDER / "subject.key"
    if not file.exists():
        private_folder(file.parent)
        create_bytes(file, secrets.token_bytes(KEY_BYTES))
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise PrivacyError(
            f"`.locum/subject.key` is damaged ({len(key)} bytes, not {KEY_BYTES}); with another key the same "
            "patient would become two. Put it back from a copy, or delete it with all that was made with it."
        )
    return key


def _guarded(work: Callable[[], T]) -> T:
    """What `work` gives, or one error of ours that quotes nothing."""
    if find_spec("pydicom") is None:
        raise UnreadableImageError("DICOM needs pydicom: pip install 'locum[dicom]'")
    try:
        return work()
    except UnreadableImageError:
        raise
    except MemoryError:
        reason = "needs more memory than there is"
    except (EOFError, struct.error):
        reason = "cut off"
    except Exception:  # hostile bytes can raise anything inside a decoder
        reason = "damaged"
    # Outside `except`: pydicom's own error could quote the content.
    raise UnreadableImageError(reason)


def _read(raw: bytes, tags: list[int], *, pixels: bool) -> tuple[str, Dataset]:
    """The transfer syntax, and the wanted elements of the data set: whole, and not yet decoded."""
    from pydicom.filereader import read_dataset

    syntax, start = _file_meta(raw)
    if syntax == _DEFLATED:
        stream = BytesIO(_inflated(raw[start:]))
    else:
        stream = BytesIO(raw)
        stream.seek(start)
    data = read_dataset(
        stream,
        is_implicit_VR=syntax == _IMPLICIT,
        is_little_endian=syntax != _BIG_ENDIAN,
        stop_when=None if pixels else lambda tag, _vr, _length: tag >= _PIXELS,
        specific_tags=tags,
    )
    for tag in list(data.keys()):
        element: Any = data.get_item(tag, keep_deferred=True)
        if getattr(element, "length", _UNDEFINED) != _UNDEFINED and len(element.value or b"") < element.length:
            raise EOFError
    return syntax, data


def _file_meta(raw: bytes) -> tuple[str, int]:
    """The transfer syntax, and where the data set starts; group 2 is always explicit and little-endian."""
    at, syntax = 132, b""
    while raw[at : at + 2] == b"\x02\0":
        element, kind, length = struct.unpack_from("<2xH2sH", raw, at)
        at += 8
        if kind in (b"OB", b"OW", b"SQ", b"UN", b"UT"):
            (length,) = struct.unpack_from("<L", raw, at)
            at += 4
        if element == 0x10:
            syntax = raw[at : at + length].rstrip(b"\0 ")
        at += length
    if at > len(raw):
        raise EOFError
    if not syntax:
        raise UnreadableImageError("a DICOM file that does not name its transfer syntax")
    return syntax.decode("ascii"), at


def _inflated(data: bytes) -> bytes:
    worker = zlib.decompressobj(-zlib.MAX_WBITS)
    out = worker.decompress(data, _MAX_INFLATED)
    if worker.unconsumed_tail:
        raise MemoryError
    if not worker.eof:
        raise EOFError
    return out


def _text(header: Dataset, tag: int) -> str:
    """Text as its character set means it, without padding; empty where there is none."""
    from pydicom.charset import python_encoding

    value, charset = (_bytes(header, t) for t in (tag, _CHARSET))
    name = charset.split(b"\\")[0].decode("ascii", "replace").strip("\0 ")
    try:
        text = value.decode(python_encoding.get(name, "latin_1"))
    except (LookupError, UnicodeDecodeError):
        text = value.decode("latin_1")
    return unicodedata.normalize("NFC", text).strip("\0 \t\r\n")


def _bytes(header: Dataset, tag: int) -> bytes:
    element: Any = header.get_item(tag, keep_deferred=True)
    return b"" if element is None or element.value is None else bytes(element.value)
