"""Columns by their names."""

from __future__ import annotations

import pytest

from locum.data.formats.tables import find_roles, guess_label
from locum.errors import DataError


def test_every_role_at_once() -> None:
    roles = find_roles(["a", "Target", "SUBJECT", "split", "attr_sex", "b"], "f")
    assert (roles.label, roles.subject, roles.split) == ("Target", "SUBJECT", "split")
    assert roles.attributes == {"sex": "attr_sex"}
    assert roles.rest == ("a", "b")


@pytest.mark.parametrize("name", ["patients", "subject_id", "PatientID", "patient-no", "Patient Name", "the_patient"])
def test_undeclared_persons_are_asked_about(name: str) -> None:
    with pytest.raises(DataError, match="whom a record belongs to"):
        find_roles(["a", name, "y"], "f")


@pytest.mark.parametrize(
    "name", ["inpatient_days", "patient_age", "subjective_pain", "outpatient", "attr_patient_nr"]
)
def test_other_names_are_not(name: str) -> None:
    assert find_roles(["a", name, "y"], "f").subject is None


def test_the_last_column_is_taken_only_where_it_can_be_a_label() -> None:
    def guess(*names: str) -> str | None:
        return guess_label(find_roles(names, "f"), names, "f").label

    assert guess("a", "b", "outcome") == "outcome"
    assert guess("x0", "x1", "stage2") == "stage2"
    assert guess("y", "b", "outcome") == "y"
    for names in (("x0", "x1"), ("a", "b", "attr_c"), ("a", "b", "split"), ("outcome", "attr_a"), ("0", "1", "2")):
        with pytest.raises(DataError, match="no labels"):
            guess(*names)
