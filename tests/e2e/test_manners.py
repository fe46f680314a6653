"""The program's manners: help that fits, settings and their order, quiet, verbose, completion, Ctrl-C, the bar."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from locum.cli.program import VERBS, command

Run = Callable[..., Any]

PLAN = ("plan", "--n-public", "2000", "--json")


def verbs() -> list[list[str]]:
    """Every verb and every group of verbs, as words."""

    def walk(group: click.Command, words: list[str]) -> list[list[str]]:
        if not isinstance(group, click.Group):
            return [words]
        ctx = click.Context(group)
        found = [walk(inner, [*words, n]) for n in group.list_commands(ctx) if (inner := group.get_command(ctx, n))]
        return [words, *(w for part in found for w in part)]

    return walk(command(), [])


def test_help_of_every_verb_fits_in_80_columns_and_leaves_nothing_out(
    program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in verbs():
        shown = program(*words, "--help")
        assert shown.code == 0
        assert max(map(len, shown.out.splitlines())) <= 80, words
        assert "…" not in shown.out, words
        group: click.Command | None = command()
        for word in words:
            assert isinstance(group, click.Group)
            group = group.get_command(click.Context(group), word)
        assert group is not None
        for param in group.params:
            if isinstance(param, click.Option):
                assert param.help, (words, param.name)
                assert param.opts[0] in shown.out, (words, param.name)


def test_help_has_headings(program: Run) -> None:
    shown = program("fit", "--help").out
    places = [shown.index(title) for title in ("What to fit", "Privacy", "The check", "Where to write", "Output")]
    assert places == sorted(places)
    listed = program("--help").out
    assert all(f"  {name} " in listed for name in VERBS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fti", "x"], "There is no verb 'fti'. Did you mean fit? See `locum --help`."),
        (["ledger", "shwo"], "Did you mean show?"),
        (["fit"], "Missing argument 'DATA'. See `locum fit --help`."),
        (["plan", "--epsilon", "x"], "'x' is not a valid float."),
        (["plan", "--epsilonn", "1"], "No such option"),
        (["plan", "--quiet", "--verbose"], "cannot be combined"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], told: str, program: Run) -> None:
    ran = program(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert told in ran.err
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1


def test_settings_by_command_line_then_environment_then_file(
    program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def epsilon(*more: str) -> float:
        asked: float = program(*PLAN, *more).json["epsilon_spent"]
        return asked

    assert 0.9 < epsilon() <= 1
    (tmp_path / "locum.toml").write_text("[plan]\nepsilon = 2\n")
    assert 1.9 < epsilon() <= 2
    monkeypatch.setenv("LOCUM_PLAN_EPSILON", "3")
    assert 2.9 < epsilon() <= 3
    assert 3.9 < epsilon("--epsilon", "4") <= 4


def test_what_comes_from_settings_is_said(program: Run, tmp_path: Path) -> None:
    (tmp_path / "locum.toml").write_text(
        '[plan]\nepsilon = 2\nn-public = 500\n[ledger.set-budget]\nunit = "subject"\n'
    )
    ran = program("plan", "--json")
    assert ran.json["epsilon_spent"] <= 2
    assert "from the settings file: --epsilon, --n-public" in ran.err
    ran = program("ledger", "set-budget", "--ledger", "b.sqlite", "--epsilon", "1", "--delta", "1e-6", "--json")
    assert ran.json["holdings"][0]["unit"] == "subject"


def test_a_list_in_the_file_is_one_option(program: Run, tmp_path: Path, files: dict[str, Path]) -> None:
    (tmp_path / "locum.toml").write_text('[fit]\nclasses = ["a", "b"]\nepsilon = 1\ndelta = 1e-6\nn-public = 100\n')
    ran = program("fit", files["train"], "-o", "r")
    assert ran.code == 2
    assert "'a'" in ran.err
    assert "'b'" in ran.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[plan]\nepsilonn = 1\n", "not an option here"),
        ("[plans]\nepsilon = 1\n", "one table per verb"),
        ("epsilon = 1\n", "one table per verb"),
        ("[plan\n", "not valid TOML"),
        ('[plan]\nepsilon = "much"\n', "not a valid float"),
        ("[plan]\nas_json = true\n", "cannot be set in"),
    ],
)
def test_a_wrong_settings_file_is_one_sentence(text: str, told: str, program: Run, tmp_path: Path) -> None:
    (tmp_path / "locum.toml").write_text(text)
    ran = program("plan", "--n-public", "2000")
    assert ran.code == 2
    assert told in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_a_mistyped_variable_is_not_ignored(program: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCUM_PLAN_EPSILONN", "1")
    ran = program(*PLAN)
    assert ran.code == 2
    assert "LOCUM_PLAN_EPSILONN" in ran.err


def test_consent_cannot_come_from_settings(program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = ("ledger", "set-budget", "--ledger", "b.sqlite", "--delta", "1e-6")
    assert program(*budget, "--epsilon", "1").code == 0
    (tmp_path / "locum.toml").write_text("[ledger.set-budget]\nyes = true\n")
    assert "type --yes" in program(*budget, "--epsilon", "2").err
    (tmp_path / "locum.toml").unlink()
    monkeypatch.setenv("LOCUM_LEDGER_SET_BUDGET_YES", "1")
    ran = program(*budget, "--epsilon", "2")
    assert ran.code == 2
    assert "type --yes" in ran.err
    monkeypatch.delenv("LOCUM_LEDGER_SET_BUDGET_YES")
    assert program("ledger", "show", "--ledger", "b.sqlite", "--json").json["holdings"][0]["budget"]["epsilon"] == 1


def test_another_settings_file(program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text("[plan]\nepsilon = 2\n")
    monkeypatch.setenv("LOCUM_CONFIG", "mine.toml")
    assert program(*PLAN).json["epsilon_spent"] > 1.9
    monkeypatch.setenv("LOCUM_CONFIG", "other.toml")
    assert "There is no settings file 'other.toml'" in program(*PLAN).err


def test_quiet_prints_nothing_but_data(program: Run, files: dict[str, Path]) -> None:
    ran = program("fit", files["train"], "-o", "r", "--no-dp", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert program("verify", "r", "-q", "--json").json["fingerprint"]
    ran = program("sample", "nowhere", "-n", "3", "-o", "s.npz", "-q")
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert program("verify", "r").out, "the next call is not quiet"


def test_verbose_logs_what_is_done_without_file_names(program: Run, files: dict[str, Path]) -> None:
    ran = program("fit", files["train"], "-o", "r", "--no-dp", "--verbose")
    assert ran.code == 0
    assert "records" in ran.err
    assert "fitting ClassGaussian" in ran.err
    assert "wrote a folder" in ran.err
    assert files["train"].stem not in ran.err
    assert program("fit", files["train"], "-o", "r2", "--no-dp").err == ""


def completed(words: str, number: int, folder: Path) -> list[str]:
    environment = {"_LOCUM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    run = subprocess.run(
        [sys.executable, "-m", "locum"],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return run.stdout.split()


def test_completion_knows_verbs_options_and_values(tmp_path: Path, program: Run) -> None:
    assert completed("locum fi", 1, tmp_path) == ["fit"]
    assert completed("locum ledger b", 2, tmp_path) == ["backup"]
    # Data that are not there yet do not disturb it.
    assert completed("locum fit nowhere --gen", 3, tmp_path) == ["--generator"]
    assert completed("locum fit nowhere --generator cv", 4, tmp_path) == ["cvae"]
    assert "--install-completion" in program("--help").out


def long_fit(folder: Path, data: Path) -> subprocess.Popen[str]:
    settings = ["--generator", "cvae", "--epochs", "1000000", "--no-resume", "--verbose"]
    words = ["fit", str(data), "-o", "r", "--no-dp", *settings]
    return subprocess.Popen(
        [sys.executable, "-m", "locum", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def stopped(process: subprocess.Popen[str], number: int) -> Ended:
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    # Python ends by the signal itself if it came inside `exec`; shells show 128 + number for both.
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ended(code, out, err)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see what a process has loaded")
@pytest.mark.parametrize(
    "loaded", ["python", "_multiarray_umath", pytest.param("libtorch_cpu", marks=pytest.mark.slow)]
)
def test_ctrl_c_while_starting_ends_in_one_line(loaded: str, tmp_path: Path, files: dict[str, Path]) -> None:
    process = long_fit(tmp_path, files["train"])
    # Past Python's own start: our module is being imported or run.
    end = time.monotonic() + 60
    while time.monotonic() < end:
        handled = (Path("/proc") / str(process.pid) / "status").read_text()
        caught = int(handled.split("SigCgt:\t")[1].split()[0], 16)
        if caught >> (signal.SIGTERM - 1) & 1 and loaded in Path(f"/proc/{process.pid}/maps").read_text():
            break
        time.sleep(0.005)
    ran = stopped(process, signal.SIGINT)
    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "stopped"
    assert "Traceback" not in ran.err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_while_working_ends_in_one_line(number: int, tmp_path: Path, files: dict[str, Path]) -> None:
    process = long_fit(tmp_path, files["train"])
    assert process.stderr is not None
    while "fitting" not in process.stderr.readline():
        pass
    time.sleep(0.3)
    ran = stopped(process, number)
    assert ran.code == 128 + number
    assert ran.err.splitlines() == ["stopped"]
    assert ran.out == ""
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_finished_bar_ends_its_line(tmp_path: Path, files: dict[str, Path]) -> None:
    import pty

    shown = b""

    def read(fd: int) -> bytes:
        nonlocal shown
        data = os.read(fd, 4096)
        shown += data
        return data

    words = ["fit", str(files["train"]), "-o", str(tmp_path / "r"), "--no-dp", "--generator", "cvae", "--epochs", "2"]
    pty.spawn([sys.executable, "-m", "locum", *words], read)
    assert b"2/2" in shown
    _, _, rest = shown.rpartition(b"2/2")
    # The bar's line is ended, then cleared, before the first word of the result.
    assert b"\r\n" in rest.partition(b"release ")[0] or b"\x1b[2K" in rest.partition(b"release ")[0]


def test_doctor_does_not_call_what_is_missing_fine(program: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCUM_DATA", raising=False)
    (line,) = (line for line in program("doctor").out.splitlines() if "not set" in line)
    assert line.split()[0] == "-"
