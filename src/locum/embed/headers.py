"""Checks the structure of an image file before Pillow reads it.

Pillow only warns about much that is broken, and one thread cannot catch a warning without affecting the others. So
everything that would make it warn, print or accept half a file is checked here first: EOFError or `struct.error` if a
file ends too early, ValueError if it contradicts itself.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_ORIENTATION = 274
# Tags that pixels depend on. Tags of the second group hold one value; Pillow prints a warning for more.
_MANY = frozenset((258, 273, 279, 320, 324, 325, 338, 339, 347, 529, 530, 532))
_ONE = frozenset((256, 257, 259, 262, 266, _ORIENTATION, 277, 278, 284, 292, 293, 317, 322, 323, 531))
# None, three kinds of fax, LZW, JPEG, Deflate and PackBits; nothing rare and hard to read safely.
_COMPRESSIONS = frozenset((1, 2, 3, 4, 5, 7, 8, 32773, 32946))
_SAMPLES = 6
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8, 17: 8}
_LETTERS = {1: "B", 3: "H", 4: "L", 16: "Q"}


class _Value(NamedTuple):
    kind: int
    n: int
    data: bytes

    def numbers(self, order: str) -> tuple[int, ...]:
        return struct.unpack(f"{order}{self.n}{_LETTERS[self.kind]}", self.data)


class _Directory(NamedTuple):
    """The first directory of a TIFF file; `order` is "<" or ">", `big` means 64-bit offsets."""

    order: str
    big: bool
    values: dict[int, _Value]

    def number(self, tag: int, default: int) -> int:
        return self.values[tag].numbers(self.order)[0] if tag in self.values else default


def plain_tiff(raw: bytes) -> tuple[bytes, int]:
    """The first page with only the tags that its pixels depend on, and its orientation.

    A file with a value or strip outside its bounds is refused: Pillow would warn, and libtiff would fill up with
    gray.
    """
    directory = _directory(raw, _MANY | _ONE)
    if any(directory.values[tag].n != 1 for tag in _ONE & directory.values.keys()):
        raise ValueError("a tag has too many values")
    if directory.number(259, 1) not in _COMPRESSIONS or directory.number(277, 1) > _SAMPLES:
        raise ValueError("unknown pixel mode")
    for starts, lengths in ((273, 279), (324, 325)):
        if starts in directory.values and lengths in directory.values:
            pairs = zip(*(directory.values[t].numbers(directory.order) for t in (starts, lengths)), strict=True)
            if any(start + length > len(raw) for start, length in pairs):
                raise EOFError
    orientation = directory.number(_ORIENTATION, 1)
    directory.values.pop(_ORIENTATION, None)
    return _with_directory(raw, directory), orientation


def exif_orientation(exif: bytes) -> int:
    """The orientation, 1 to 8; 1 (upright) if the block is broken or does not say."""
    try:
        found = _directory(exif.removeprefix(b"Exif\0\0"), frozenset((_ORIENTATION,))).number(_ORIENTATION, 1)
    except (EOFError, KeyError, IndexError, struct.error):
        return 1
    return found if 1 <= found <= 8 else 1


def check_png(raw: bytes) -> None:
    """Check that the chunks are complete up to the last, and that an animation is announced at most once."""
    at, announced = 8, 0
    while True:
        length, kind = struct.unpack_from(">I4s", raw, at)
        if kind == b"acTL":
            (frames,) = struct.unpack_from(">I", raw, at + 8)
            announced += 1
            if announced > 1 or not 0 < frames <= 2**31:
                raise ValueError("broken animation")
        at += 12 + length
        if at > len(raw):
            raise EOFError
        if kind == b"IEND":
            return


def gif_size(raw: bytes) -> tuple[int, int]:
    """Width and height that Pillow allocates: of the first frame or the screen, whichever is larger."""
    at = 13 + (3 << (raw[10] & 7) + 1 if raw[10] & 128 else 0)
    while raw[at] != ord(","):
        if raw[at] == ord("!"):
            at += 2
            while raw[at]:
                at += raw[at] + 1
        at += 1
    left, top, width, height = struct.unpack_from("<4H", raw, at + 1)
    screen = struct.unpack_from("<2H", raw, 6)
    return max(screen[0], left + width), max(screen[1], top + height)


def check_webp(raw: bytes) -> None:
    """Check that the file is as long as its header says."""
    if struct.unpack_from("<I", raw, 4)[0] + 8 > len(raw):
        raise EOFError


def check_jpeg2000(raw: bytes) -> None:
    """Check that the code stream, alone or in a box, has its end marker: OpenJPEG turns missing pixels black."""
    at, length, kind = 0, len(raw), b"jp2c"
    if not raw.startswith(b"\xff\x4f"):
        length, kind = struct.unpack_from(">I4s", raw)
    while kind != b"jp2c":
        at += length
        length, kind = struct.unpack_from(">I4s", raw, at)
        if length == 1:
            (length,) = struct.unpack_from(">Q", raw, at + 8)
        elif length == 0:
            length = len(raw) - at
        if length < 8:
            raise ValueError("broken box")
    if at + length > len(raw) or raw[at + length - 2 : at + length] != b"\xff\xd9":
        raise EOFError


def _directory(data: bytes, wanted: frozenset[int]) -> _Directory:
    order = "<" if data[:2] == b"II" else ">"
    big = struct.unpack_from(f"{order}H", data, 2)[0] == 43
    (at,) = struct.unpack_from(f"{order}{'Q' if big else 'L'}", data, 8 if big else 4)
    (n,) = struct.unpack_from(f"{order}{'Q' if big else 'H'}", data, at)
    entry = struct.Struct(f"{order}HH{'Q8s' if big else 'L4s'}")
    at += 8 if big else 2
    values: dict[int, _Value] = {}
    for i in range(n):
        tag, kind, count, field = entry.unpack_from(data, at + i * entry.size)
        size = _SIZES.get(kind, 0) * count
        if tag not in wanted or tag in values or size == 0:
            continue
        if size > len(field):
            (offset,) = struct.unpack(f"{order}{'Q' if big else 'L'}", field)
            field = data[offset : offset + size]
            if len(field) < size:
                raise EOFError
        values[tag] = _Value(kind, count, field[:size])
    return _Directory(order, big, values)


def _with_directory(raw: bytes, directory: _Directory) -> bytes:
    """The same file with its pixels in place, and only this directory after them."""
    order, big, values = directory
    room = 8 if big else 4
    at = len(raw) + len(raw) % 2
    mark = b"II" if order == "<" else b"MM"
    head = struct.pack(f"{order}2sHHHQ", mark, 43, 8, 0, at) if big else struct.pack(f"{order}2sHL", mark, 42, at)
    listed = struct.pack(f"{order}{'Q' if big else 'H'}", len(values))
    behind = at + len(listed) + len(values) * (20 if big else 12) + room
    far = b""
    for tag, (kind, count, data) in sorted(values.items()):
        if len(data) > room:
            field = struct.pack(f"{order}{'Q' if big else 'L'}", behind + len(far))
            far += data + b"\0" * (len(data) % 2)
        else:
            field = data
        listed += struct.pack(f"{order}HH{'Q8s' if big else 'L4s'}", tag, kind, count, field)
    return head + raw[len(head) :] + b"\0" * (len(raw) % 2) + listed + b"\0" * room + far
