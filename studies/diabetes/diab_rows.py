"""UCI Diabetes 130-US hospitals as a table of 20 columns, with codes grouped and patients kept apart."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import TableCodec
from locum.errors import DataError
from locum.obfuscate import Labeled
from locum.recipes.study import data_folder

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
FILE = "diabetes130/diabetic_data.csv.gz"
NUMBERS = (
    "time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient",
    "number_emergency", "number_inpatient", "number_diagnoses",
)  # fmt: skip
PLAIN = ("race", "A1Cresult", "metformin", "insulin", "change", "diabetesMed")
# Died, or went to a hospice: nobody of these can come back.
ENDED = (11, 13, 14, 19, 20, 21)
SPECIALTIES = (
    "?", "InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology", "Surgery-General",
    "Nephrology", "Orthopedics", "Radiologist", "Pulmonology", "Psychiatry",
)  # fmt: skip
# Last code of each chapter of ICD-9 that gets a group of its own; pregnancy would tell sex and is among the others.
CHAPTERS = {
    "circulatory": (390, 459, 785), "respiratory": (460, 519, 786), "digestive": (520, 579, 787),
    "injury": (800, 999, None), "musculoskeletal": (710, 739, None), "genitourinary": (580, 629, 788),
    "neoplasms": (140, 239, None), "mental": (290, 319, None), "skin": (680, 709, 782),
}  # fmt: skip
AGES = ("under 50", "50 to 69", "70 and over")


def chapter(code: str) -> str:
    """The group of an ICD-9 code.

    >>> chapter("250.83"), chapter("414"), chapter("V57"), chapter("?")
    ('diabetes', 'circulatory', 'other', 'none')
    """
    if code == "?":
        return "none"
    if not code[0].isdigit():
        return "other"
    number = int(float(code))
    if number == 250:
        return "diabetes"
    for name, (low, high, also) in CHAPTERS.items():
        if low <= number <= high or number == also:
            return name
    return "other"


def prepared(raw: pd.DataFrame) -> pd.DataFrame:
    """20 columns to release, and `readmitted`, `sex`, `age` and `patient` beside them."""
    import pandas as pd

    good = raw["gender"].isin(["Female", "Male"]) & ~raw["discharge_disposition_id"].astype(int).isin(ENDED)
    raw = raw[good]
    out = pd.DataFrame({name: raw[name].astype(int) for name in NUMBERS})
    for name in PLAIN:
        out[name] = raw[name].fillna("none").replace("?", "none").astype(str)
    admission = {1: "emergency", 2: "urgent", 3: "elective"}
    source = {7: "emergency room", 1: "referral", 2: "referral", 3: "referral"}
    out["admission"] = raw["admission_type_id"].astype(int).map(admission).fillna("other")
    out["source"] = raw["admission_source_id"].astype(int).map(source).fillna("other")
    home = raw["discharge_disposition_id"].astype(int).map({1: "home", 6: "home with help", 3: "nursing facility"})
    out["discharge"] = home.fillna("other")
    specialty = raw["medical_specialty"].astype(str)
    out["specialty"] = specialty.where(specialty.isin(SPECIALTIES), "other").replace("?", "none")
    for i in (1, 2):
        out[f"diagnosis {i}"] = [chapter(str(code)) for code in raw[f"diag_{i}"]]
    decade = raw["age"].str.extract(r"\[(\d+)-")[0].astype(int)
    return out.assign(
        readmitted=(raw["readmitted"] != "NO").astype(int),
        sex=(raw["gender"] == "Male").astype(int),
        age=np.digitize(decade, [50, 70]),
        patient=raw["patient_nbr"].to_numpy(),
    ).reset_index(drop=True)


@cache
def encounters() -> pd.DataFrame:
    """All encounters that count."""
    import pandas as pd

    path = Path(data_folder()) / FILE
    if not path.is_file():
        raise DataError(
            f"This study needs UCI Diabetes 130-US hospitals, and there is no file {FILE!r} in LOCUM_DATA: download "
            "the set (CC BY 4.0) from UCI's repository and compress diabetic_data.csv with gzip."
        )
    return prepared(pd.read_csv(path, dtype=str, keep_default_na=False))


class Dealt:
    """The encounters of one seed: those of a fifth of the patients to test on, of the others to learn from."""

    def __init__(self, seed: int, rows: int, test_rows: int) -> None:
        table, rng = encounters(), np.random.default_rng(seed)
        patients = rng.permutation(table["patient"].unique())
        held = table["patient"].isin(patients[: len(patients) // 5]).to_numpy()
        frame = table.drop(columns=["readmitted", "sex", "age", "patient"])
        # Categories and bounds of all rows are taken to be public.
        self.codec = TableCodec.fit(frame)
        self.places = [rng.permutation(np.flatnonzero(side))[:n] for side, n in ((~held, rows), (held, test_rows))]
        self.train_frame = frame.iloc[self.places[0]]
        self.codes = {n: [table[n].to_numpy(np.int64)[p] for p in self.places] for n in ("readmitted", "sex", "age")}
        self.matrices = [self.codec.encode(frame.iloc[p]) for p in self.places]

    def labeled(self, private: str) -> tuple[Labeled, Labeled]:
        """To learn from and to test on, with `sex`, `age` or both (`sex and age`) as what is private."""
        codes = (
            [3 * sex + age for sex, age in zip(self.codes["sex"], self.codes["age"], strict=True)]
            if private == "sex and age"
            else self.codes[private]
        )
        train, test = (
            Labeled(X, utility, hidden)
            for X, utility, hidden in zip(self.matrices, self.codes["readmitted"], codes, strict=True)
        )
        return train, test


@cache
def dealt(seed: int, rows: int, test_rows: int) -> Dealt:
    """One for all cells of a seed."""
    return Dealt(seed, rows, test_rows)
