"""DICOM files: reading their elements, decoding an image, and replacing patients by pseudonyms.

Needs `locum[dicom]`, which is imported when first used. Elements that could name a patient are only hashed, as bytes:
pydicom's messages can quote a value.
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
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from locum.embed.pixels import UnreadableImageError, Window, check_settings
from locum.errors import PrivacyError
from locum.io import STATE_FOLDER, create_bytes, private_folder

if TYPE_CHECKING:
    from pydicom import Dataset


T = TypeVar("T")
KEY_BYTES = 32
# Limit for deflated files: a few bytes can expand to any size.
_MAX_INFLATED = 2**29
_IMPLICIT, _DEFLATED, _BIG_ENDIAN = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.2"
_CHARSET, _PATIENT, _ISSUER, _PIXELS = 0x00080005, 0x00100020, 0x00100021, 0x7FE00000
_UNDEFINED = 0xFFFFFFFF

# Set once, at import. Whatever pydicom warns about is either refused here or does not affect the pixels.
warnings.filterwarnings("ignore", module=r"pydicom\.")


def is_dicom(raw: bytes) -> bool:
    """Whether the content has the DICOM mark after its preamble; files without a preamble do not count."""
    return raw[128:132] == b"DICM"


def decode_dicom(raw: bytes, *, window: Window | None = None) -> Image.Image:
    """The first frame of a DICOM file as 8 bits (mode L or RGB), or UnreadableImageError.

    - Gray: stored values are rescaled (slope and intercept, or the modality table), then mapped linearly to 0..255
      from `window` in rescaled units; without one, by the file's own table or first window; without those, from the
      smallest to the largest value, padding included. MONOCHROME1 is inverted at the end.
    - Color: RGB, YBR and palettes; above 8 bits the upper 8 are kept. No window applies.
    - Compressed pixels need a decoder that pydicom can find; Pillow alone covers RLE, 8-bit JPEG and JPEG 2000.

    Overlays and presentation states are not drawn, and pixels are assumed to be square.
    """
    check_settings(window)

    def work() -> Image.Image:
        from locum.embed.dicom_pixels import first_image, pixel_tags

        return first_image(*_read(raw, pixel_tags(), pixels=True), window)

    return _guarded(work)


def dicom_subject(raw: bytes, key: bytes) -> str | None:
    """A pseudonym of 32 hex digits for the patient, or None if the file names none; only the header is read.

    The same PatientID and issuer under the same key give the same digits. Without the key they reveal nothing; with
    it, patient numbers can be guessed and tried, so the key stays with the data. A patient with several numbers, or
    with an issuer in some files only, counts as several subjects; patients who share a placeholder count as one.
    """
    if len(key) != KEY_BYTES:
        raise PrivacyError(f"The key that replaces patients must have {KEY_BYTES} bytes; got {len(key)}.")

    def work() -> tuple[str, str]:
        _, header = _read(raw, [_PATIENT, _ISSUER], pixels=False)
        return _text(header, _ISSUER), _text(header, _PATIENT)

    issuer, patient = _guarded(work)
    if not patient:
        return None
    return hmac.new(key, json.dumps([issuer, patient]).encode(), hashlib.sha256).hexdigest()[:32]


def subject_key(folder: Path) -> bytes:
    """The key for the data in `folder`, made on first use: 32 random bytes in `.locum/subject.key`, mode 0600.

    Processes that ask at the same time get the same key, and a crash leaves a complete key or none. OSError if the
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
            "patient would become two. Restore it from a copy, or delete it and everything made with it."
        )
    return key


def _guarded(work: Callable[[], T]) -> T:
    """The result of `work`, or our own error, which quotes nothing from the file."""
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
    # Raised outside `except`: pydicom's own error could quote the content.
    raise UnreadableImageError(reason)


def _read(raw: bytes, tags: list[int], *, pixels: bool) -> tuple[str, Dataset]:
    """The transfer syntax and the wanted elements of the data set, complete and not yet decoded."""
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
    """The transfer syntax and the offset of the data set; group 2 is always explicit and little-endian."""
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
    """An element's text in its character set, without padding; empty if there is none."""
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
