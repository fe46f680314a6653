"""Pages of the docs: short lines, an end, every fault of the papers, attacks that exist. And `scripts/prose.py`."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from locum.audit import ATTACKS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md"))
FAULT = re.compile(r"\bfaults? (F\d+)\b|\((F\d+)\)|\((F\d+), ")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_short_lines(name: str, prose: ModuleType) -> None:
    assert prose.long_lines(page(name)) == []


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith(("explain/", "guides/"))])
def test_a_page_says_where_to_go_next(name: str) -> None:
    assert page(name).split("\n## ")[-1].startswith("Where to go next\n")


def test_every_fault_that_is_cited_is_explained() -> None:
    listed = set(re.findall(r"^\| \[?(F\d+)\b", page("explain/faults-of-the-papers.md"), flags=re.MULTILINE))
    assert listed == {f"F{number}" for number in range(1, len(listed) + 1)}
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("studies/**/*.md"), *ROOT.glob("docs/**/*.md")]
    cited = {
        one for file in files for found in FAULT.findall(file.read_text(encoding="utf-8")) for one in found if one
    }
    assert len(cited) > 10
    assert cited <= listed


def test_attacks_that_pages_name_exist() -> None:
    rows = re.findall(r"^\| (?:\*\*|membership \().*$", page("explain/standards.md"), flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(rows) == 4
    assert set(named) <= set(ATTACKS)
    assert f"`locum audit` runs up to {len(ATTACKS)}." in " ".join(page("explain/threat-model.md").split())


def test_code_and_quotations_are_not_prose(prose: ModuleType) -> None:
    text = 'Run `very` now.\n\n```console\n$ very\n```\n\nHe said "very\nvery" here. [A page](very.md).\nThe end.'
    found = prose.prose(text)
    assert "very" not in found
    assert found.split("\n")[-1] == "The end."
    assert len(found.split("\n")) == len(text.split("\n"))


def test_long_lines_of_prose_are_found(prose: ModuleType) -> None:
    long = "word " * 21
    assert prose.long_lines(f"short\n{long}\n| {long} |\n```text\n{long}\n```\n{long}") == [(2, 105), (7, 105)]
