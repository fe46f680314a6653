"""A look before a fit: what it counts, what it keeps private, and that it says what a release really holds."""

from __future__ import annotations

import csv
import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.recipes import fit_release, survey_data
from locum.recipes.survey import DataSurvey


def noise(rng: np.random.Generator, size: tuple[int, int] = (20, 16)) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, size=size, dtype=np.uint8))


@pytest.fixture
def scans(tmp_path: Path, rng: np.random.Generator) -> Path:
    """30 images of two classes in two splits: one is broken, one a copy within its split, one between splits."""
    root = tmp_path / "scans"
    for split, count in (("train", 10), ("test", 5)):
        for label in ("benign", "malignant"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                noise(rng).save(folder / f"MILLER-{i}.png")
    broken = root / "train" / "benign" / "MILLER-3.png"
    broken.write_bytes(broken.read_bytes()[:-30])
    train, test = root / "train", root / "test"
    # The same pixels in another kind of file are a copy too.
    Image.open(train / "benign" / "MILLER-0.png").save(train / "malignant" / "MILLER-1.bmp")
    shutil.copy(train / "malignant" / "MILLER-2.png", test / "malignant" / "SMITH.png")
    (root / "notes.txt").write_text("MILLER")
    return root


def table(path: str | None) -> list[dict[str, str]]:
    assert path is not None
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def sentences(found: DataSurvey) -> str:
    return " ".join((*found.refused, *found.problems, *found.public, *found.private))


def test_a_folder_of_images(scans: Path) -> None:
    calls: list[tuple[int, int]] = []
    found = survey_data(str(scans), progress=lambda done, total, note="": calls.append((done, total)))
    assert (found.kind, found.records, found.splits) == ("images", 31, {"train": 20, "test": 11})
    assert (found.backbone, found.features, found.fit_split, found.unit) == ("efflite0", 1280, "train", "record")
    assert found.image_sizes == ({"width": 16, "height": 20, "images": 31},)
    assert [(one["name"], one["records"], one["fit_records"]) for one in found.classes] == [
        ("benign", 14, 9),
        ("malignant", 17, 11),
    ]
    assert found.subjects is None
    assert (found.unreadable["count"], found.ignored, found.unchecked) == (1, 1, 0)
    assert sum(found.unreadable["reasons"].values()) == 1
    assert [row["image"] for row in table(found.unreadable["file"])] == ["train/benign/MILLER-3.png"]
    copies = found.duplicates
    assert (copies["within"], copies["between"], copies["other_label"]) == (1, 1, 1)
    assert [(row["image"], row["equals_image"], row["label"]) for row in table(copies["file"])] == [
        ("train/malignant/MILLER-1.bmp", "train/benign/MILLER-0.png", "other"),
        ("test/malignant/SMITH.png", "train/malignant/MILLER-2.png", "same"),
    ]
    assert calls[-1] == (32, 32)
    # Names of files are in the private lists alone.
    assert "MILLER" not in json.dumps(found.to_dict())
    assert "SMITH" not in json.dumps(found.to_dict())


def test_lists_that_are_no_longer_true_go(scans: Path) -> None:
    first = survey_data(str(scans))
    (scans / "train" / "benign" / "MILLER-3.png").unlink()
    (scans / "train" / "malignant" / "MILLER-1.bmp").unlink()
    (scans / "test" / "malignant" / "SMITH.png").unlink()
    second = survey_data(str(scans))
    assert second.unreadable == {"count": 0, "reasons": {}, "file": None}
    assert second.duplicates == {"within": 0, "between": 0, "other_label": 0, "file": None}
    assert not Path(first.unreadable["file"]).exists()
    assert not Path(first.duplicates["file"]).exists()


def test_what_it_says_is_refused_is_what_a_fit_refuses(scans: Path, tmp_path: Path) -> None:
    found = survey_data(str(scans))
    with pytest.raises(DataError) as told:
        fit_release(str(scans), tmp_path / "out", classes_public=True)
    assert str(told.value) == found.refused[0]
    assert "2 of the 2 classes" in found.refused[1]
    assert len(found.refused) == 2


def test_one_split_and_a_table_of_images_with_subjects(scans: Path) -> None:
    rows = [(file, file.parent.name) for file in sorted((scans / "train").rglob("*.png"))]
    listing = scans.parent / "scans.csv"
    with listing.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "subject", "split", "attr_sex"])
        for i, (file, label) in enumerate(rows):
            part = "train" if i % 2 else "test"
            writer.writerow([file.relative_to(scans.parent), label, f"p{i // 4}", part, "FM"[i % 2]])
    found = survey_data(str(listing))
    assert found.unit == "subject"
    assert found.subjects is not None
    people = -(-len(rows) // 4)
    assert (found.subjects["count"], found.subjects["most"]) == (people, 4)
    assert found.subjects["in_several_splits"] == people
    assert any("several splits" in said for said in found.problems)
    assert [(one["name"], one["values"]) for one in found.attributes] == [("sex", 2)]
    assert all(one["subjects"] >= one["fit_units"] > 0 for one in found.classes)
    only = survey_data(f"{listing}#train")
    assert list(only.splits) == ["train"]
    with pytest.raises(DataError, match="no split 'val'"):
        survey_data(f"{listing}#val")


def test_odd_folders_are_said_and_not_raised(tmp_path: Path, rng: np.random.Generator) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    assert survey_data(str(flat)).kind == "unknown"
    assert "holds no image" in survey_data(str(flat)).refused[0]
    for i in range(3):
        noise(rng).save(flat / f"{i}.png")
    found = survey_data(str(flat))
    assert (found.records, found.classes) == (3, ())
    assert any("no classes" in said for said in found.refused)
    (flat / "cat").mkdir()
    noise(rng).save(flat / "cat" / "1.png")
    assert "outside its class folders" in survey_data(str(flat)).refused[0]
    broken = tmp_path / "broken" / "a"
    broken.mkdir(parents=True)
    (broken / "1.png").write_bytes(b"no")
    none = survey_data(str(broken.parent))
    assert (none.records, none.unreadable["count"]) == (0, 1)
    assert none.refused


def test_a_folder_per_patient_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    for i in range(51):
        folder = tmp_path / "scans" / f"patient-{i}"
        folder.mkdir(parents=True)
        noise(rng, (2, 2)).save(folder / "1.png")
    assert any("more than 50" in said for said in survey_data(str(tmp_path / "scans")).refused)


def vectors(rng: np.random.Generator, n: int = 200, **more: object) -> EmbeddingSet:
    labels = np.array(["ant", "bee"])[np.arange(n) % 2]
    return EmbeddingSet.from_arrays(rng.normal(size=(n, 6)), labels, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".safetensors", ".csv"])
def test_files_of_vectors(suffix: str, tmp_path: Path, rng: np.random.Generator) -> None:
    data = vectors(rng, subject=[f"p{i // 3}" for i in range(200)], attributes={"site": np.arange(200) // 190})
    data = data.take([*range(200), 0])
    path = tmp_path / f"data{suffix}"
    write_embeddings(path, data)
    calls: list[tuple[int, int]] = []
    found = survey_data(str(path), progress=lambda done, total, note="": calls.append((done, total)))
    assert (found.kind, found.records, found.features, found.unit) == ("vectors", 201, 6, "subject")
    assert found.subjects == {"count": 67, "median": 3.0, "most": 4, "in_several_splits": 0}
    assert (found.duplicates["within"], found.duplicates["between"]) == (1, 0)
    assert table(found.duplicates["file"])[0]["equals_row"] == "0"
    assert found.attributes[0]["values"] == 2
    assert "fewer than 20 subjects" in found.attributes[0]["refused"]
    assert found.refused == ()
    assert calls[-1][0] == calls[-1][1]


def test_a_table_of_mixed_columns(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,job,label\n20,cook,a\n30,nurse,b\n20,cook,a\n")
    found = survey_data(str(path))
    assert (found.kind, found.records, found.features) == ("table", 3, 3)
    assert found.duplicates["within"] == 1
    assert {one["name"]: one["values"] for one in found.attributes} == {"age": 2, "job": 2, "label": 2}
    assert "job" in found.refused[0]
    assert found.public == ()
    (tmp_path / "bad.npz").write_bytes(b"PK no")
    assert survey_data(str(tmp_path / "bad.npz")).kind == "unknown"


def test_what_is_an_error(tmp_path: Path, rng: np.random.Generator) -> None:
    write_embeddings(tmp_path / "data.npz", vectors(rng))
    with pytest.raises(DataError, match="There is no"):
        survey_data(str(tmp_path / "nowhere.npz"))
    with pytest.raises(DataError, match="no split 'test'"):
        survey_data(f"{tmp_path / 'data.npz'}#test")
    with pytest.raises(ConfigError, match="--backbone"):
        survey_data(str(tmp_path / "data.npz"), backbone="efflite0")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="not a kind of file"):
        survey_data(str(tmp_path / "notes.txt"))


def numbers(document: object) -> set[float]:
    """Every number in a JSON document."""
    if isinstance(document, dict | list):
        inner = document.values() if isinstance(document, dict) else document
        return set().union(*map(numbers, inner))
    return {document} if isinstance(document, int | float) else set()


def test_the_lists_agree_with_a_real_release(tmp_path: Path, rng: np.random.Generator) -> None:
    """What it calls public is in the manifest; what it calls private is not."""
    data = vectors(rng, 777, subject=[f"MILLER-{i}" for i in range(777)], attributes={"wardname": ["ICU-7"] * 777})
    path = tmp_path / "MILLER.npz"
    write_embeddings(path, data)
    before = survey_data(str(path))
    assert before.refused == ()
    assert (before.ledger["exists"], before.ledger["holdings"]) == (False, [])
    out = tmp_path / "out"
    fit_release(str(path), out, classes_public=True)
    text = (out / "manifest.json").read_text() + (out / "README.md").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    told = " ".join(before.public)
    assert ", ".join(manifest["class_names"]) in told
    assert f"number of features of a vector: {manifest['embedding']['dim']}" in told
    assert f"one {manifest['claim']['unit']} each" in told
    for secret in ("MILLER", "ICU-7", "wardname", str(tmp_path)):
        assert secret not in text
    # As numbers: digits alone can occur in a hash.
    assert not numbers(manifest) & {777, *(one["records"] for one in before.classes)}
    assert "777" in " ".join(before.private)
    assert "MILLER" not in sentences(before)
    # Every part of a manifest that depends on the holder has its sentence.
    assert manifest.keys() == {
        "format", "schema_version", "kind", "files", "written_by", "generator", "settings", "embedding", "classes",
        "class_names", "conditions", "joint", "space", "decoder", "claim",
    }  # fmt: skip
    after = survey_data(str(path))
    assert after.ledger["exists"]
    assert after.ledger["holdings"][0]["left"]["epsilon"] < 0.001
    assert any("Nothing is left" in said for said in after.problems)


def test_a_lost_ledger_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "data.npz"
    write_embeddings(path, vectors(rng))
    fit_release(str(path), tmp_path / "out", classes_public=True)
    Path(survey_data(str(path)).ledger["file"]).unlink()
    refused = survey_data(str(path)).refused
    assert any("what was spent would be forgotten" in said for said in refused)
    with pytest.raises(PrivacyError) as told:
        fit_release(str(path), tmp_path / "second", classes_public=True)
    assert str(told.value) in refused


@pytest.mark.parametrize(("name", "within", "between"), [("breastmnist", 0, 1), ("nih_cxr14", 1, 0)])
def test_real_images_with_a_known_copy(real_data: Path, tmp_path: Path, name: str, within: int, between: int) -> None:
    # Its lists lie beside the data, which are not ours.
    path = tmp_path / f"{name}.npz"
    path.symlink_to(shutil.copy(real_data / f"{name}.npz", tmp_path / "copy.npz"))
    found = survey_data(str(path))
    assert (found.duplicates["within"], found.duplicates["between"]) == (within, between)
    assert (found.unreadable["count"], found.unchecked) == (0, 0)
    assert found.records == sum(found.splits.values()) == sum(one["records"] for one in found.classes)
    assert found.refused == ()
    assert (found.unit == "subject") == (name == "nih_cxr14")
