"""The verb `data` through the program: what it prints, and its exit codes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest of one file, and LOCUM_DATA with that file."""
    monkeypatch.setenv("LOCUM_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "studies").mkdir()
    (tmp_path / "data" / "heart.csv").write_text("age\n3\n")
    digest = hashlib.sha256(b"age\n3\n").hexdigest()
    texts = "".join(f'{key} = "-"\n' for key in ("what", "license", "source", "made"))
    file = f'[[heart.files]]\npath = "heart.csv"\nbytes = 6\nsha256 = "{digest}"\n'
    (tmp_path / "studies" / "data.toml").write_text(
        f'[heart]\n{texts}studies = ["federated"]\noriginals = []\n{file}'
    )
    return tmp_path


def test_list_and_check(program: Run, manifest: Path) -> None:
    listed = program("data", "list")
    assert listed.code == 0
    assert "heart" in listed.out
    assert "federated" in listed.out
    assert program("data", "list", "--json", "--folder", manifest).json[0]["present"] == "no"
    good = program("data", "check", "heart")
    assert (good.code, good.out) == (0, "heart.csv agrees.\n")
    (manifest / "data" / "heart.csv").write_text("age\n4\n")
    bad = program("data", "check")
    assert bad.code == 1
    assert "has the SHA-256" in bad.out
    told = program("data", "check", "--json")
    assert (told.code, told.json["right"], told.json["files"][0]["state"]) == (1, False, "differs")
    assert program("data", "check", "--quiet").out == ""


def test_mistakes_have_code_2(program: Run, manifest: Path) -> None:
    for words in (("check", "liver"), ("check", "--folder", "nowhere"), ("list", "--studies", "nowhere")):
        ran = program("data", *words)
        assert ran.code == 2
        assert ran.err.startswith("error: ")
        assert len(ran.err.splitlines()) == 1


def test_fetch(program: Run, manifest: Path) -> None:
    address = (manifest / "data" / "heart.csv").as_uri()
    (manifest / "sources.toml").write_text(f'[heart]\nurl = "{address}"\n')
    ran = program("data", "fetch", "heart", "--from", "sources.toml", "-o", "new")
    assert ran.code == 0, ran.err
    assert "not checked: no hash was given" in ran.out
    assert (manifest / "new" / "heart.csv").read_text() == "age\n3\n"
    again = program("data", "fetch", "heart", "--from", "sources.toml", "-o", "new")
    assert again.code == 2
    assert "--force" in again.err
    assert (
        program("data", "fetch", "heart", "--from", "sources.toml", "-o", "new", "--force", "--json").json["bytes"]
        == 6
    )
    assert program("data", "fetch", "heart", "--from", "nothing.toml", "-o", "new").code == 2
    assert program("data", "fetch", "heart", "-o", "new").code == 2
