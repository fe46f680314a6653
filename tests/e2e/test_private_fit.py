"""A private fit through the CLI: what must be given, what is paid, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locum.accounting import Ledger

PROMISE = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")


def test_a_release_with_a_guarantee(program, files, tmp_path: Path) -> None:
    ran = program("fit", "train.npz", "-o", "r", *PROMISE)
    assert ran.code == 0, ran.err
    assert "dp (epsilon = " in ran.out
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    paid = manifest["claim"]["dp"]
    assert 0.9 < paid["epsilon"] <= 1
    with Ledger(tmp_path / ".locum" / "ledger.sqlite") as ledger:
        assert ledger.knows(paid["ledger"])
    assert program("verify", "r").code == 0
    again = program("fit", "train.npz", "-o", "r2", *PROMISE)
    assert again.code == 2
    assert "left" in again.err
    assert not (tmp_path / "r2").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon", "1"), "--delta and --n-public"),
        (("--delta", "1e-5"), "need --epsilon"),
        (("--epsilon", "1", "--delta", "1e-4", "--n-public", "200"), "--classes"),
        (("--epsilon", "1", "--delta", "0.01", "--n-public", "200", "--classes", "a"), "1 / (10 n_public)"),
        (("--epsilon", "0", "--delta", "1e-4", "--n-public", "200", "--classes", "a"), "above 0"),
        ((*PROMISE[:-1], "ant,bee"), "not among"),
        ((*PROMISE, "--unit", "subject"), "subject"),
        ((*PROMISE, "--generator", "ksame"), "no setting"),
    ],
)
def test_what_must_be_said_is_asked_for(program, files, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    ran = program("fit", "train.npz", "-o", "r", *words)
    assert ran.code == 2, ran.out
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / ".locum" / "ledger.sqlite").exists()


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
    without = program("fit", "train.npz", "-o", "plain")
    assert without.code == 0
    assert "leave out --ledger" in program("verify", "plain", "--ledger", ".locum/ledger.sqlite").err
