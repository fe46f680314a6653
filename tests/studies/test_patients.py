"""The studies of real patients on made records: what is a record's, what is a patient's, and what is a copy."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from locum.accounting import attack_limit, plan_head
from locum.audit import Scores
from locum.errors import DataError
from locum.recipes import FoundStudy, find_studies, run_study
from locum.types import DP, EmbeddingSet

ROOT = Path(__file__).parents[2] / "studies"
PATIENTS, WIDTH = 80, 1280
NUMBERS = {
    "time_in_hospital": 14, "num_lab_procedures": 100, "num_procedures": 6, "num_medications": 50,
    "number_outpatient": 5, "number_emergency": 5, "number_inpatient": 5, "number_diagnoses": 9,
}  # fmt: skip


@pytest.fixture(scope="module")
def studies() -> dict[str, FoundStudy]:
    """Loading them also makes their modules known."""
    return find_studies(ROOT)


def module(name: str) -> ModuleType:
    return sys.modules[name]


def made_images(rng: np.random.Generator, first: int, patients: int) -> dict[str, np.ndarray]:
    """From one to ten images of each patient, alike within a patient; sex is the patient's."""
    sizes = np.resize([1, 1, 2, 3, 6, 10], patients)
    owner = np.repeat(np.arange(patients), sizes)
    faces, sex = rng.normal(size=(patients, WIDTH)), np.arange(patients) % 2
    X = faces[owner] + 0.5 * rng.normal(size=(len(owner), WIDTH)) + 0.05 * sex[owner, None]
    pixels = np.clip(128 + 30 * X[:, :64], 0, 255).astype(np.uint8).reshape(-1, 8, 8)
    return {
        "x": X.astype(np.float32),
        "y": sex[owner],
        "subject": np.array([f"p{first + p}" for p in owner]),
        "attr_effusion": np.where(X[:, 0] > 0, "yes", "no"),
        "images": pixels,
    }


def made_encounters(rng: np.random.Generator, patients: int) -> str:
    """UCI's table with random encounters, from one to four per patient."""
    constant = {"race": "Other", "age": "[50-60)", "admission_type_id": 1, "discharge_disposition_id": 1}
    constant |= {"admission_source_id": 7}
    domain = module("pat_diabetes").domain()
    rows = []
    for patient in range(patients):
        for _ in range(1 + patient % 4):
            row = {c.name: getattr(c, "values", ("0",))[0] for c in domain.columns} | constant
            row |= {name: int(rng.integers(1, top)) for name, top in NUMBERS.items()}
            row |= {"gender": ("Female", "Male")[patient % 2], "patient_nbr": 1000 + patient}
            row |= {"readmitted": rng.choice(["NO", "<30", ">30"], p=[0.5, 0.2, 0.3]), "encounter_id": len(rows)}
            rows.append(row)
    names = list(rows[0])
    return "\n".join([",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, studies: dict[str, FoundStudy]) -> Iterator[Path]:
    """Small files under the names of the real ones."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    vectors: dict[str, np.ndarray] = {}
    images: dict[str, np.ndarray] = {}
    for number, part in enumerate(("train", "val", "test")):
        found = made_images(rng, 1000 * number, PATIENTS if part == "train" else 24)
        images[f"{part}_images"] = found.pop("images")
        images[f"{part}_labels"] = found["y"]
        vectors |= {f"{part}_{key}": value for key, value in found.items()}
    # Two equal images within train; one of train in test, brighter and with more contrast.
    images["train_images"][3] = images["train_images"][0]
    images["test_images"][0] = images["train_images"][5] // 2 + 20
    np.savez(folder / "nih_cxr14_efflite0.npz", **vectors)
    np.savez(folder / "nih_cxr14.npz", **images)
    (folder / "diabetes130").mkdir()
    (folder / "diabetes130" / "diabetic_data.csv.gz").write_bytes(gzip.compress(made_encounters(rng, 160).encode()))
    caches = [
        module("pat_nih").images, module("pat_nih").everyone, module("pat_diabetes").encounters,
        module("pat_diabetes").divided, module("pat_diabetes").vectors, module("pat_duplicates").pixels,
        module("pat_duplicates").vectors, module("pat_duplicates").near, module("pat_duplicates").near_within,
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCUM_DATA", str(folder))
        for function in caches:
            function.cache_clear()
        yield folder
        for function in caches:
            function.cache_clear()


def patients_of(sizes: list[int], first: int) -> EmbeddingSet:
    owner = np.repeat(np.arange(len(sizes)) + first, sizes)
    return EmbeddingSet(np.arange(2.0 * len(owner)).reshape(-1, 2) + first, owner % 2, subject=owner)


def test_many_weak_hints_are_one_strong_one_about_a_patient(studies: dict[str, FoundStudy]) -> None:
    rng, sizes = np.random.default_rng(0), [1] * 100 + [16] * 100
    inside, outside = patients_of(sizes, 0), patients_of(sizes, 1000)
    # Each record of a member is moved by a third of a deviation, and all scores lie far from 0.
    scores = Scores(rng.normal(7 + 1 / 3, 1, len(inside)), rng.normal(7, 1, len(outside)))
    found = module("pat_attacks").found_by(scores, inside, outside, 0)
    assert 0.5 < found["record/auc"] < 0.7
    # Sixteen of them move the sum by four thirds of its deviation: Phi(4 / 3 / sqrt 2) = 0.83.
    assert found["patient/10+/auc"] == pytest.approx(0.83, abs=0.06)
    assert found["patient/1/auc"] == pytest.approx(0.59, abs=0.1)
    assert found["patient/10+/patients"] == 200


def test_the_number_of_records_alone_gives_no_patient_away(studies: dict[str, FoundStudy]) -> None:
    rng = np.random.default_rng(1)
    inside, outside = patients_of([1] * 50 + [9] * 150, 0), patients_of([1] * 50 + [9] * 150, 1000)
    scores = Scores(rng.normal(5, 1, len(inside)), rng.normal(5, 1, len(outside)))
    found = module("pat_attacks").found_by(scores, inside, outside, 0)
    assert found["patient/auc"] == pytest.approx(0.5, abs=0.08)
    assert found["patient/verdict"] != "leak"


def test_the_limit_of_one_record_is_the_plans_and_grows_with_a_group(studies: dict[str, FoundStudy]) -> None:
    limit = module("pat_attacks").limit
    assert limit(1.0, 1e-5, 1) == attack_limit(plan_head(DP(1.0, 1e-5)).events)
    several = [limit(1.0, 1e-5, n) for n in (1, 2, 5, 20)]
    assert several == sorted(several)
    assert several[-1] > 0.95


def test_a_split_by_patient_shares_none_and_one_by_record_does(made: Path) -> None:
    data = module("pat_nih").images("train")
    for by, shares in (("patient", False), ("record", True)):
        inside, outside = module("pat_attacks").halves(data, by, 0)
        assert len(inside) + len(outside) == len(data)
        assert bool(np.intersect1d(inside.subject, outside.subject).size) is shares


def test_an_audit_that_knows_the_patients_refuses_them_on_both_sides(made: Path) -> None:
    patients = module("pat_attacks")
    inside, outside = patients.halves(module("pat_nih").images("train"), "record", 0)
    release = patients.released("5-same", inside, 1e-5, "none", 0)
    with pytest.raises(DataError, match="both members and non-members"):
        patients.attacks_on("5-same", 4, 0)[0].score(release, inside, outside, np.random.default_rng(0))


def test_patients_runs_and_says_what_is_where(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    found = studies["patients"].changed(["samples=300"])
    results = run_study(found, quick=True, out=tmp_path)
    text = (tmp_path / "patients.md").read_text()
    assert text.count("### ") == 5
    for words in (
        "epsilon 1 per record",
        "epsilon 1 per patient",
        "patients are on both sides",
        "sex (of a patient)",
    ):
        assert words in text
    # Images of a patient are alike: who has seen the patient knows the sex of the next image.
    by_image, by_patient = (results.runs(f"split/by {by}", "sex/nearest")[0] for by in ("record", "patient"))
    assert by_image > by_patient + 0.05
    assert results.runs("split/by patient", "known patients") == [0.0]


def test_encounters_are_divided_by_patient(made: Path, studies: dict[str, FoundStudy], tmp_path: Path) -> None:
    settings = ["patients=120", "delta=1e-4", "releases=['none', 'record-1']"]
    results = run_study(studies["patients-diabetes"].changed(settings), quick=True, out=tmp_path)
    assert results.runs("split/by patient", "known patients") == [0.0]
    assert results.runs("split/by record", "known patients")[0] > 0.5
    assert (tmp_path / "patients-diabetes.md").read_text().count("### ") == 5
    chosen = module("pat_diabetes").vectors(120, 0)
    counts = np.unique(chosen.subject, return_counts=True)[1]
    # 40 of the 160 have one encounter, and half of 120 are asked for.
    assert (counts == 1).sum() == 40
    assert (counts > 1).sum() == 60


def test_copies_are_counted_whatever_their_brightness(made: Path, studies: dict[str, FoundStudy]) -> None:
    config = studies["patients-duplicates"].settings(quick=True)
    found = module("pat_duplicates").counted(config, "nih_cxr14", 0)
    assert found["equal/within train"] == 1
    assert found["equal/test in train"] == 0
    assert found["0.99/test in train"] >= 1
    assert found["0.995/within train"] >= 2


def test_a_repeated_member_is_easier_to_find(made: Path, studies: dict[str, FoundStudy]) -> None:
    config = studies["patients-duplicates"].settings(quick=True) | {"members": 100, "planted": 20}
    once, often = (module("pat_duplicates").planted(config, "nih_cxr14", "none", n, 0) for n in (1, 20))
    assert often["likelihood ratio/repeated"] > once["likelihood ratio/repeated"] - 0.01
    assert often["likelihood ratio/repeated"] > 0.9


def test_the_page_quotes_the_committed_figures() -> None:
    page = (ROOT / "patients" / "README.md").read_text()
    files = sorted((ROOT / "patients" / "results").glob("*.md"))
    assert len(files) == 3
    # A gain is quoted without its sign.
    results = "".join(file.read_text() for file in files).replace("+", "")
    page = page.replace("+", "")
    quoted = re.findall(r"\d\.\d{3} \[[^\]]+\]", page)
    assert len(quoted) > 10
    assert [figure for figure in quoted if figure not in results] == []
