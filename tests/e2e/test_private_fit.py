"""A fit with a promise, through the real program: what must be said, what is paid, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from understudy.accounting import Ledger

PROMISE = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")


def test_a_release_with_a_promise(understudy, files, tmp_path: Path) -> None:
    ran = understudy("fit", "train.npz", "-o", "r", *PROMISE)
    assert ran.code == 0, ran.err
    assert "dp (epsilon = " in ran.out
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    paid = manifest["claim"]["dp"]
    assert 0.9 < paid["epsilon"] <= 1
    with Ledger(tmp_path / ".understudy" / "ledger.sqlite") as ledger:
        assert ledger.head == paid["ledger"]
    assert understudy("verify", "r").code == 0
    again = understudy("fit", "train.npz", "-o", "r2", *PROMISE)
    assert again.code == 2
    assert "left" in again.err
    assert not (tmp_path / "r2").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon", "1"), "--delta and --n-public"),
        (("--delta", "1e-5"), "belong to --epsilon"),
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
    assert not (tmp_path / ".understudy" / "ledger.sqlite").exists()
