"""Bytes become 8-bit images: every mode by hand, and nothing but one error on whatever else comes."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image, ImageFile, ImageOps

from locum.embed import UnreadableImageError, decode_image
from locum.embed.decode import may_have_alpha
from locum.embed.pixels import MAX_PIXELS, _linear, image_from_array, stretch
from locum.errors import ConfigError, DataError

RNG = np.random.default_rng(0)
PHOTO = Image.fromarray(RNG.integers(0, 256, (11, 17, 3), dtype=np.uint8))


def saved(image: Image.Image, form: str, **settings: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **settings)
    return stream.getvalue()


def pixels(raw: bytes, window: tuple[float, float] | None = None) -> np.ndarray:
    image = decode_image(raw, window=window)
    assert image.mode == "RGB"
    return np.asarray(image)


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[274] = orientation
    tags[271] = "a maker of cameras"
    return tags


@contextmanager
def silence() -> Iterator[None]:
    """No warning is even raised: a filter would be a setting of the process."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    assert [str(w.message) for w in seen] == []


def refused(raw: bytes) -> str:
    with silence(), pytest.raises(UnreadableImageError) as caught:
        decode_image(raw)
    # Neither cause nor context: a decoder's own text could quote the file.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


# Modes of 8 bits


@pytest.mark.parametrize("form", ["PNG", "TIFF", "BMP", "PPM"])
def test_color_comes_back_as_it_was_saved(form: str) -> None:
    assert (pixels(saved(PHOTO, form)) == np.asarray(PHOTO)).all()


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "GIF", "JPEG2000"])
def test_lossy_formats_give_what_pillow_gives(form: str) -> None:
    raw = saved(PHOTO, form)
    assert (pixels(raw) == np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))).all()


def test_gray_becomes_three_equal_colors() -> None:
    assert pixels(saved(Image.new("L", (1, 1), 77), "PNG")).tolist() == [[[77, 77, 77]]]


def test_one_bit_becomes_black_and_white() -> None:
    image = Image.fromarray(np.array([[0, 255]], dtype=np.uint8)).convert("1")
    for form in ("PNG", "TIFF", "PPM", "BMP"):
        assert pixels(saved(image, form)).tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize(("alpha", "share"), [(0, 0.0), (51, 0.2), (255, 1.0)])
@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
def test_what_is_transparent_lies_on_white(form: str, alpha: int, share: float) -> None:
    # Not lossy; `exact` keeps the colors under transparent pixels.
    options = {"lossless": True, "exact": True} if form == "WEBP" else {}
    raw = saved(Image.new("RGBA", (1, 1), (10, 20, 30, alpha)), form, **options)
    seen = [round(share * color + (1 - share) * 255) for color in (10, 20, 30)]
    assert pixels(raw).tolist() == [[seen]]
    assert np.asarray(decode_image(raw, alpha="dropped")).tolist() == [[[10, 20, 30]]]
    assert may_have_alpha(raw)
    if form != "WEBP":
        gray = saved(Image.new("LA", (1, 1), (10, alpha)), form)
        assert pixels(gray).tolist() == [[[seen[0]] * 3]]
        assert may_have_alpha(gray)


@pytest.mark.parametrize(("transparency", "first", "second"), [(0, 255, 1), (b"\x00\x80", 255, 128), (1, 200, 255)])
def test_transparent_colors_of_a_palette_lie_on_white(transparency: int | bytes, first: int, second: int) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 100, 50, 1, 2, 3])
    image.putpixel((1, 0), 1)
    with silence():
        raw = saved(image, "PNG", transparency=transparency)
        assert may_have_alpha(raw)
        assert pixels(raw)[0, :, 0].tolist() == [first, second]
        dropped = np.asarray(decode_image(raw, alpha="dropped"))
        assert dropped.tolist() == [[[200, 100, 50], [1, 2, 3]]]
        if isinstance(transparency, int):
            assert pixels(saved(image, "GIF", transparency=transparency))[0, :, 0].tolist() == [first, second]


def test_one_transparent_color_lies_on_white() -> None:
    with silence():
        for mode, color, seen in (("L", 9, [[255] * 3]), ("RGB", (9, 8, 7), [[255] * 3]), ("1", 0, [[255] * 3])):
            raw = saved(Image.new(mode, (1, 1), color), "PNG", transparency=color)
            assert may_have_alpha(raw)
            assert pixels(raw).tolist() == [seen]
        assert pixels(saved(Image.new("L", (1, 1), 10), "PNG", transparency=9)).tolist() == [[[10] * 3]]


@pytest.mark.parametrize("form", ["PNG", "TIFF", "BMP", "GIF", "JPEG", "PPM", "WEBP", "JPEG2000"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
def test_images_without_alpha_keep_every_byte(form: str, mode: str) -> None:
    try:
        raw = saved(PHOTO.convert(mode), form)
    except OSError:
        pytest.skip(f"{form} cannot hold {mode}")
    np.testing.assert_array_equal(pixels(raw), np.asarray(decode_image(raw, alpha="dropped")))
    if form in ("PNG", "JPEG", "PPM"):
        assert not may_have_alpha(raw)


def test_cmyk() -> None:
    # Ink of a quarter in one color and none in black leaves three quarters of the light.
    assert pixels(saved(Image.new("CMYK", (1, 1), (64, 0, 0, 0)), "TIFF")).tolist() == [[[191, 255, 255]]]
    jpeg = pixels(saved(Image.new("CMYK", (16, 16), (64, 0, 0, 0)), "JPEG", quality=100))
    assert np.abs(jpeg.astype(int) - [191, 255, 255]).max() <= 2


def test_ycbcr_tiff() -> None:
    raw = saved(Image.new("YCbCr", (8, 8), (128, 128, 128)), "TIFF")
    assert np.abs(pixels(raw).astype(int) - 128).max() <= 1


def test_16_bit_color_keeps_its_upper_byte() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">2I5B", 1, 1, 16, 2, 0, 0, 0)
    body = zlib.compress(b"\0" + struct.pack(">3H", 0x12FF, 0x8000, 0xFF00))
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    assert pixels(raw).tolist() == [[[0x12, 0x80, 0xFF]]]


def test_the_window_does_not_touch_8_bits() -> None:
    raw = saved(PHOTO.convert("L"), "PNG")
    assert (pixels(raw, (0, 10)) == pixels(raw)).all()


def test_a_pixel_format_that_is_not_known_is_named_so() -> None:
    assert refused(saved(Image.new("LAB", (2, 2)), "TIFF")) == "unknown pixel format"


# More than 8 bits


def wide(values: list[float], dtype: str) -> Image.Image:
    return Image.fromarray(np.array([values]).astype(dtype))


@pytest.mark.parametrize(
    ("form", "dtype"),
    [("PNG", "u2"), ("TIFF", "u2"), ("TIFF", "i4"), ("TIFF", "f4"), ("PPM", "i4"), ("JPEG2000", "u2")],
)
def test_wide_gray_goes_from_its_least_to_its_greatest(form: str, dtype: str) -> None:
    # 1000 is 0, 1510 is 255: a step of 2 is one level.
    found = pixels(saved(wide([1000, 1510, 1002, 1400], dtype), form))
    assert found[0, :, 0].tolist() == [0, 255, 1, 200]
    assert (found == found[:, :, :1]).all()


def test_both_byte_orders_of_16_bits() -> None:
    values = np.array([[1000, 1510, 1200]])
    for order, mark in (("<", b"II*\0"), (">", b"MM\0*")):
        shape, kind, place = [(256, 3, 3), (257, 3, 1)], [(258, 3, 16), (262, 3, 1)], [(273, 4, 8), (279, 4, 6)]
        entries = shape + kind + place
        raw = mark + struct.pack(f"{order}L", 14) + values.astype(f"{order}u2").tobytes()
        raw += struct.pack(f"{order}H", len(entries))
        for tag, kind, value in entries:
            raw += struct.pack(f"{order}HHL", tag, kind, 1)
            raw += struct.pack(f"{order}H2x" if kind == 3 else f"{order}L", value)
        assert pixels(raw + bytes(4))[0, :, 0].tolist() == [0, 255, 100]


def test_a_window_is_the_same_for_all_images_and_clips() -> None:
    raw = saved(wide([0, 100, 355, 60_000], "u2"), "PNG")
    assert pixels(raw, (100, 355))[0, :, 0].tolist() == [0, 0, 255, 255]
    assert pixels(raw, (0, 510))[0, :, 0].tolist() == [0, 50, 178, 255]


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4"])
def test_a_flat_image_is_black(dtype: str) -> None:
    assert (pixels(saved(wide([500, 500], dtype), "TIFF")) == 0).all()


def test_what_is_not_finite_counts_as_the_least() -> None:
    raw = saved(wide([np.nan, -2.0, 2.0, np.inf, -np.inf, 0.0], "f4"), "TIFF")
    assert pixels(raw)[0, :, 0].tolist() == [0, 0, 255, 0, 0, 128]
    assert pixels(raw, (0, 4))[0, :, 0].tolist() == [0, 0, 128, 0, 0, 0]
    assert (pixels(saved(wide([np.nan, np.inf], "f4"), "TIFF")) == 0).all()


@pytest.mark.parametrize("dtype", ["u2", "i2", ">u2"])
@pytest.mark.parametrize("window", [None, (-300.0, 4000.5), (10.0, 11.0)])
def test_the_table_for_16_bits_is_the_plain_rule(dtype: str, window: tuple[float, float] | None) -> None:
    values = RNG.integers(0, 30_000, (300, 300)).astype(dtype)
    values[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = window or (values.min(), values.max())
    plain = np.rint((np.clip(values.astype(float), low, high) - low) / (float(high) - float(low)) * 255)
    assert (stretch(values, window) == plain).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
def test_the_map_keeps_the_order_and_the_ends(values: list[float]) -> None:
    x = np.array(values)
    with silence():
        found = _linear(x, float(x.min()), float(x.max()))
    order = np.argsort(x, kind="stable")
    assert (np.diff(found[order].astype(int)) >= 0).all()
    assert found[x.argmin()] == 0
    if x.max() / 2 - x.min() / 2 > 0:
        assert found[x.argmax()] == 255


@pytest.mark.parametrize("window", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1), (0, 1, 2)])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(ConfigError, match="window"):
        decode_image(saved(PHOTO, "PNG"), window=window)


# Frames, pages and orientation


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("GIF", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PNG", {}),
        ("MPO", {}),
    ],
)
def test_the_first_frame_counts(form: str, settings: dict[str, Any]) -> None:
    first, second = Image.new("RGB", (16, 16), (255, 0, 0)), Image.new("RGB", (16, 16), (0, 255, 0))
    found = pixels(saved(first, form, save_all=True, append_images=[second], **settings))
    assert np.abs(found.astype(int) - [255, 0, 0]).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("JPEG", {"quality": 100}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "jpeg"}),
        ("TIFF", {"big_tiff": True}),
    ],
)
def test_orientation_is_applied(orientation: int, form: str, settings: dict[str, Any]) -> None:
    raw = saved(PHOTO, form, exif=exif(orientation), **settings)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(raw))).convert("RGB")
    assert (pixels(raw) == np.asarray(expected)).all()
    assert pixels(raw).shape == ((11, 17, 3) if orientation < 5 else (17, 11, 3))


def test_orientation_by_hand() -> None:
    image = Image.fromarray(np.array([[0, 100, 200]], dtype=np.uint8))
    assert pixels(saved(image, "PNG", exif=exif(6)))[:, 0, 0].tolist() == [0, 100, 200]
    assert pixels(saved(image, "PNG", exif=exif(8)))[:, 0, 0].tolist() == [200, 100, 0]
    assert pixels(saved(image, "PNG", exif=exif(3)))[0, :, 0].tolist() == [200, 100, 0]
    # Values that mean nothing leave an image as it is.
    assert pixels(saved(image, "PNG", exif=exif(99)))[0, :, 0].tolist() == [0, 100, 200]


def test_broken_exif_is_no_reason_to_refuse_pixels() -> None:
    for body in (b"", b"II*\0\xff\xff\xff\xff", b"nonsense", b"MM\0*\0\0\0\x08\xff\xff"):
        block = b"Exif\0\0" + body
        for form in ("JPEG", "PNG", "WEBP"):
            with silence():
                assert pixels(saved(PHOTO, form, exif=block)).shape == (11, 17, 3)


def test_wide_images_are_turned_too() -> None:
    raw = saved(wide([0, 510], "u2"), "PNG", exif=exif(6))
    assert pixels(raw)[:, 0, 0].tolist() == [0, 255]


def test_nothing_of_the_metadata_comes_along() -> None:
    assert decode_image(saved(PHOTO, "JPEG", exif=exif(1), comment=b"Doe, Jane")).info == {}


# What is refused


def test_files_that_are_none() -> None:
    assert refused(b"") == "empty file"
    assert refused(b"Dear colleague, please find attached the scan of Jane Doe.") == "not an image"
    assert refused(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n") == "not an image"
    assert refused(saved(PHOTO, "PDF")) == "not an image"
    assert refused(saved(PHOTO, "ICO")) == "not an image"
    assert refused(b"RIFF\x10\0\0\0WAVEfmt ") == "not an image"
    assert issubclass(UnreadableImageError, DataError)


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for side in (60_000, 12_000):
        head = struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)
        raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
        assert refused(raw) == f"too many pixels ({side} x {side})"
    assert MAX_PIXELS < 12_000**2


@pytest.mark.parametrize("form", ["BMP", "GIF", "TIFF", "PPM", "JPEG"])
def test_bombs_of_other_kinds(form: str) -> None:
    raw = bytearray(saved(Image.new("L", (3, 3)), form))
    at, order = {"BMP": (18, "<2L"), "GIF": (6, "<2H"), "JPEG": (raw.find(b"\xff\xc0") + 5, ">2H")}.get(form, (0, ""))
    if form == "TIFF":
        place = struct.unpack_from("<L", raw, 4)[0] + 2
        for i, tag in enumerate((256, 257)):
            struct.pack_into("<HHLL", raw, place + 12 * i, tag, 4, 1, 50_000)
    elif form == "PPM":
        raw = bytearray(b"P5 50000 50000 255 ")
    else:
        struct.pack_into(order, raw, at, 50_000, 50_000)
    assert refused(bytes(raw)) == "too many pixels (50000 x 50000)"


def test_a_gif_whose_frame_is_larger_than_its_screen() -> None:
    raw = bytearray(saved(Image.new("L", (3, 3)), "GIF"))
    at = raw.index(b",\0\0\0\0\x03\0\x03\0")
    struct.pack_into("<4H", raw, at + 1, 1000, 0, 10_000, 11_000)
    assert refused(bytes(raw)) == "too many pixels (11000 x 11000)"


def test_files_that_are_cut_off_say_so() -> None:
    for form in ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM"):
        raw = saved(PHOTO, form)
        assert refused(raw[: len(raw) * 3 // 4]) == "cut off"


def test_a_png_without_its_last_chunk_is_cut_off() -> None:
    assert refused(saved(PHOTO, "PNG")[:-12]) == "cut off"


def test_an_animation_of_no_frames_is_refused_in_silence() -> None:
    raw = saved(PHOTO, "PNG")
    body = b"acTL" + bytes(8)
    assert (
        refused(raw[:33] + struct.pack(">I", 8) + body + struct.pack(">I", zlib.crc32(body)) + raw[33:]) == "damaged"
    )


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000"])
def test_pillows_own_limit_is_not_ours(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Above this Pillow warns, above twice as many pixels it refuses.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", PHOTO.width * PHOTO.height - 1)
    for settings in ({}, {"compression": "tiff_lzw"}) if form == "TIFF" else ({},):
        with silence():
            assert pixels(saved(PHOTO, form, **settings)).shape == (11, 17, 3)


def test_a_global_setting_of_pillow_cannot_let_half_a_file_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ConfigError, match="LOAD_TRUNCATED_IMAGES"):
        decode_image(saved(PHOTO, "PNG"))


def test_memory_that_is_missing_is_an_unreadable_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", none_left)
    assert refused(saved(PHOTO, "PNG")) == "needs more memory than there is"


MANY: dict[str, Callable[[], bytes]] = {
    "png": lambda: saved(PHOTO, "PNG", exif=exif(6)),
    "png palette": lambda: saved(PHOTO.convert("P"), "PNG", transparency=b"\x00\x80"),
    "png 16": lambda: saved(wide(list(range(0, 6000, 100)), "u2"), "PNG"),
    "apng": lambda: saved(PHOTO, "PNG", save_all=True, append_images=[PHOTO.rotate(180)]),
    "jpeg": lambda: saved(PHOTO, "JPEG", exif=exif(6)),
    "jpeg progressive": lambda: saved(PHOTO, "JPEG", progressive=True),
    "jpeg cmyk": lambda: saved(PHOTO.convert("CMYK"), "JPEG"),
    "gif": lambda: saved(PHOTO, "GIF", save_all=True, append_images=[PHOTO.rotate(180)]),
    "tiff": lambda: saved(PHOTO, "TIFF", exif=exif(6)),
    "tiff float": lambda: saved(wide(list(range(60)), "f4"), "TIFF"),
    "tiff lzw": lambda: saved(PHOTO, "TIFF", compression="tiff_lzw", exif=exif(6)),
    "tiff deflate": lambda: saved(PHOTO, "TIFF", compression="tiff_adobe_deflate"),
    "tiff jpeg": lambda: saved(PHOTO, "TIFF", compression="jpeg"),
    "tiff big": lambda: saved(PHOTO, "TIFF", big_tiff=True, save_all=True, append_images=[PHOTO]),
    "tiff fax": lambda: saved(PHOTO.convert("1"), "TIFF", compression="group4"),
    "bmp": lambda: saved(PHOTO, "BMP"),
    "webp": lambda: saved(PHOTO, "WEBP", exif=exif(6)),
    "webp animated": lambda: saved(PHOTO, "WEBP", save_all=True, append_images=[PHOTO.rotate(180)]),
    "jpeg 2000": lambda: saved(PHOTO, "JPEG2000"),
    "ppm": lambda: saved(PHOTO, "PPM"),
}


@pytest.mark.parametrize("name", MANY)
def test_no_cut_gives_another_image_or_another_error(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    raw = MANY[name]()
    whole = pixels(raw)
    with silence():
        for end in range(len(raw)):
            try:
                left = pixels(raw[:end])
            except UnreadableImageError:
                continue
            # What is missing lies behind the first image.
            assert left.shape == whole.shape
            assert (left == whole).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", MANY)
def test_no_damage_gives_another_error_or_prints(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    raw = MANY[name]()
    place = st.integers(0, len(raw) - 1) | st.integers(0, min(len(raw), 150) - 1)

    @given(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=4))
    def damage(changes: list[tuple[int, int]]) -> None:
        broken = bytearray(raw)
        for at, byte in changes:
            broken[at] = byte
        with suppress(UnreadableImageError):
            assert decode_image(bytes(broken)).mode == "RGB"

    with silence():
        damage()
    assert capfd.readouterr() == ("", "")


STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"II*\0\x08\0\0\0", b"MM\0+", b"GIF89a", b"BM", b"P5 ", b"\xff\xd8\xff"]


@given(st.sampled_from(STARTS), st.binary())
def test_noise_behind_a_true_beginning(start: bytes, noise: bytes) -> None:
    with silence(), suppress(UnreadableImageError):
        decode_image(start + noise)


def test_eight_threads_give_what_one_gives() -> None:
    files = [make() for make in MANY.values()] + [b"", b"text"]

    def result(raw: bytes) -> Any:
        try:
            return decode_image(raw).tobytes()
        except UnreadableImageError as error:
            return str(error)

    before = list(warnings.filters), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    alone = [result(raw) for raw in files]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(result, files * 8)) == alone * 8
    assert (list(warnings.filters), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES) == before


# Arrays


def test_bytes_in_arrays_stay_what_they_are() -> None:
    color = np.asarray(PHOTO)
    assert (np.asarray(image_from_array(color)) == color).all()
    gray = image_from_array(color[:, :, :1])
    assert gray.mode == "L"
    assert (np.asarray(gray) == color[:, :, 0]).all()
    alpha = np.concatenate([color, color[:, :, :1]], axis=2)
    assert (np.asarray(image_from_array(alpha, alpha="dropped")) == color).all()
    opaque = np.concatenate([color, np.full_like(color[:, :, :1], 255)], axis=2)
    assert (np.asarray(image_from_array(opaque)) == color).all()
    seen = color + (255 - color.astype(float)) * (1 - alpha[:, :, 3:] / 255)
    assert np.abs(np.asarray(image_from_array(alpha)) - seen).max() < 1
    with pytest.raises(UnreadableImageError, match="alpha that is not in bytes"):
        image_from_array(alpha / 255)


def test_other_numbers_in_arrays_are_mapped_together() -> None:
    found = np.asarray(image_from_array(np.array([[[0.0, 0.5, 1.0]]])))
    assert found.tolist() == [[[0, 128, 255]]]
    assert np.asarray(image_from_array(np.array([[0, 510, 2]]), window=(0, 510))).tolist() == [[0, 255, 1]]


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (2, 2, 5), (0, 4), (1, 2, 3, 4)])
def test_arrays_that_are_no_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnreadableImageError):
        image_from_array(np.zeros(shape, dtype=np.uint8))


def test_importing_it_brings_neither_torch_nor_pydicom() -> None:
    code = "import sys, locum.embed.dicom; print({'torch', 'pydicom'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("mode", ["L", "I;16", "RGB", "P", "LA"])
def test_gray_can_stay_gray_and_is_the_same(mode: str) -> None:
    """What the pipeline asks for: one color instead of three equal ones."""
    values = np.arange(48, dtype=np.uint16).reshape(6, 8)
    image = Image.fromarray(values * 900) if mode == "I;16" else Image.fromarray((values * 5).astype(np.uint8))
    buffer = io.BytesIO()
    (image if mode in ("L", "I;16") else image.convert(mode)).save(buffer, "PNG")
    kept = decode_image(buffer.getvalue(), keep_gray=True)
    assert kept.mode == ("L" if mode in ("L", "I;16") else "RGB")
    np.testing.assert_array_equal(np.asarray(kept.convert("RGB")), np.asarray(decode_image(buffer.getvalue())))
