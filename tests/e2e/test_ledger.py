"""The verbs `ledger` and `plan`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest


def test_a_budget_is_set_spent_and_shown(program, understudy, files, tmp_path: Path) -> None:
    ran = understudy("ledger", "set-budget", "--epsilon", "3", "--delta", "1e-3", "--holding", "insects")
    assert ran.code == 0, ran.err
    promise = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")
    ran = understudy("fit", "train.npz", "-o", "r", *promise, "--holding", "insects")
    assert ran.code == 0, ran.err
    told = json.loads(understudy("ledger", "show", "--json").out)
    (holding,) = told["holdings"]
    assert holding["name"] == "insects"
    assert 0.9 < holding["spent"]["epsilon"] <= 1
    assert holding["charges"][0]["purpose"] == "ClassGaussian"
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["claim"]["dp"]["ledger"] == told["head"]
    entries = json.loads(understudy("ledger", "export").out)
    assert len(entries) >= 2
    assert "insects" in understudy("ledger", "show").out


def test_an_edited_ledger_is_refused(understudy, tmp_path: Path) -> None:
    assert understudy("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-5").code == 0
    with sqlite3.connect(tmp_path / ".understudy" / "ledger.sqlite") as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE entries SET body = replace(body, '1.0', '9.0')")
    ran = understudy("ledger", "show")
    assert ran.code == 2
    assert "altered" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ledger", "show"), "There is no ledger"),
        (("ledger", "set-budget", "--epsilon", "-1", "--delta", "1e-5"), "above 0"),
        (("plan",), "n_public"),
        (("plan", "--n-public", "1000", "--delta", "0.1"), "1 / (10 n_public)"),
        (("plan", "--n-public", "1000", "--generator", "magic"), "gaussian or sgd"),
    ],
)
def test_wrong_words_are_told(program, words: tuple[str, ...], told: str) -> None:
    ran = program(*words)
    assert ran.code == 2
    assert told in ran.err


def test_a_plan_needs_no_data(understudy) -> None:
    ran = understudy("plan", "--n-public", "2000", "--generator", "sgd", "--json")
    assert ran.code == 0, ran.err
    assert 0.99 < ran.json["epsilon_spent"] <= 1
    assert ran.json["steps"] == 79
    costs = [cost for _, cost in ran.json["epsilon_by_step"]]
    assert costs == sorted(costs)
    assert "usual" in understudy("plan", "--explain").out
