"""The table of UCI Diabetes 130-US hospitals: encounters of patients, many of whom came more than once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from locum.errors import DataError
from locum.io import reading_file

if TYPE_CHECKING:
    import pandas as pd


DIABETES_FILES = ("diabetic_data.csv", "diabetic_data.csv.gz")
_PATIENT, _ENCOUNTER = "patient_nbr", "encounter_id"
_NUMBERS = (
    "admission_type_id", "discharge_disposition_id", "admission_source_id", "time_in_hospital", "num_lab_procedures",
    "num_procedures", "num_medications", "number_outpatient", "number_emergency", "number_inpatient",
    "number_diagnoses",
)  # fmt: skip


def read_diabetes(path: str | os.PathLike[str]) -> pd.DataFrame:
    r"""All encounters of UCI Diabetes 130-US hospitals: eleven columns of numbers (int64), the others of text.

    The column `patient_nbr` is called `patient` here, the name by which verbs know whose a record is. The number of
    the encounter, which tells each record apart, is left out. What is missing stays the text "?", as UCI writes it.

    Parameters
    ----------
    path
        `diabetic_data.csv`, also compressed with gzip, or the folder that holds it.

    Returns
    -------
    pandas.DataFrame
        One row per encounter, in the order of the file.

    Raises
    ------
    DataError
        If the file is missing, damaged or another table. It quotes no cell.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import read_diabetes
    >>> names = ("encounter_id", "patient_nbr", "admission_type_id", "discharge_disposition_id")
    >>> names = (*names, "admission_source_id")
    >>> more = ("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient")
    >>> last = ("number_emergency", "number_inpatient", "number_diagnoses", "readmitted")
    >>> lines = [",".join((*names, *more, *last)), "1,77,1,1,7,3,59,0,18,0,0,0,9,NO"]
    >>> _ = Path("diabetic_data.csv").write_text("\n".join(lines))
    >>> read_diabetes("diabetic_data.csv")[["patient", "time_in_hospital", "readmitted"]].values.tolist()
    [['77', 3, 'NO']]
    """
    import pandas as pd

    place, name = Path(path), os.fspath(path)
    if place.is_dir():
        place = next((place / file for file in DIABETES_FILES if (place / file).is_file()), place)
    if not place.is_file():
        raise DataError(f"{name} holds no diabetic_data.csv: give UCI's table, or its folder.")
    with reading_file(name, "the table of UCI Diabetes 130-US hospitals"):
        frame = pd.read_csv(place, dtype=str, keep_default_na=False)
    if lacking := [column for column in (_PATIENT, _ENCOUNTER, *_NUMBERS) if column not in frame.columns]:
        raise DataError(f"{name} has no column {lacking[0]!r}: give the table as UCI distributes it.")
    if not len(frame):
        raise DataError(f"{name} holds no encounters: fetch the table again.")
    for column in _NUMBERS:
        # Short enough for int64.
        if not frame[column].str.fullmatch(r"\d{1,18}").all():
            raise DataError(f"Column {column!r} of {name} must hold whole numbers: give the table as UCI has it.")
    typed = frame.astype(dict.fromkeys(_NUMBERS, "int64"))
    return typed.drop(columns=_ENCOUNTER).rename(columns={_PATIENT: "patient"})
