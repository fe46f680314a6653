"""Real patients with several records each: guarantees, attacks, splits and copies."""

from __future__ import annotations

from pat_diabetes import diabetes_cells, diabetes_minutes, render_diabetes
from pat_duplicates import duplicate_cells, duplicate_minutes, render_duplicates
from pat_nih import nih_cells, nih_minutes, render_nih

from locum.recipes import Study

OWN = "It needs what these sets have: patients with several records, and images beside their vectors."

STUDIES: dict[str, Study] = {
    "patients": Study(
        "Chest X-rays of real patients: per image or per patient", nih_cells, render_nih, nih_minutes, sets=OWN
    ),
    "patients-diabetes": Study(
        "Encounters of real patients: per encounter or per patient",
        diabetes_cells,
        render_diabetes,
        diabetes_minutes,
        sets=OWN,
    ),
    "patients-duplicates": Study(
        "Copies of records", duplicate_cells, render_duplicates, duplicate_minutes, sets=OWN
    ),
}
