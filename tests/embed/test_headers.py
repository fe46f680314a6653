"""What a file's structure says, against what Pillow reads."""

from __future__ import annotations

import io
import logging
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from locum.embed import UnreadableImageError, decode_image
from locum.embed.headers import check_jpeg2000, check_png, check_webp, exif_orientation, gif_size, plain_tiff

GRAY = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))


def saved(image: Image.Image, form: str, **settings: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **settings)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_is_what_pillow_finds(orientation: int, order: str) -> None:
    exif = Image.Exif()
    exif.endian = order
    exif[274] = orientation
    exif[271] = "a text that does not fit into four bytes"
    block = exif.tobytes()
    assert exif_orientation(block) == orientation
    assert exif_orientation(block.removeprefix(b"Exif\0\0")) == orientation


@given(st.binary(max_size=60))
def test_any_block_has_an_orientation(block: bytes) -> None:
    assert 1 <= exif_orientation(block) <= 8


def test_a_tiff_keeps_its_pixels_and_loses_the_rest() -> None:
    exif = Image.Exif()
    exif[270] = "Doe, Jane"
    exif[274] = 3
    raw = saved(GRAY, "TIFF", exif=exif)
    plain, orientation = plain_tiff(raw)
    with Image.open(io.BytesIO(plain)) as image:
        assert (np.asarray(image) == np.asarray(GRAY)).all()
        assert {270, 274} & set(image.tag_v2) == set()
    assert orientation == 3


@pytest.mark.parametrize("tag", [34665, 34853, 700, 330, 33432])
def test_broken_metadata_of_a_tiff_is_not_even_looked_at(tag: int) -> None:
    with_tag = bytearray(saved(GRAY, "TIFF", tiffinfo={33432: "some words about rights"}))
    place = struct.unpack_from("<L", with_tag, 4)[0] + 2
    while struct.unpack_from("<H", with_tag, place)[0] != 33432:
        place += 12
    struct.pack_into("<HHLL", with_tag, place, tag, 4, 2**30, 2**31)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.asarray(decode_image(bytes(with_tag)))[:, :, 0].tolist() == np.asarray(GRAY).tolist()


@pytest.mark.parametrize(
    ("tag", "count", "value"),
    [(256, 2, 1), (277, 1, 2051), (277, 2, 1), (259, 1, 34712), (259, 1, 6), (273, 1, 10**6), (279, 1, 10**6)],
)
def test_a_tiff_that_contradicts_itself(
    tag: int, count: int, value: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    raw = bytearray(saved(GRAY.convert("RGB"), "TIFF"))
    place = struct.unpack_from("<L", raw, 4)[0] + 2
    while struct.unpack_from("<H", raw, place)[0] != tag:
        place += 12
    struct.pack_into("<HHLL", raw, place, tag, 4 if value > 2**15 or count == 1 else 3, count, value)
    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(UnreadableImageError):
            decode_image(bytes(raw))
    assert not seen
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_the_chunks_of_a_png() -> None:
    raw = saved(GRAY, "PNG")
    check_png(raw)
    check_png(raw + b"what somebody put behind it")
    for end in range(8, len(raw)):
        with pytest.raises((EOFError, struct.error)):
            check_png(raw[:end])


@pytest.mark.parametrize("frames", [[0], [2**31 + 1], [1, 1]])
def test_an_animation_that_makes_no_sense(frames: list[int]) -> None:
    raw = saved(GRAY, "PNG")
    chunks = b"".join(struct.pack(">I4s2I4x", 8, b"acTL", n, 0) for n in frames)
    with pytest.raises(ValueError, match="animation"):
        check_png(raw[:33] + chunks + raw[33:])


def test_the_size_of_a_gif() -> None:
    raw = saved(GRAY.convert("P"), "GIF", comment=b"words", save_all=True, append_images=[GRAY], loop=3, duration=9)
    assert gif_size(raw) == (4, 3)
    with pytest.raises((IndexError, struct.error)):
        gif_size(raw[:20])


def test_lengths_of_webp_and_jpeg_2000() -> None:
    webp = saved(GRAY.convert("RGB"), "WEBP")
    check_webp(webp)
    with pytest.raises(EOFError):
        check_webp(webp[:-1])
    boxed = saved(GRAY, "JPEG2000")
    bare = boxed[boxed.index(b"\xff\x4f\xff\x51") :]
    for raw in (boxed, bare):
        check_jpeg2000(raw)
        with pytest.raises(EOFError):
            check_jpeg2000(raw[:-1])
    with pytest.raises((EOFError, struct.error, ValueError)):
        check_jpeg2000(boxed[:12] + bytes(8))
