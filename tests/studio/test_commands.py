"""The command line that a page shows does what its job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from locum.cli.main import main
from locum.recipes import show_ledger
from locum.studio.actions import ACTIONS, Audit, Evaluate, Fit, Predict, Preview, SampleMap, Survey, Train


@dataclass
class Ran:
    code: int
    error: str


Shell = Callable[[str, Path], Ran]
# What stands in for `locum`: it tells its words, and on the second call gives back what the program said to them.
STAND_IN = """#!/bin/sh
cd "$(dirname "$0")"
if [ -e code ]; then cat said; exit "$(cat code)"; fi
printf '%s\\0' "$@" > words
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command line in a folder: a real shell reads it, and the program runs in this process."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "locum").write_text(STAND_IN)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)

    def read(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        return subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=60)

    def run(command: str, folder: Path) -> Ran:
        told = read(command, folder)
        if told.returncode or not (programs / "words").exists():
            return Ran(told.returncode, told.stderr)
        words = (programs / "words").read_text().split("\0")[:-1]
        monkeypatch.chdir(folder)
        monkeypatch.setattr("sys.argv", ["locum", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code, shown = int(ended.value.code or 0), capsys.readouterr()
        (programs / "said").write_text(shown.out)
        (programs / "code").write_text(str(code))
        assert read(command, folder).returncode == code
        for file in ("words", "said", "code"):
            (programs / file).unlink()
        return Ran(code, shown.err)

    return run


def quiet(*_: Any, **__: Any) -> None:
    pass


@pytest.mark.slow
def test_a_command_does_the_same_as_its_job(
    tmp_path: Path, shell: Shell, data_writer: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, release = 'it\'s my "data" $HOME;.npz', "-a release of 'mine'"
    told, done = tmp_path / "told", tmp_path / "done"
    for folder in (told, done):
        folder.mkdir()
        data_writer(folder / data)
    ledger, head = ".locum/ledger.sqlite", f"{release}-head.safetensors"
    actions = [
        Fit(
            data=f"{data}#train",
            out=release,
            classes=["ant", "bee"],
            epsilon=0.123456789,
            delta=1.23456789e-7,
            holding="-h",
        ),
        Train(release=release),
        Predict(head=head, data=f"{data}#test"),
        Evaluate(release=release, test=f"{data}#test", seeds=2),
        Audit(release=release, members=f"{data}#train", non_members=f"{data}#val", ledger=ledger, policy="internal"),
        SampleMap(release=release),
    ]
    for action in actions:
        answer = shell(action.command(), told)
        # 3: a policy is not met, which is an answer too.
        assert answer.code in (0, 3), (action.command(), answer.error)
        monkeypatch.chdir(done)
        action.run(quiet, quiet)
        names = [{p.name for p in folder.iterdir()} for folder in (told, done)]
        assert names[0] == names[1], action
    paid = [show_ledger(folder / ledger)["holdings"] for folder in (told, done)]
    for holdings in paid:
        assert [(h["name"], len(h["charges"])) for h in holdings] == [("-h", 1)]
        # The budget is the one that was asked for, to the last digit.
        assert holdings[0]["budget"] == {"epsilon": 0.123456789, "delta": 1.23456789e-7}
    assert paid[0][0]["spent"] == paid[1][0]["spent"]
    claims = [json.loads((folder / release / "manifest.json").read_bytes())["claim"] for folder in (told, done)]
    for claim in claims:
        claim["dp"].pop("ledger")
    assert claims[0] == claims[1]
    for ending in ("evaluation.json", "audit.json"):
        shapes = [sorted(json.loads((folder / f"{release}-{ending}").read_bytes())) for folder in (told, done)]
        assert shapes[0] == shapes[1]


def test_the_other_commands_run_too(tmp_path: Path, shell: Shell, data_writer: Callable[[Path], Path]) -> None:
    data_writer(tmp_path / "it's.npz")
    groups = {"no_dp": True, "generator": "ksame", "k": 5, "drop_duplicates": True, "non_members": "it's.npz#val"}
    private = {"unit": "record", "classes_public": True}
    for action in (
        Survey(data="it's.npz"),
        Preview(units=500, classes=["a", "b", "c"]),
        Fit(data="it's.npz#train", out="groups", **groups),
        Fit(data="it's.npz#train", out="private", **private),
    ):
        answer = shell(action.command(), tmp_path)
        assert answer.code == 0, (action.command(), answer.error)


@pytest.mark.parametrize("name", ["a,b", " a", "a ", "", ","])
def test_a_class_that_no_command_line_can_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Fit(data="d", out="o", classes=["good", name])
    assert Fit(data="d", out="o", classes=["a", "two words"]).words()[-1] == "a,two words"


def test_every_action_names_its_paths() -> None:
    """A field that is a path but is not listed would not be checked."""
    paths = {"data", "out", "non_members", "members", "release", "ledger", "test", "train", "head"}
    for action in ACTIONS.values():
        listed = {*action.READS, *action.WRITES}
        assert set(action.model_fields) & paths <= listed
        # What is not a field follows from one.
        assert all(name in action.model_fields or isinstance(getattr(action, name), property) for name in listed)
