"""DICOM files made by hand, pydicom's own (some broken on purpose), and the key that hides patients."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import multiprocessing
import os
import re
import stat
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from locum.embed import UnreadableImageError, decode_image
from locum.embed.dicom import decode_dicom, dicom_subject, is_dicom, subject_key
from locum.errors import ConfigError, PrivacyError

pydicom = pytest.importorskip("pydicom")
from pydicom.dataset import Dataset, FileMetaDataset  # noqa: E402
from pydicom.sequence import Sequence  # noqa: E402
from pydicom.uid import (  # noqa: E402
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGLSLossless,
    RLELossless,
)

KEY = bytes(range(32))
SAMPLES = Path(pydicom.__file__).parent / "data" / "test_files"
SYNTAXES = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian]


def dataset(values: Any, *, stored: int = 0, kind: str = "MONOCHROME2", **elements: Any) -> Dataset:
    """A data set around an array (rows, columns), (frames, rows, columns), or with `samples` last."""
    x = np.asarray(values)
    samples = elements.pop("samples", 1)
    frames = x.shape[: x.ndim - 2 - (samples > 1)]
    data = Dataset()
    data.SOPClassUID, data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", "1.2.3"
    data.PatientName, data.PatientID = "Doe^Jane", "MRN-4711"
    data.Rows, data.Columns = x.shape[len(frames) : len(frames) + 2]
    if frames:
        data.NumberOfFrames = frames[0]
    data.SamplesPerPixel, data.PhotometricInterpretation = samples, kind
    if samples > 1:
        data.PlanarConfiguration = 0
    data.BitsAllocated = 8 * x.dtype.itemsize
    data.BitsStored = stored or data.BitsAllocated
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = int(x.dtype.kind == "i")
    data.PixelData = x.tobytes() + b"\0" * (x.nbytes % 2)
    data["PixelData"].VR = "OB" if x.dtype.itemsize == 1 else "OW"
    for name, value in elements.items():
        setattr(data, name, value)
    return data


def written(data: Dataset, syntax: str = ExplicitVRLittleEndian) -> bytes:
    data = deepcopy(data)
    if syntax == ExplicitVRBigEndian and data.BitsAllocated > 8:
        data.PixelData = np.frombuffer(data.PixelData, f"u{data.BitsAllocated // 8}").byteswap().tobytes()
        data["PixelData"].VR = "OW"
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = syntax
    stream = io.BytesIO()
    pydicom.dcmwrite(stream, data, enforce_file_format=True)
    return stream.getvalue()


def gray(data: Dataset, window: tuple[float, float] | None = None, syntax: str = ExplicitVRLittleEndian) -> list[int]:
    image = decode_dicom(written(data, syntax), window=window)
    assert image.mode == "L"
    return np.asarray(image).ravel().tolist()


def refused(raw: bytes) -> str:
    with pytest.raises(UnreadableImageError) as caught:
        decode_dicom(raw)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert not re.search("MRN|Doe|Jane|4711", str(caught.value))
    return str(caught.value)


# Gray


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(
    ("dtype", "stored", "values", "expected"),
    [
        ("u1", 8, [10, 20, 61, 112], [0, 25, 128, 255]),
        ("u2", 12, [1000, 1510, 1002, 1400], [0, 255, 1, 200]),
        ("u2", 16, [10_000, 60_001, 10_000, 60_001], [0, 255, 0, 255]),
        ("i2", 16, [-1000, -490, -998, -600], [0, 255, 1, 200]),
        ("i1", 8, [-128, 127, -127, 0], [0, 255, 1, 128]),
        ("u4", 32, [0, 2**32 - 1, 0, 2**31], [0, 255, 0, 128]),
    ],
)
def test_from_the_least_to_the_greatest(
    syntax: str, dtype: str, stored: int, values: list[int], expected: list[int]
) -> None:
    data = dataset(np.array([values[:2], values[2:]], dtype=dtype), stored=stored)
    assert gray(data, syntax=syntax) == expected


def test_the_public_window_is_in_rescaled_units() -> None:
    # Stored 24..1574 at slope 2 and intercept -1048 are -1000..2100.
    x = np.array([[24, 524, 574, 1574]], dtype="u2")
    scale = {"RescaleSlope": "2", "RescaleIntercept": "-1048"}
    assert gray(dataset(x, **scale), (-1000, 2100)) == [0, 82, 90, 255]
    assert gray(dataset(x, **scale), (0, 255)) == [0, 0, 100, 255]
    # A window of the file gives way to the public one.
    assert gray(dataset(x, WindowCenter="1", WindowWidth="9", **scale), (0, 255)) == [0, 0, 100, 255]


def test_the_files_own_window_is_the_first_of_several() -> None:
    x = np.array([[0, 100, 150, 355, 4000]], dtype="u2")
    # A center of 228 and a width of 256 hold the 256 values 100..355.
    assert gray(dataset(x, WindowCenter="228", WindowWidth="256")) == [0, 0, 50, 255, 255]
    assert gray(dataset(x, WindowCenter=["228", "9"], WindowWidth=["256", "1"])) == [0, 0, 50, 255, 255]
    exact = {"WindowCenter": "227.5", "WindowWidth": "255", "VOILUTFunction": "LINEAR_EXACT"}
    assert gray(dataset(x, **exact)) == [0, 0, 50, 255, 255]


def test_a_sigmoid_window_is_half_at_its_center() -> None:
    x = np.array([[0, 500, 750, 10_000]], dtype="u2")
    found = gray(dataset(x, WindowCenter="500", WindowWidth="1000", VOILUTFunction="SIGMOID"))
    # 1 / (1 + exp(-4 (x - 500) / 1000)) is 0.1192, 0.5, 0.7311 and 1.
    assert found == [30, 128, 186, 255]


@pytest.mark.parametrize("values", [("50", "0"), ("50", "-5"), ("", ""), ("50", "")])
def test_a_window_that_cannot_be_one_is_ignored(values: tuple[str, str]) -> None:
    x = np.array([[0, 510]], dtype="u2")
    assert gray(dataset(x, WindowCenter=values[0], WindowWidth=values[1])) == [0, 255]


def test_a_window_of_one_value_is_a_step() -> None:
    x = np.array([[98, 99, 100, 101]], dtype="u2")
    assert gray(dataset(x, WindowCenter="100", WindowWidth="1")) == [0, 0, 255, 255]


def test_the_files_own_table() -> None:
    table = Dataset()
    table.LUTDescriptor = [4, 10, 8]
    table.LUTData = [0, 50, 60, 255]
    table["LUTDescriptor"].VR = table["LUTData"].VR = "US"
    x = np.array([[3, 10, 11, 12, 13, 99]], dtype="u2")
    assert gray(dataset(x, VOILUTSequence=Sequence([table]))) == [0, 0, 50, 60, 255, 255]
    assert gray(dataset(x, VOILUTSequence=Sequence([table])), (0, 51)) == [15, 50, 55, 60, 65, 255]


def test_the_modalitys_table() -> None:
    table = Dataset()
    table.LUTDescriptor, table.ModalityLUTType = [3, 0, 16], "US"
    table.LUTData = [0, 510, 100]
    table["LUTDescriptor"].VR = table["LUTData"].VR = "US"
    x = np.array([[0, 1, 2]], dtype="u2")
    assert gray(dataset(x, ModalityLUTSequence=Sequence([table]))) == [0, 255, 50]


def test_monochrome1_is_inverted_at_the_end() -> None:
    x = np.array([[0, 100, 510]], dtype="u2")
    assert gray(dataset(x, kind="MONOCHROME1")) == [255, 205, 0]
    assert gray(dataset(x, kind="MONOCHROME1"), (0, 255)) == [255, 155, 0]


def test_bits_above_those_stored_do_not_count() -> None:
    # Old files keep drawings there.
    assert gray(dataset(np.array([[0xF000, 0x1FFF, 0x0800]], dtype="u2"), stored=12)) == [0, 255, 128]


def test_a_flat_image_is_black() -> None:
    assert gray(dataset(np.full((2, 2), 7, dtype="u2"))) == [0] * 4


@pytest.mark.parametrize(("word", "dtype"), [("FloatPixelData", "f4"), ("DoubleFloatPixelData", "f8")])
def test_float_pixels(word: str, dtype: str) -> None:
    data = dataset(np.zeros((1, 4), dtype="u4" if dtype == "f4" else "u8"))
    del data.PixelData, data.BitsStored, data.HighBit, data.PixelRepresentation
    setattr(data, word, np.array([np.nan, -1.0, 0.0, 1.0], dtype=dtype).tobytes())
    assert gray(data) == [0, 0, 128, 255]


def test_numbers_without_sense_print_nothing(recwarn: pytest.WarningsRecorder) -> None:
    x = np.array([[0, 60_000]], dtype="u2")
    assert gray(dataset(x, RescaleSlope="1e307", RescaleIntercept="0")) == [0, 0]
    assert gray(dataset(x, WindowCenter="1e308", WindowWidth="1e308")) == [0, 0]
    assert not [w for w in recwarn if "pydicom" not in str(w.filename)]


# Frames, color, compression


def test_the_first_frame_counts() -> None:
    x = np.array([[[0, 510]], [[510, 0]]], dtype="u2")
    for syntax in SYNTAXES:
        assert gray(dataset(x), syntax=syntax) == [0, 255]


def test_settings_of_frames_in_newer_files() -> None:
    def groups(**macros: Dataset) -> Sequence:
        group = Dataset()
        for name, item in macros.items():
            setattr(group, name, Sequence([item]))
        return Sequence([group])

    rescale, window = Dataset(), Dataset()
    rescale.RescaleSlope, rescale.RescaleIntercept, rescale.RescaleType = "2", "-1000", "HU"
    window.WindowCenter, window.WindowWidth = "128", "256"
    data = dataset(
        np.array([[[500, 550, 700]]], dtype="u2"),
        SharedFunctionalGroupsSequence=groups(PixelValueTransformationSequence=rescale),
        PerFrameFunctionalGroupsSequence=groups(FrameVOILUTSequence=window),
    )
    for syntax in SYNTAXES:
        assert gray(data, syntax=syntax) == [0, 100, 255]
    assert gray(data, (0, 510)) == [0, 50, 200]


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("planar", [0, 1])
def test_color(syntax: str, planar: int) -> None:
    x = np.arange(12, dtype="u1").reshape(2, 2, 3)
    data = dataset(x, kind="RGB", samples=3)
    if planar:
        data.PlanarConfiguration, data.PixelData = 1, x.transpose(2, 0, 1).tobytes()
    image = decode_dicom(written(data, syntax), window=(0, 1))
    assert image.mode == "RGB"
    assert (np.asarray(image) == x).all()


def test_color_of_16_bits_keeps_the_upper_8_that_are_stored() -> None:
    x = np.array([[[0, 0x0800, 0x0FFF]]], dtype="u2")
    found = decode_dicom(written(dataset(x, stored=12, kind="RGB", samples=3)))
    assert np.asarray(found).tolist() == [[[0, 128, 255]]]


def test_ybr_becomes_rgb() -> None:
    # Full red: Y 76, Cb 85, Cr 255.
    x = np.array([[[76, 85, 255], [128, 128, 128]]], dtype="u1")
    found = np.asarray(decode_dicom(written(dataset(x, kind="YBR_FULL", samples=3)))).astype(int)
    assert np.abs(found - [[[254, 0, 0], [128, 128, 128]]]).max() <= 1


def test_a_palette() -> None:
    data = dataset(np.array([[0, 1]], dtype="u1"), kind="PALETTE COLOR")
    for color, entries in (("Red", [0, 65_535]), ("Green", [0x8000, 0]), ("Blue", [0x1234, 0x00FF])):
        setattr(data, f"{color}PaletteColorLookupTableDescriptor", [2, 0, 16])
        data[f"{color}PaletteColorLookupTableDescriptor"].VR = "US"
        setattr(data, f"{color}PaletteColorLookupTableData", struct.pack("<2H", *entries))
    assert np.asarray(decode_dicom(written(data))).tolist() == [[[0, 0x80, 0x12], [255, 0, 0]]]


def test_rle() -> None:
    x = np.arange(600, dtype="u2").reshape(20, 30) * 100
    data = dataset(x)
    plain = gray(data)
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.compress(RLELossless)
    assert gray(data, syntax=RLELossless) == plain


def jpeg_inside(rows: int, columns: int, frame: bytes) -> Dataset:
    data = dataset(np.zeros((rows, columns), dtype="u1"))
    data.PixelData = pydicom.encaps.encapsulate([frame])
    data["PixelData"].is_undefined_length = True
    return data


def test_jpeg() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.repeat(np.arange(0, 256, 5, dtype="u1")[None], 16, 0)).save(stream, "JPEG", quality=95)
    found = gray(jpeg_inside(16, 52, stream.getvalue()), (0, 255), syntax=JPEGBaseline8Bit)
    with Image.open(stream) as image:
        assert found == np.asarray(image).ravel().tolist()


def test_a_compressed_frame_of_another_size_is_not_unpacked() -> None:
    stream = io.BytesIO()
    Image.new("L", (40, 40)).save(stream, "JPEG")
    assert refused(written(jpeg_inside(16, 52, stream.getvalue()), JPEGBaseline8Bit)) == "damaged"
    frame = bytearray(stream.getvalue())
    struct.pack_into(">2H", frame, frame.index(b"\xff\xc0") + 5, 60_000, 60_000)
    assert refused(written(jpeg_inside(16, 52, bytes(frame)), JPEGBaseline8Bit)) == "too many pixels (60000 x 60000)"


def test_what_cannot_be_unpacked_here_says_what_to_install() -> None:
    if pydicom.pixels.get_decoder(JPEGLSLossless).is_available:
        pytest.skip("a decoder of JPEG-LS is installed")
    raw = written(jpeg_inside(4, 4, b"\xff\xd8\xff\xf7"), JPEGLSLossless)
    assert refused(raw) == "compressed as JPEG-LS Lossless Image Compression: install pylibjpeg or gdcm"
    private = raw.replace(JPEGLSLossless.encode(), b"1.2.3.4711.567890123.4")
    assert len(private) == len(raw)
    assert refused(private) == "compressed in a way that is not known"


# What is refused


def test_files_that_are_none() -> None:
    raw = written(dataset(np.zeros((2, 2), dtype="u2")))
    assert is_dicom(raw)
    assert not is_dicom(raw[:131])
    assert not is_dicom(raw[132:])
    assert not is_dicom(b"")
    bare = dataset(np.zeros((2, 2), dtype="u2"))
    del bare.PixelData
    assert refused(written(bare)) == "a DICOM file without pixels, or cut off"
    assert refused(raw[:132]) == "a DICOM file that does not name its transfer syntax"
    assert refused(raw[:-3]) == "cut off"


def test_too_many_pixels() -> None:
    data = dataset(np.zeros((2, 2), dtype="u2"))
    data.Rows = data.Columns = 20_000
    assert refused(written(data)) == "too many pixels (20000 x 20000)"
    data.Rows = 0
    assert refused(written(data)) == "no pixels"


def test_a_deflated_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.embed.dicom._MAX_INFLATED", 10_000)
    data = dataset(np.zeros((100, 100), dtype="u2"))
    raw = written(data, DeflatedExplicitVRLittleEndian)
    assert refused(raw) == "needs more memory than there is"
    with pytest.raises(UnreadableImageError, match="memory"):
        dicom_subject(raw, KEY)


def test_unknown_kinds_and_bad_windows() -> None:
    raw = written(dataset(np.zeros((1, 2, 3), dtype="u1"), kind="HSV", samples=3))
    assert refused(raw) == "unknown pixel format"
    with pytest.raises(ConfigError, match="window"):
        decode_dicom(b"", window=(1, 0))


def test_without_pydicom_the_reason_is_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locum.embed.dicom.find_spec", lambda _: None)
    raw = written(dataset(np.zeros((2, 2), dtype="u2")))
    for attempt in (lambda: decode_image(raw), lambda: dicom_subject(raw, KEY)):
        with pytest.raises(UnreadableImageError, match=r"^DICOM needs pydicom: pip install 'locum\[dicom\]'$"):
            attempt()


def test_decode_image_takes_dicom_by_its_content() -> None:
    raw = written(dataset(np.array([[0, 510, 100]], dtype="u2")))
    image = decode_image(raw)
    assert image.mode == "RGB"
    assert np.asarray(image).tolist() == [[[0] * 3, [255] * 3, [50] * 3]]
    assert np.asarray(decode_image(raw, window=(0, 1000)))[0, 1].tolist() == [130] * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("syntax", [*SYNTAXES, RLELossless])
def test_no_damage_gives_another_error(syntax: str) -> None:
    data = dataset(np.arange(64, dtype="u2").reshape(8, 8), WindowCenter="30", WindowWidth="40")
    if syntax == RLELossless:
        data.file_meta = FileMetaDataset()
        data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data.compress(RLELossless)
    raw = written(data, syntax)
    whole = decode_dicom(raw).tobytes()
    for end in range(132, len(raw)):
        # The padding behind RLE may be missing; pixels may not.
        try:
            assert decode_dicom(raw[:end]).tobytes() == whole
        except UnreadableImageError:
            continue

    @given(st.lists(st.tuples(st.integers(132, len(raw) - 1), st.integers(0, 255)), min_size=1, max_size=4))
    def damage(changes: list[tuple[int, int]]) -> None:
        broken = bytearray(raw)
        for at, byte in changes:
            broken[at] = byte
        for attempt in (decode_dicom, lambda raw: dicom_subject(raw, KEY)):
            try:
                attempt(bytes(broken))
            except UnreadableImageError as error:
                told = str(error)
                assert not re.search("MRN|4711|Doe|Jane", told)

    damage()


# Files that pydicom brings along


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="pydicom came without its test files")
def test_files_of_others_are_read_or_refused_and_print_nothing() -> None:
    code = """
import sys
from pathlib import Path
from locum.embed import UnreadableImageError, decode_image
from locum.embed.dicom import dicom_subject, is_dicom
for file in sorted(Path(sys.argv[1]).glob("*.dcm")):
    raw = file.read_bytes()
    for attempt in (decode_image, lambda raw: dicom_subject(raw, bytes(32))):
        if is_dicom(raw):
            try:
                found = attempt(raw)
                print(file.name, found if found is None or isinstance(found, str) else found.size)
            except UnreadableImageError as error:
                print(file.name, "refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(SAMPLES)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    read = [line for line in lines if re.search(r"\(\d+, \d+\)$", line)]
    assert len(read) > 30
    assert "MR_truncated.dcm refused: cut off" in lines
    assert "CT_small.dcm (128, 128)" in lines


@pytest.mark.skipif(not (SAMPLES / "MR_small.dcm").is_file(), reason="pydicom came without its test files")
@pytest.mark.filterwarnings("ignore")
def test_one_image_in_many_encodings_is_one_image() -> None:
    names = ["", "_RLE", "_bigendian", "_expb", "_implicit", "_jp2klossless", "_padded"]
    files = [(SAMPLES / f"MR_small{name}.dcm").read_bytes() for name in names]
    assert len({decode_dicom(raw).tobytes() for raw in files}) == 1
    assert len({dicom_subject(raw, KEY) for raw in files}) == 1
    # By hand: pydicom's pixels, and the window that the file names.
    data = pydicom.dcmread(SAMPLES / "MR_small.dcm")
    low = data.WindowCenter - 0.5 - (data.WindowWidth - 1) / 2
    plain = np.rint((data.pixel_array - low) / (data.WindowWidth - 1) * 255).clip(0, 255)
    assert (np.asarray(decode_dicom(files[0])) == plain).all()


@pytest.mark.skipif(not (SAMPLES / "CT_small.dcm").is_file(), reason="pydicom came without its test files")
def test_threads_give_what_one_gives() -> None:
    files = [(SAMPLES / f"{n}.dcm").read_bytes() for n in ("CT_small", "MR_small_RLE", "SC_rgb_small_odd_jpeg")]
    alone = [decode_dicom(raw).tobytes() for raw in files]
    with ThreadPoolExecutor(8) as pool:
        assert [i.tobytes() for i in pool.map(decode_dicom, files * 16)] == alone * 16


# Subjects


def patient(
    identity: str | None, issuer: str | None = None, syntax: str = ExplicitVRLittleEndian, **more: Any
) -> bytes:
    data = dataset(np.zeros((2, 2), dtype="u2"), **more)
    if identity is None:
        del data.PatientID
    else:
        data.PatientID = identity
    if issuer is not None:
        data.IssuerOfPatientID = issuer
    return written(data, syntax)


def test_a_subject_is_a_keyed_hash_that_can_be_redone() -> None:
    expected = hmac.new(KEY, json.dumps(["", "MRN-4711"]).encode(), hashlib.sha256).hexdigest()[:32]
    assert dicom_subject(patient("MRN-4711"), KEY) == expected
    assert re.fullmatch("[0-9a-f]{32}", expected)
    assert "4711" not in expected


def test_the_same_patient_is_the_same_subject() -> None:
    found = {dicom_subject(patient("MRN-4711", syntax=syntax), KEY) for syntax in SYNTAXES}
    found |= {dicom_subject(patient(" MRN-4711  "), KEY), dicom_subject(patient("MRN-4711", SeriesNumber=9), KEY)}
    assert len(found) == 1


def test_who_differs_in_number_issuer_or_key_is_another() -> None:
    files = [patient("MRN-4711"), patient("MRN-4712"), patient("MRN-4711", "North"), patient("MRN-4711", "South")]
    # The border between issuer and number counts.
    files += [patient("1MRN", "North"), patient("MRN", "North1")]
    subjects = [dicom_subject(raw, key) for raw in files for key in (KEY, bytes(32))]
    assert len(set(subjects)) == 12


def test_one_number_in_two_character_sets() -> None:
    utf8 = patient("Müller-7", SpecificCharacterSet="ISO_IR 192")
    latin = patient("Müller-7", SpecificCharacterSet="ISO_IR 100")
    assert utf8 != latin
    assert dicom_subject(utf8, KEY) == dicom_subject(latin, KEY)


@pytest.mark.parametrize("identity", [None, "", "   "])
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_no_number_no_subject(identity: str | None, syntax: str) -> None:
    assert dicom_subject(patient(identity, "North", syntax), KEY) is None


def test_a_number_that_pydicom_would_quote_is_never_shown(recwarn: pytest.WarningsRecorder) -> None:
    raw = patient("MRN-4711").replace(b"MRN-4711", b"MRN\x0747\x011")
    assert dicom_subject(raw, KEY)
    decode_image(raw)
    assert not [w for w in recwarn if "MRN" in str(w.message)]


def test_a_number_that_is_cut_off_is_not_hashed() -> None:
    raw = patient("MRN-4711")
    with pytest.raises(UnreadableImageError, match="cut off"):
        dicom_subject(raw[: raw.index(b"MRN-4711") + 5], KEY)


def test_pixels_are_not_needed_for_a_subject() -> None:
    raw = patient("MRN-4711")
    assert dicom_subject(raw[: raw.index(b"\xe0\x7f\x10\x00") + 12], KEY) == dicom_subject(raw, KEY)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(PrivacyError, match="32 bytes; got 4"):
        dicom_subject(patient("MRN-4711"), b"weak")


# The key


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = subject_key(tmp_path)
    file = tmp_path / ".locum" / "subject.key"
    assert len(key) == 32
    assert file.read_bytes() == key == subject_key(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == ["subject.key"]
    (tmp_path / "other").mkdir()
    assert subject_key(tmp_path / "other") != key


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_damaged_key_is_one_clear_error_and_stays(tmp_path: Path, content: bytes) -> None:
    subject_key(tmp_path)
    file = tmp_path / ".locum" / "subject.key"
    file.write_bytes(content)
    with pytest.raises(PrivacyError, match="same patient would become two"):
        subject_key(tmp_path)
    assert file.read_bytes() == content


def ask(folders: list[Path], barrier: Any, replies: Any) -> None:
    for folder in folders:
        barrier.wait()
        replies.put((folder, subject_key(folder)))


def test_processes_that_ask_at_once_get_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    folders = [tmp_path / str(turn) for turn in range(10)]
    for folder in folders:
        folder.mkdir()
    barrier, replies = context.Barrier(6), context.Queue()
    racers = [context.Process(target=ask, args=(folders, barrier, replies)) for _ in range(6)]
    for racer in racers:
        racer.start()
    found = [replies.get(timeout=30) for _ in range(6 * 10)]
    for racer in racers:
        racer.join(30)
    assert set(found) == {(folder, subject_key(folder)) for folder in folders}
    for folder in folders:
        assert os.listdir(folder / ".locum") == ["subject.key"]


def test_a_crash_before_the_end_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(OSError, match="disk"):
        subject_key(tmp_path)
    assert os.listdir(tmp_path / ".locum") == []
