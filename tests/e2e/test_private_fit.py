"""A private fit through the CLI: what it does by default, what must be given, what is paid, what is refused."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Ledger
from locum.data import write_embeddings
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON

CLASSES = ("--classes", "ant,bee,cat")
PROMISE = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", *CLASSES)
LEDGER = Path(".locum") / "ledger.sqlite"


def test_a_fit_is_private_unless_told_otherwise(program, files, tmp_path: Path) -> None:
    ran = program("fit", "train.npz", "-o", "r", *CLASSES)
    assert ran.code == 0, ran.err
    claim = json.loads((tmp_path / "r" / "manifest.json").read_text())["claim"]
    assert (claim["kind"], claim["unit"], claim["assumptions"]) == ("dp", "record", [])
    assert 0.99 * DEFAULT_EPSILON < claim["dp"]["epsilon"] <= DEFAULT_EPSILON
    assert claim["dp"]["delta"] == DEFAULT_DELTA
    # Computed from the events, as anybody can: one Gaussian of noise sigma has the AUC Phi(1 / (sigma sqrt 2)).
    told = " ".join(ran.out.split())
    assert "no test of whether a given record took part has an AUC above 0.567" in told
    assert "the only release charged to this ledger" in told
    assert "budget nothing is left for 'default'" in told
    # These vectors have no public statistics, and what was measured is about vectors that have some.
    assert "no forecast for such a release" in told
    assert "No guarantee" not in ran.out
    assert "No guarantee" not in (tmp_path / "r" / "README.md").read_text()
    again = program("fit", "train.npz", "-o", "r2", *CLASSES)
    assert again.code == 2
    assert "left" in again.err


def test_the_limit_over_all_releases_grows_with_the_ledger(program, files, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / LEDGER)
    (tmp_path / ".locum").mkdir(exist_ok=True)
    ledger.set_budget("default", epsilon=3.0, delta=1e-5)
    first = program("fit", "train.npz", "-o", "r", *CLASSES, "--json").json
    second = program("fit", "train.npz", "-o", "r2", *CLASSES, "--json").json
    assert (first["limit"]["releases"], second["limit"]["releases"]) == (1, 2)
    assert (
        first["limit"]["joint_auc"] == first["limit"]["auc"] == second["limit"]["auc"] < second["limit"]["joint_auc"]
    )
    assert first["left"]["epsilon"] == pytest.approx(3 - first["claim"]["dp"]["epsilon"])
    assert second["left"]["epsilon"] < 1.1
    assert second["holding"] == "default"
    assert "with all 2 releases charged to this ledger" in second["limit"]["sentence"]


def test_subjects_are_the_unit_where_they_are_known(program, blob_set: EmbeddingSet, tmp_path: Path) -> None:
    data = EmbeddingSet(blob_set.X, blob_set.y, subject=np.arange(len(blob_set)) // 2, info=blob_set.info)
    write_embeddings(tmp_path / "d.npz", data)
    budget = ("--epsilon", "3", "--delta", "1e-5", "--unit", "subject")
    assert program("ledger", "set-budget", "d.npz", *budget).code == 0
    assert program("fit", "d.npz", "-o", "r", *CLASSES, "--json").json["claim"]["unit"] == "subject"
    # Epsilon alone changes nothing about that; an explicit unit does, and one ledger has one unit.
    other = program("fit", "d.npz", "-o", "r2", *CLASSES, "--epsilon", "0.5", "--json")
    assert other.json["claim"]["unit"] == "subject"
    told = program("fit", "d.npz", "-o", "r3", *CLASSES, "--unit", "record")
    assert told.code == 2
    assert "counts by subject" in told.err


def test_without_a_guarantee_the_first_line_says_so(program, files, tmp_path: Path) -> None:
    for name, words in {"r": (), "s": ("--generator", "ksame")}.items():
        ran = program("fit", "train.npz", "-o", name, "--no-dp", *words)
        assert ran.code == 0, ran.err
        assert ran.out.splitlines()[0] == "No guarantee: this release was made without differential privacy."
        assert "**No guarantee: this release was made" in (tmp_path / name / "README.md").read_text()
    assert not (tmp_path / LEDGER).exists()
    for name, words in {"r": "No formal guarantee", "s": "This is not differential privacy"}.items():
        assert program("report", name, "--share", "-o", f"{name}.html").code == 0
        assert words in (tmp_path / f"{name}.html").read_text()
        assert program("passport", name).code == 0
        assert words in (tmp_path / name / "passport.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("--epsilon", "1"),
        ("--delta", "1e-6"),
        ("--n-public", "200"),
        ("--unit", "record"),
        ("--relation", "add-or-remove"),
        CLASSES,
        ("--classes-public",),
        ("--holding", "default"),
        ("--ledger", "l.sqlite"),
        ("--duplicates-removed",),
        ("--mechanism", "means"),
        ("--reference", "none"),
    ],
    ids=lambda words: words[0],
)
def test_options_of_a_guarantee_contradict_its_absence(
    program, files, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = program("fit", "train.npz", "-o", "r", "--no-dp", *words)
    assert ran.code == 2
    assert f"{words[0]} belongs to a guarantee, which --no-dp rules out" in ran.err
    assert not (tmp_path / "r").exists()


def test_a_release_with_a_guarantee(program, files, tmp_path: Path) -> None:
    ran = program("fit", "train.npz", "-o", "r", *PROMISE)
    assert ran.code == 0, ran.err
    assert "dp (epsilon = " in ran.out
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    paid = manifest["claim"]["dp"]
    assert 0.9 < paid["epsilon"] <= 1
    with Ledger(tmp_path / LEDGER) as ledger:
        assert ledger.knows(paid["ledger"])
    assert program("verify", "r").code == 0
    again = program("fit", "train.npz", "-o", "r2", *PROMISE)
    assert again.code == 2
    assert "left" in again.err
    assert not (tmp_path / "r2").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--classes-public"),
        ((), "--classes A,B"),
        ((*CLASSES, "--classes-public"), "leave out `classes_public`"),
        ((*CLASSES, "--delta", "0.01"), "--delta 0.0001"),
        ((*PROMISE, "--delta", "0.01"), "1 / (10 n_public)"),
        ((*CLASSES, "--epsilon", "0"), "above 0"),
        (("--classes", "ant,bee"), "not among"),
        ((*CLASSES, "--unit", "subject"), "subject"),
        ((*CLASSES, "--generator", "ksame"), "add --no-dp"),
        ((*CLASSES, "--generator", "cvae"), "--n-public"),
        ((*CLASSES, "--generator", "cgan"), "--n-public"),
        ((*CLASSES, "--fail-on-leak"), "add --no-dp"),
    ],
)
def test_what_must_be_said_is_asked_for(program, files, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    ran = program("fit", "train.npz", "-o", "r", *words)
    assert ran.code == 2, ran.out
    assert told in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / LEDGER).exists()


def test_class_names_in_the_data_are_confirmed_as_public(program, files, tmp_path: Path) -> None:
    ran = program("fit", "train.npz", "-o", "r", "--classes-public")
    assert ran.code == 0, ran.err
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["class_names"] == ["ant", "bee", "cat"]
    assert manifest["claim"]["assumptions"][0].startswith("given that these class names are public")
    lines = ran.out.splitlines()
    claim = next(i for i, line in enumerate(lines) if line.startswith("claim "))
    assert lines[claim + 1].strip().startswith("holds given that these class names are public (they were")
    assert "given that these class names are public" in (tmp_path / "r" / "README.md").read_text()
    assert "the ledger has the charge" in program("verify", "r", "--ledger", LEDGER).out


def test_consent_is_typed(program, files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no-dp", "classes-public"):
        (tmp_path / "locum.toml").write_text(f"[fit]\n{name} = true\n")
        ran = program("fit", "train.npz", "-o", "r", *CLASSES)
        assert ran.code == 2
        assert f"type --{name}" in ran.err
    (tmp_path / "locum.toml").write_text('[fit]\nepsilon = 0.5\nunit = "auto"\nclasses = ["ant", "bee", "cat"]\n')
    assert program("fit", "train.npz", "-o", "r", "--json").json["claim"]["dp"]["epsilon"] <= 0.5


def in_a_terminal(folder: Path, words: list[str], answer: str) -> tuple[int, str, dict[str, Any]]:
    """Run the program with a terminal as its input and error output, and answer its question."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "locum", *words],
        cwd=folder,
        stdin=slave,
        stderr=slave,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
    )
    os.close(slave)
    shown, sent, end = "", False, time.monotonic() + 60
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    got = os.read(master, 4096).decode()
                except OSError:
                    break
                if not got:
                    break
                shown += got
            elif process.poll() is not None:
                break
            if not sent and "[y/N]" in shown:
                os.write(master, f"{answer}\n".encode())
                sent = True
        assert process.stdout is not None
        text = process.stdout.read().decode()
        return process.wait(60), shown, json.loads(text) if text else {}
    finally:
        process.kill()
        os.close(master)


def test_a_terminal_asks_whether_class_names_are_public(files, tmp_path: Path) -> None:
    words = ["fit", "train.npz", "-o", "r", "--json"]
    code, shown, _ = in_a_terminal(tmp_path, words, "n")
    assert code == 2
    assert "ant, bee, cat. May everyone know these names?" in " ".join(shown.split())
    assert "nothing was spent" in " ".join(shown.split())
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / LEDGER).exists()
    code, shown, found = in_a_terminal(tmp_path, words, "y")
    assert code == 0, shown
    assert found["claim"]["assumptions"][0].startswith("given that these class names are public")
    # Names only: how many records a class has is private.
    question = shown[: shown.index("[y/N]")]
    assert not any(character.isdigit() for character in question)


def test_a_cvae_with_a_guarantee_and_its_ledger(program, files, tmp_path: Path) -> None:
    ran = program("fit", "train.npz", "-o", "r", *PROMISE, "--generator", "cvae", "--epochs", "2")
    assert ran.code == 0, ran.err
    assert "dp (epsilon = " in ran.out
    assert not list((tmp_path / ".locum").glob("*.checkpoint"))
    ledger = ".locum/ledger.sqlite"
    assert "the ledger has the charge" in program("verify", "r", "--ledger", ledger).out
    # An old copy, or another ledger, does not know it.
    other = program("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-4", "--ledger", "other.sqlite")
    assert other.code == 0, other.err
    told = program("verify", "r", "--ledger", "other.sqlite")
    assert told.code == 2
    assert "does not have the charge" in told.err
    assert "no ledger" in program("verify", "r", "--ledger", "none.sqlite").err
    hole = program("sample", "r", "-n", "5", "-o", "s.npz", "--min-distance", "1", "--real", "train.npz")
    assert hole.code == 2
    assert "no budget pays" in hole.err


def test_neighbors_by_replacement_cost_more_noise(program, files, tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", *PROMISE, "--relation", "replace-one").code == 0
    claim = json.loads((tmp_path / "r" / "manifest.json").read_text())["claim"]
    assert claim["dp"]["relation"] == "replace-one"
    # One ledger counts by one relation.
    assert "replace-one" in program("fit", "train.npz", "-o", "r2", *PROMISE).err
    without = program("fit", "train.npz", "-o", "plain", "--no-dp")
    assert without.code == 0
    assert "leave out --ledger" in program("verify", "plain", "--ledger", ".locum/ledger.sqlite").err
