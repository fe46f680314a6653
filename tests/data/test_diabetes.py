"""UCI Diabetes 130-US hospitals: patients under the name by which verbs know them, and damaged tables."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from locum.data import read_diabetes
from locum.errors import DataError
from locum.recipes.obfuscate_data import read_rows

NUMBERS = (
    "admission_type_id,discharge_disposition_id,admission_source_id,time_in_hospital,num_lab_procedures,"
    "num_procedures,num_medications,number_outpatient,number_emergency,number_inpatient,number_diagnoses"
)
HEADER = f"encounter_id,patient_nbr,race,{NUMBERS},readmitted"
ROWS = [f"{i},{70 + i // 2},?,{','.join(str(i + j) for j in range(11))},{'NO' if i else '<30'}" for i in range(4)]
TEXT = "\n".join([HEADER, *ROWS]) + "\n"


@pytest.mark.parametrize("name", ["diabetic_data.csv", "diabetic_data.csv.gz"])
def test_a_file_and_its_folder_are_the_same(tmp_path: Path, name: str) -> None:
    raw = TEXT.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    table = read_diabetes(tmp_path)
    assert table.equals(read_diabetes(tmp_path / name))
    assert table["patient"].tolist() == ["70", "70", "71", "71"]
    assert "encounter_id" not in table.columns
    assert table["number_diagnoses"].tolist() == [10, 11, 12, 13]
    assert table["race"].tolist() == ["?"] * 4
    assert table["readmitted"].tolist() == ["<30", "NO", "NO", "NO"]
    assert read_rows(str(tmp_path))["all"].equals(table)
    assert read_rows(str(tmp_path), limit=2)["all"].equals(table[:2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("patient_nbr", "patient_number"), "no column 'patient_nbr'"),
        (TEXT.replace(",5,6,7,", ",5,six,7,"), "must hold whole numbers"),
        (HEADER + "\n", "no encounters"),
        ("", "damaged"),
    ],
)
def test_another_table_is_an_error(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "diabetic_data.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        read_diabetes(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no diabetic_data\.csv"):
        read_diabetes(tmp_path)


def test_the_real_table(real_data: Callable[[str], Path]) -> None:
    table = read_diabetes(real_data("diabetes130"))
    assert (len(table), table["patient"].nunique()) == (101_766, 71_518)
