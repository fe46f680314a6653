"""The extras are written down three times, for three readers: pip, `doctor`, and the error of a missing one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import locum
from locum.errors import EXTRAS
from locum.recipes import doctor

PROJECT = tomllib.loads((Path(locum.__file__).parents[2] / "pyproject.toml").read_text())["project"]


def distributions(requirements: list[str]) -> set[str]:
    """Names without versions, without our own extras."""
    names = {re.match(r"[A-Za-z0-9_-]+", requirement).group() for requirement in requirements}  # type: ignore[union-attr]
    return names - {"locum"}


def test_doctor_lists_what_pip_installs() -> None:
    listed = PROJECT["optional-dependencies"]
    assert distributions(PROJECT["dependencies"]) - {"click"} == set(doctor.CORE)
    for extra, (names, _) in doctor.EXTRAS.items():
        # Ray comes with Flower's own extra.
        assert distributions(listed[extra]) == ({"flwr"} if extra == "simulation" else set(names))


def test_an_error_names_an_extra_that_exists() -> None:
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])
    assert set(EXTRAS.values()) <= set(doctor.EXTRAS)
