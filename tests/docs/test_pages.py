"""Tutorials are notebooks with one form; the gallery shows every example; pages keep to the width of a screen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
sys.path.insert(0, str(DOCS / "_build_steps"))

from gallery import MARK, examples, gallery, read_example  # noqa: E402


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_a_tutorial_is_a_notebook_that_says_for_whom_and_what_next(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n")
    assert "```{code-cell}" in text
    assert "```console" not in text, "use a cell, which the docs build runs"
    opening = " ".join(text.split("\n## ")[0].split())
    assert "*For " in opening, "say for whom it is"
    assert "At the end" in opening, "say what the reader will have"
    assert "take" in opening, "say how long it takes"
    assert "\n## What next\n" in text


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [f"{i}: {line}" for i, line in enumerate(lines, 1) if len(line) > 100 and not line.startswith("|")]
    assert not long, "\n".join(long)


def test_every_tutorial_is_listed() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert {f"tutorials/{page.stem}" for page in TUTORIALS} <= set(index.split())
    assert "gallery" in index.split()


def test_the_gallery_shows_every_example() -> None:
    assert MARK in (DOCS / "gallery.md").read_text(encoding="utf-8")
    scripts = sorted((ROOT / "examples").glob("*.py"))
    found = examples(ROOT / "examples")
    assert [e.path for e in found] == scripts
    assert len({e.title for e in found}) == len(scripts)
    page = gallery(ROOT / "examples")
    for example in found:
        assert f"## {example.title}\n" in page
        assert f"literalinclude}} ../examples/{example.path.name}" in page
        assert len(example.path.read_text(encoding="utf-8").splitlines()) <= 80
    data = {p.name for p in (ROOT / "examples").iterdir() if p.is_file() and p.suffix != ".py"}
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert not [name for name in data if f"examples/{name}" not in text]


def test_an_example_that_cannot_run_here_says_why(tmp_path: Path) -> None:
    script = tmp_path / "far_away.py"
    script.write_text('"""Far away: what it shows.\n\npython examples/far_away.py\n"""\nimport no_such_package_x\n')
    example = read_example(script)
    assert (example.title, example.text) == ("Far away", "What it shows.")
    page = gallery(tmp_path)
    assert "It needs `no_such_package_x`" in page
    assert "code-cell" not in page
    script.write_text("import numpy\n")
    with pytest.raises(ValueError, match="docstring"):
        gallery(tmp_path)
