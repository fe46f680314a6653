"""Which names of columns say whose a record is."""

from __future__ import annotations

import pytest

from locum.types import seems_subject


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("patient", True),
        ("Subject_ID", True),
        ("patient_nbr", True),
        ("study subject no", True),
        ("MRN", True),
        ("person_id", True),
        ("patients", True),
        ("outpatient", False),
        ("impatient_number", False),
        ("patient_age", False),
        ("subjective", False),
        ("salesperson", False),
    ],
)
def test_names_of_subjects(name: str, does: bool) -> None:
    assert seems_subject(name) is does
