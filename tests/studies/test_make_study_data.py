"""`scripts/make_study_data.py` on small made originals, and on real ones turned back into their original form."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from locum.data import read_splits

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_study_data.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_study_data", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    (tmp_path / "originals").mkdir()
    return tmp_path / "originals"


def zip_of(file: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)


def test_real_tables_come_out_as_they_are(
    script: ModuleType, originals: Path, tmp_path: Path, real_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    zip_of(originals / "adult.zip", {f.name: f.read_bytes() for f in sorted((real_data / "adult").iterdir())})
    table = gzip.decompress((real_data / "diabetes130" / "diabetic_data.csv.gz").read_bytes())
    codes = (real_data / "diabetes130" / "IDs_mapping.csv").read_bytes()
    zip_of(originals / "diabetes130.zip", {"diabetic_data.csv": table, "dataset/IDS_mapping.csv": codes})
    # As UCI writes them: numbers with a point in one file, '?' for what is missing.
    hospitals: dict[str, list[str]] = {}
    for row in list(csv.reader(io.StringIO((real_data / "heart4.csv").read_text())))[1:]:
        point = row[0] == "cleveland"
        cells = ["?" if c == "" else str(float(c)) if point else c for c in row[1:]]
        hospitals.setdefault(row[0], []).append(",".join(cells))
    members = {f"processed.{site}.data": "\n".join(lines).encode() for site, lines in hospitals.items()}
    zip_of(originals / "heart-disease.zip", members)
    for name in ("adult", "diabetes130", "heart4"):
        assert script.main([name, "--originals", str(originals), "-o", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 6
    assert all(" agrees" in line for line in told)


def test_medmnist_comes_out_as_it_is(
    script: ModuleType, originals: Path, tmp_path: Path, real_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(real_data / "breastmnist.npz", allow_pickle=False) as arrays:
        columns = {k: v[:, None] if k.endswith("_labels") else v for k, v in arrays.items()}
    np.savez(originals / "breastmnist.npz", **columns)
    assert script.main(["breastmnist", "--originals", str(originals), "-o", str(tmp_path)]) == 0
    assert " agrees" in capsys.readouterr().out


@pytest.fixture
def cifar(originals: Path, rng: np.random.Generator) -> np.ndarray:
    """Eight training and four test images per class, in an archive; the first pixel tells them apart."""
    labels = np.tile(np.arange(10, dtype=np.uint8), 12)
    rows = [bytes([label]) + rng.integers(0, 256, 3072, dtype=np.uint8).tobytes() for label in labels]
    parts = {"data_batch_1.bin": rows[:40], "data_batch_2.bin": rows[40:80], "test_batch.bin": rows[80:]}
    names = "\n".join("airplane automobile bird cat deer dog frog horse ship truck".split())  # noqa: SIM905
    with tarfile.open(originals / "cifar-10-binary.tar.gz", "w:gz") as archive:
        members = {**{n: b"".join(r) for n, r in parts.items()}, "batches.meta.txt": names.encode()}
        for name, raw in members.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return np.array([np.frombuffer(row[1:], np.uint8).reshape(3, 32, 32) for row in rows]).transpose(0, 2, 3, 1)


def test_cifar_is_drawn_by_class(script: ModuleType, originals: Path, cifar: np.ndarray) -> None:
    with script.cifar(originals) as source:
        found = script.drawn(source, {"train": [3] * 10, "test": [4] * 10}, seed=0)
        again = script.drawn(source, {"train": [3] * 10, "test": [4] * 10}, seed=0)
        other = script.drawn(source, {"train": [3] * 10, "test": [4] * 10}, seed=1)
    assert np.array_equal(found["train_labels"], np.repeat(np.arange(10), 3))
    assert found["test_images"].shape == (40, 32, 32, 3)
    known = {image.tobytes(): i for i, image in enumerate(cifar)}
    rows = [known[image.tobytes()] for image in found["train_images"]]
    assert len(set(rows)) == 30
    assert all(row < 80 and row % 10 == label for row, label in zip(rows, found["train_labels"], strict=True))
    assert np.array_equal(found["train_images"], again["train_images"])
    assert not np.array_equal(found["train_images"], other["train_images"])


def test_a_long_tail_is_drawn_and_embedded(
    script: ModuleType, originals: Path, tmp_path: Path, cifar: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LARGEST": 8, "RATIO": 8, "TEST_IMAGES": 1}.items():
        monkeypatch.setattr(script, name, value)
    assert script.main(["cifar10lt", "--originals", str(originals), "-o", str(tmp_path / "out")]) == 0
    found = read_splits(tmp_path / "out" / "cifar10lt_efflite0.npz")
    # 8 * (1 / 8) ** (i / 9), rounded down; 1 may come out as 0.999...
    assert np.bincount(found["train"].y)[:9].tolist() == [8, 6, 5, 4, 3, 2, 2, 1, 1]
    assert np.bincount(found["test"].y).tolist() == [1] * 10
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["cifar10lt_efflite0.npz"]


def test_a_class_with_too_few_images_is_an_error(
    script: ModuleType, originals: Path, tmp_path: Path, cifar: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["cifar10_12k", "--originals", str(originals), "-o", str(tmp_path / "out")]) == 2
    assert "8 train images of airplane where 1000 are needed" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_xrays_are_split_by_patient_and_embedded(
    script: ModuleType, originals: Path, tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
    lines = [header]
    (originals / "images_001" / "images").mkdir(parents=True)
    for i in range(20):
        name = f"{i:08d}_000.png"
        findings = "Effusion|Hernia" if i % 2 else "No Finding"
        lines.append(f"{name},{findings},0,{i // 2},0{40 + i}Y,{'MF'[i // 2 % 2]},PA")
        if i < 18:
            pixels = rng.integers(0, 256, (40, 40), dtype=np.uint8)
            Image.fromarray(pixels).save(originals / "images_001" / "images" / name)
    (originals / "Data_Entry_2017.csv").write_text("\n".join(lines))
    out = tmp_path / "out"
    assert script.main(["nih_cxr14", "--originals", str(originals), "-o", str(out)]) == 0
    with np.load(out / "nih_cxr14.npz") as images, np.load(out / "nih_cxr14_findings.npz") as findings:
        splits = ("train", "val", "test")
        who = [set(images[f"{split}_subject"].tolist()) for split in splits]
        assert [len(part) for part in who] == [6, 1, 2]
        assert len(set.union(*who)) == 9
        assert sum(len(images[f"{split}_images"]) for split in splits) == 18
        assert images["train_images"].shape == (12, 64, 64)
        sex = images["class_names"][images["train_labels"]].tolist()
        assert sex == ["MF"[int(patient) % 2] for patient in images["train_subject"]]
        # Each patient has one image with an effusion and a hernia, and one without.
        assert findings["train_findings"].sum(axis=0).tolist() == [
            6 * (n in ("Effusion", "Hernia")) for n in script.FINDINGS
        ]
        assert (images["train_attr_effusion"] == "yes").tolist() == findings["train_findings"][:, 2].astype(
            bool
        ).tolist()
    capsys.readouterr()
    assert script.main(["nih_cxr14_efflite0", "-o", str(out)]) == 0
    assert "other contents" in capsys.readouterr().out
    train = read_splits(out / "nih_cxr14_efflite0.npz")["train"]
    assert train.X.shape == (12, 1280)
    assert train.info.class_names == ("F", "M")
    assert train.subject is not None
    assert len(set(train.subject.tolist())) == 6
    with np.load(out / "nih_cxr14_efflite0.npz") as arrays:
        assert arrays["train_x"].dtype == np.float16


def test_embeddings_are_those_of_the_studies(script: ModuleType, tmp_path: Path, real_data: Path) -> None:
    with np.load(real_data / "breastmnist.npz", allow_pickle=False) as arrays:
        few = {k: v[:6] for k, v in arrays.items() if k.startswith("test_")}
    np.savez(tmp_path / "few.npz", **few)
    script.embed(tmp_path / "few.npz", tmp_path / "vectors.npz")
    ours = read_splits(tmp_path / "vectors.npz")["test"].X
    theirs = read_splits(real_data / "breastmnist_efflite0.npz")["test"].X[:6]
    assert np.abs(ours - theirs).max() < 0.01 * np.abs(theirs).max()


def test_an_original_that_is_not_there_is_named(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["adult", "--originals", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    assert "adult.zip" in capsys.readouterr().err
