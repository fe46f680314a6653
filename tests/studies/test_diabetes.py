"""The study of readmissions: codes in groups, patients on one side only, and small cells that run."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from locum.errors import DataError
from locum.obfuscate import ATTACKERS, evaluation
from locum.obfuscate.judges import TreesJudge
from locum.recipes import FoundStudy, StudyResults, find_studies

ROOT = Path(__file__).parents[2] / "studies"
COLUMNS = (
    "encounter_id,patient_nbr,race,gender,age,admission_type_id,discharge_disposition_id,admission_source_id,"
    "time_in_hospital,medical_specialty,num_lab_procedures,num_procedures,num_medications,number_outpatient,"
    "number_emergency,number_inpatient,diag_1,diag_2,number_diagnoses,max_glu_serum,A1Cresult,metformin,insulin,"
    "change,diabetesMed,readmitted"
)


@pytest.fixture(scope="module")
def study() -> FoundStudy:
    return find_studies(ROOT)["diabetes-curves"]


def rows_module() -> ModuleType:
    return sys.modules["diab_rows"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: FoundStudy) -> Path:
    """400 encounters of 150 patients in UCI's layout; more medications where they come back."""
    rng, lines = np.random.default_rng(0), [COLUMNS]
    sexes, ages = rng.choice(["Male", "Female"], 150), rng.integers(2, 10, 150)
    for i in range(400):
        who, back = int(rng.integers(150)), bool(rng.integers(2))
        drawn = rng.integers(1, 6, 8)
        drugs = 10 + 8 * back + int(rng.integers(4))
        code = rng.choice(["250.83", "414", "?", "V57", "650", "493"])
        lines.append(
            f"{i},{who},Caucasian,{sexes[who]},[{10 * ages[who]}-{10 * ages[who] + 10}),{drawn[0]},1,7,{drawn[1]},"
            f"Cardiology,{drawn[2]},{drawn[3]},{drugs},0,{drawn[4]},{drawn[5]},{code},{code},{drawn[6]},None,>8,No,Up,"
            f"Ch,Yes,{rng.choice(['<30', '>30']) if back else 'NO'}"
        )
    # One who died, and one whose sex is not known: neither counts.
    died = lines[1].split(",")
    died[6] = "11"
    unknown = lines[2].split(",")
    unknown[3] = "Unknown/Invalid"
    lines += [",".join(died), ",".join(unknown)]
    (tmp_path / "diabetes130").mkdir()
    (tmp_path / "diabetes130/diabetic_data.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    rows, run = rows_module(), sys.modules["locum_study_diabetes"]
    for cached in (rows.encounters, rows.dealt, run.originals):
        cached.cache_clear()


def test_codes_of_pregnancy_tell_no_sex_and_others_have_their_chapter(study: FoundStudy) -> None:
    chapter = rows_module().chapter
    told = {code: chapter(code) for code in ("250", "250.83", "414", "785", "650", "E909", "?", "486", "998.59")}
    assert told == {
        "250": "diabetes", "250.83": "diabetes", "414": "circulatory", "785": "circulatory", "650": "other",
        "E909": "other", "?": "none", "486": "respiratory", "998.59": "injury",
    }  # fmt: skip


def test_no_patient_is_on_both_sides_and_nothing_private_is_released(data: Path) -> None:
    table = rows_module().encounters()
    assert len(table) == 400
    dealt = rows_module().Dealt(1, 1000, 1000)
    train, test = (set(table["patient"].iloc[places]) for places in dealt.places)
    assert train
    assert test
    assert not train & test
    assert len(dealt.places[0]) + len(dealt.places[1]) == 400
    assert len(dealt.codec.columns) == 20
    assert not {"sex", "age", "patient", "readmitted"} & set(dealt.codec.columns)
    both, _ = dealt.labeled("sex and age")
    assert (both.private == 3 * dealt.codes["sex"][0] + dealt.codes["age"][0]).all()


def test_small_cells_have_every_attacker_and_advantages_are_by_hand(
    study: FoundStudy, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "TreesJudge", lambda: TreesJudge(5))
    few: dict[str, Any] = {"rows": 250, "judge_rows": 200, "test_rows": 80, "ours_epochs": 1, "paper_epochs": 1}
    few |= {"baseline_epochs": 1, "ours_noises": [1], "paper_noises": [1], "methods": ["ours", "paper", "gaussian"]}
    config = {**study.settings(quick=True), **few}
    raw: dict[str, Any] = {name: {"1": dict(cell(1))} for name, cell in study.study.cells(config).items()}
    wanted = {f"1/{p} {role}" for p in ("sex", "age") for role in ATTACKERS} | {"1/utility", "1/released"}
    assert set(raw["ours"]["1"]) == wanted
    # Medications tell who comes back.
    assert raw["original"]["1"]["utility"] > 0.8
    # Gaussian noise of 0 hides nothing.
    assert raw["gaussian"]["1"]["0/utility"] == raw["original"]["1"]["utility"]
    run = sys.modules["locum_study_diabetes"]
    for private in ("sex", "age"):
        raw["original"]["1"] |= {private: 0.8, f"{private} informed": 0.9, f"{private} label only": 0.5}
        raw["ours"]["1"] |= {f"1/{private} {role}": 0.55 for role in ATTACKERS}
    raw["ours"]["1"] |= {"1/age informed": 0.6, "1/utility": 0.7}
    results = StudyResults(raw, config, quick=True)
    assert run.advantage(results, "ours", "1", "age") == pytest.approx([0.25])
    assert run.kept(results, "ours", 0.3).value == 0.7
    assert run.kept(results, "ours", 0.2) is None
    # The triangle to the release, and what lies between it and the corner (0.9, 0.85).
    raw["original"]["1"]["utility"] = 0.85
    assert run.areas(results, "ours", "age") == pytest.approx([0.6 * 0.7 / 2 + 0.3 * (0.7 + 0.85) / 2])
    text = study.study.render(results, tmp_path)
    assert all(run.NAMES[m] in text for m in few["methods"])


def test_without_the_file_the_study_says_what_it_needs(
    study: FoundStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path))
    _forget()
    with pytest.raises(DataError, match=r"diabetes130/diabetic_data.csv.gz.*UCI"):
        study.study.cells(study.settings(quick=True))["original"](1)
