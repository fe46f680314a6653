"""Images become vectors: order, resuming, bad files, subjects, and what stays private."""

from __future__ import annotations

import io
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum.embed import StrictError, backbone_for, embed_images, load_backbone
from locum.errors import DataError


@pytest.fixture(scope="module")
def model():
    return load_backbone("efflite0")


def naive(folder: Path, model) -> dict[str, np.ndarray]:
    """One image after the other, in the most ordinary way."""
    out = {}
    for file in sorted(folder.rglob("*.*")):
        pixels = model.preprocessing.apply(Image.open(file).convert("RGB"))
        out[file.relative_to(folder).as_posix()] = model.run(pixels[None])[0]
    return out


@pytest.mark.parametrize("workers", [1, 3])
def test_it_equals_the_naive_loop(image_folder: Path, model, workers: int) -> None:
    with embed_images(image_folder, model, cache=False, workers=workers) as done:
        expected = naive(image_folder, model)
        assert [item.name for item in done.items] == sorted(expected)
        np.testing.assert_array_equal(done.vectors(), np.stack([expected[item.name] for item in done.items]))
        data = done.sets()["all"]
    assert data.info == done.info
    assert data.labels.tolist() == ["benign"] * 5 + ["malignant"] * 5
    assert data.info.revision == model.revision
    assert data.subject is None


def test_a_second_run_computes_nothing_and_a_changed_file_is_noticed(image_folder: Path, model, picture) -> None:
    with embed_images(image_folder, model) as first:
        assert first.computed == 10
        before = first.vectors()
    with embed_images(image_folder, model) as second:
        assert second.computed == 0
        np.testing.assert_array_equal(second.vectors(), before)
    picture().save(image_folder / "benign" / "scan0.png")
    (image_folder / "benign" / "scan1.jpg").rename(image_folder / "benign" / "zzz.jpg")
    with embed_images(image_folder, model) as third:
        # A new content is computed, a new name is not.
        assert third.computed == 1
        names = [item.name for item in third.items]
        np.testing.assert_array_equal(third.vectors()[names.index("benign/zzz.jpg")], before[1])


def test_icons_on_a_transparent_ground_differ_and_old_vectors_of_them_are_not_used(tmp_path: Path, model) -> None:
    """Black drawings: all that differs is where they are transparent."""
    (tmp_path / "icons" / "a").mkdir(parents=True)
    for i in range(3):
        icon = np.zeros((32, 32, 4), dtype=np.uint8)
        icon[4 : 12 + 6 * i, 8:24, 3] = 255
        Image.fromarray(icon).save(tmp_path / "icons" / "a" / f"{i}.png")
    Image.fromarray(np.full((8, 8, 3), 90, dtype=np.uint8)).save(tmp_path / "icons" / "a" / "plain.png")
    np.savez(tmp_path / "arrays.npz", train_images=icon[None], train_labels=[0])
    before = replace(model, preprocessing=replace(model.preprocessing, alpha="dropped"))
    with embed_images(tmp_path / "icons", before) as old:
        assert old.computed == 4
        hidden = old.vectors()
        assert len(np.unique(hidden[:3], axis=0)) == 1
    # The cache of before serves what has no alpha, and nothing else.
    with embed_images(tmp_path / "icons", model) as new:
        assert new.computed == 3
        seen = new.vectors()
        assert len(np.unique(seen[:3], axis=0)) == 3
        np.testing.assert_array_equal(seen[3], hidden[3])
        assert new.info.preprocessing != before.info.preprocessing
    # A release of before still gets what it demands.
    with embed_images(tmp_path / "icons", before) as again:
        assert again.computed == 0
        np.testing.assert_array_equal(again.vectors(), hidden)
    with embed_images(tmp_path / "icons", model) as twice:
        assert twice.computed == 0
        np.testing.assert_array_equal(twice.vectors(), seen)
    assert backbone_for(before.info).preprocessing.alpha == "dropped"
    assert backbone_for(model.info).preprocessing.alpha == "white"
    # In an array as in a file.
    for contract, expected in ((before, hidden), (model, seen)):
        with embed_images(tmp_path / "arrays.npz", contract) as arrays:
            assert arrays.computed == 1
            np.testing.assert_array_equal(arrays.vectors()[0], expected[2])


def test_the_cache_lies_beside_the_images_for_the_owner_alone(image_folder: Path, model) -> None:
    with embed_images(image_folder, model):
        pass
    folder = image_folder.parent / ".locum"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "vectors.sqlite").stat().st_mode) == 0o600
    assert b"scan0" not in (folder / "vectors.sqlite").read_bytes()


def test_no_cache_leaves_nothing(image_folder: Path, model) -> None:
    before = sorted(image_folder.parent.iterdir())
    with embed_images(image_folder, model, cache=False) as done:
        assert done.vectors().shape == (10, 1280)
        assert sorted(image_folder.parent.iterdir()) == before


def test_a_strip_is_left_out_before_it_eats_the_memory(image_folder: Path, model) -> None:
    shorter = replace(model, preprocessing=replace(model.preprocessing, resize=224, crop=(224, 224)))
    Image.new("L", (1_000_000, 1)).save(image_folder / "benign" / "strip.png")
    with embed_images(image_folder, shorter, cache=False) as done:
        assert done.problems == (("benign/strip.png", "too long for its width (1000000 x 1)"),)
    with embed_images(image_folder, model, cache=False) as done:
        assert done.problems == ()


def messy(folder: Path, picture) -> None:
    """Whatever hospitals keep in folders."""
    good = picture(64, 48)
    jpeg = io.BytesIO()
    good.save(jpeg, "JPEG")
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    (folder / "a" / "truncated.jpg").write_bytes(jpeg.getvalue()[: len(jpeg.getvalue()) // 2])
    (folder / "a" / "zero.png").write_bytes(b"")
    (folder / "a" / "really-a-jpeg.png").write_bytes(jpeg.getvalue())
    (folder / "a" / "text.jpg").write_text("Dear Mr Miller, your results are")
    picture(1, 1).save(folder / "a" / "one-pixel.png")
    good.convert("CMYK").save(folder / "b" / "cmyk.jpg")
    good.convert("P").save(folder / "b" / "palette.png")
    deep = (np.arange(64 * 48, dtype=np.uint32) * 20).astype(np.uint16).reshape(48, 64)
    Image.fromarray(deep).save(folder / "b" / "deep.png")
    Image.fromarray(deep).save(folder / "b" / "deep.tiff")
    frames = [picture(64, 48) for _ in range(3)]
    frames[0].save(folder / "b" / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "b" / "moving.webp", save_all=True, append_images=frames[1:])
    good.convert("RGBA").save(folder / "b" / "alpha.png")
    good.convert("1").save(folder / "b" / "bits.tif")


def test_a_messy_folder_ends_well(tmp_path: Path, model, picture) -> None:
    messy(tmp_path / "images", picture)
    with embed_images(tmp_path / "images", model) as done:
        problems = dict(done.problems)
        assert problems == {"a/truncated.jpg": "cut off", "a/zero.png": "empty file", "a/text.jpg": "not an image"}
        assert len(done.items) == 10
        assert np.isfinite(done.vectors()).all()
        assert done.sets()["all"].counts.tolist() == [2, 8]


def test_strict_stops_without_naming_the_file(tmp_path: Path, model, picture) -> None:
    messy(tmp_path / "images", picture)
    with pytest.raises(StrictError) as told:
        embed_images(tmp_path / "images", model, strict=True)
    assert "text.jpg" not in str(told.value)
    assert told.value.name.startswith("a/")


def test_nothing_readable_is_an_error(tmp_path: Path, model) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match="No image can be read"):
        embed_images(tmp_path / "images", model)


def test_a_table_with_people_and_missing_files(image_folder: Path, model) -> None:
    (image_folder / "t.csv").write_text(
        "path,label,subject,attr_site\nbenign/scan0.png,b,p1,x\nbenign/gone.png,b,p2,x\nmalignant/scan0.png,m,p1,y\n"
    )
    with embed_images(image_folder / "t.csv", model) as done:
        assert done.problems == (("benign/gone.png", "missing"),)
        data = done.sets()["all"]
    assert data.subject.tolist() == ["p1", "p1"]
    assert data.attributes["site"].tolist() == ["x", "y"]


def test_images_without_classes_can_be_embedded_but_not_written(tmp_path: Path, model, picture) -> None:
    (tmp_path / "flat").mkdir()
    picture().save(tmp_path / "flat" / "0.png")
    with embed_images(tmp_path / "flat", model) as done:
        assert done.vectors().shape == (1, 1280)
        assert not done.labeled
        with pytest.raises(DataError, match="no classes"):
            done.sets()


def test_dicom_patients_become_subjects(tmp_path: Path, model) -> None:
    pytest.importorskip("pydicom", reason="the extra `dicom` is not installed")
    (tmp_path / "scans" / "a").mkdir(parents=True)
    for name, patient in (
        ("1.dcm", "MILLER-7"),
        ("2.dcm", "MILLER-7"),
        ("1.2.840.3", "SMITH-1"),
        ("wrong.png", "SMITH-1"),
    ):
        (tmp_path / "scans" / "a" / name).write_bytes(dicom(patient, fill=len(name)))
    with embed_images(tmp_path / "scans", model) as done:
        assert done.problems == ()
        subject = dict(zip([i.name for i in done.items], done.sets()["all"].subject.tolist(), strict=True))
    assert subject["a/1.dcm"] == subject["a/2.dcm"] != subject["a/1.2.840.3"] == subject["a/wrong.png"]
    assert not any("MILLER" in s or "SMITH" in s for s in subject.values())
    assert stat.S_IMODE((tmp_path / ".locum" / "subject.key").stat().st_mode) == 0o600


def test_a_file_without_a_patient_counts_as_one_of_its_own(tmp_path: Path, model) -> None:
    pytest.importorskip("pydicom", reason="the extra `dicom` is not installed")
    (tmp_path / "scans" / "a").mkdir(parents=True)
    for name, patient in (("1.dcm", "MILLER-7"), ("2.dcm", None), ("3.dcm", None)):
        (tmp_path / "scans" / "a" / name).write_bytes(dicom(patient, fill=int(name[0])))
    with embed_images(tmp_path / "scans", model) as done:
        assert len(set(done.sets()["all"].subject.tolist())) == 3


def dicom(patient: str | None, fill: int) -> bytes:
    """The smallest gray DICOM file."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = "1.2.3"
    file = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    file.Rows = file.Columns = 8
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation = 15, 0
    if patient is not None:
        file.PatientID = patient
    file.PixelData = (np.arange(64, dtype=np.uint16) * fill).tobytes()
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
