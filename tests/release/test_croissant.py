"""croissant.json against the validator of its makers: no error, and no warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locum.recipes import write_passport


def test_license_and_citation_are_honest(folder: Path) -> None:
    write_passport(folder)
    about = json.loads((folder / "croissant.json").read_text())
    # An identifier that machines know, and the sentence where people read it.
    assert about["license"] == "NOASSERTION"
    assert about["description"].endswith("No license is stated: ask the data holder for the terms of use.")
    assert about["citeAs"].count("{") == about["citeAs"].count("}")
    assert about["citeAs"].startswith("@misc{")


def test_the_oracle_finds_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="needs mlcroissant, of the extra dev")
    write_passport(folder)
    found = mlcroissant.Dataset(str(folder / "croissant.json"))
    issues = found.metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings
    assert "not standard" not in caplog.text
    assert [row["classes/name"] for row in found.records("classes")] == ["ant", "bee", "cat"]
