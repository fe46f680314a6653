"""The verbs `ledger` and `plan`."""

from __future__ import annotations

import io
import json
import sqlite3
import stat
from pathlib import Path

import pytest

from locum.accounting import Ledger, check_chain

BOOK = ("--ledger", ".locum/ledger.sqlite")


def test_a_budget_is_set_spent_and_shown(program, locum, files, tmp_path: Path) -> None:
    ran = program("ledger", "set-budget", "train.npz", "--epsilon", "3", "--delta", "1e-3", "--holding", "insects")
    assert ran.code == 0, ran.err
    guarantee = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")
    ran = program("fit", "train.npz", "-o", "r", *guarantee, "--holding", "insects")
    assert ran.code == 0, ran.err
    told = json.loads(locum("ledger", "show", "train.npz", "--json").out)
    (holding,) = told["holdings"]
    assert holding["name"] == "insects"
    assert 0.9 < holding["spent"]["epsilon"] <= 1
    assert holding["charges"][0]["purpose"] == "ClassGaussian"
    entries = json.loads(program("ledger", "export", "train.npz").out)
    kinds = [entry["body"]["kind"] for entry in entries]
    # What the charge paid for, a result for each noisy sum and one for all of them together, and the release.
    assert (kinds[:3], set(kinds[3:-1]), kinds[-1]) == (["budget", "charge", "data"], {"result"}, "release")
    paid = json.loads((tmp_path / "r" / "manifest.json").read_text())["claim"]["dp"]["ledger"]
    assert paid == entries[1]["hash"]
    assert check_chain(entries) == told["tip"]
    shown = program("ledger", "show", "train.npz").out
    for word in ("insects", "ClassGaussian", "up to 34 sums", told["tip"]):
        assert word in shown


def test_what_rounding_leaves_is_shown_as_nothing(program, files) -> None:
    spent = program("fit", "train.npz", "-o", "r", "--epsilon", "1", "--delta", "1e-4", "--classes", "ant,bee,cat")
    assert spent.code == 0, spent.err
    left = json.loads(program("ledger", "show", "train.npz", "--json").out)["holdings"][0]["left"]
    assert left["epsilon"] < 1e-3
    row = next(line for line in program("ledger", "show", "train.npz").out.splitlines() if "default" in line)
    assert row.split()[-3:] == ["0", "/", "0"]


def test_a_ledger_tells_its_place(tmp_path: Path) -> None:
    assert repr(Ledger(tmp_path / "l.sqlite")) == f"Ledger({str(tmp_path / 'l.sqlite')!r})"


def test_raising_a_budget_is_said_aloud(program, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(word: str, *more: str) -> object:
        monkeypatch.setattr("sys.stdin", io.StringIO(word))
        return program("ledger", "set-budget", "--delta", "1e-5", "--json", *BOOK, *more)

    assert reply("", "--epsilon", "1").json["holdings"][0]["budget"]["epsilon"] == 1
    for word in ("n\n", "\n", ""):
        ran = reply(word, "--epsilon", "2")
        assert ran.code == 1
        assert "weakens the guarantee for everybody" in ran.err
        assert ran.out == ""
    assert program("ledger", "show", *BOOK, "--json").json["holdings"][0]["budget"]["epsilon"] == 1
    assert reply("y\n", "--epsilon", "2").json["holdings"][0]["budget"]["epsilon"] == 2
    assert reply("", "--epsilon", "3", "--yes").json["holdings"][0]["budget"]["epsilon"] == 3
    # Lowering takes nothing from anybody.
    assert reply("", "--epsilon", "0.5").json["holdings"][0]["budget"]["epsilon"] == 0.5


def test_unit_and_relation_are_kept_and_cannot_change(program) -> None:
    budget = ("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-5", "--holding", "faces", "--json", *BOOK)
    program(*budget, "--unit", "subject", "--relation", "replace-one")
    (kept,) = program(*budget).json["holdings"]
    assert (kept["unit"], kept["relation"]) == ("subject", "replace-one")
    ran = program(*budget, "--unit", "record")
    assert (ran.code, "cannot be mixed" in ran.err) == (2, True)


def test_one_holding_can_be_shown(program) -> None:
    for name in ("faces", "scans"):
        program("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-5", "--holding", name, *BOOK)
    assert [h["name"] for h in program("ledger", "show", "--holding", "scans", "--json", *BOOK).json["holdings"]] == [
        "scans"
    ]
    assert "scans" not in program("ledger", "show", "--holding", "faces", *BOOK).out
    ran = program("ledger", "show", "--holding", "bones", *BOOK)
    assert (ran.code, "it knows 'faces', 'scans'" in ran.err) == (2, True)


def test_a_copy_is_private_and_never_replaces_the_ledger(program, tmp_path: Path) -> None:
    program("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-5", "--ledger", "book.sqlite")
    book = ("ledger", "export", "--ledger", "book.sqlite", "--out")
    assert "1 entries" in program(*book, "copy.json").out
    assert stat.S_IMODE((tmp_path / "copy.json").stat().st_mode) == 0o600
    assert check_chain(json.loads((tmp_path / "copy.json").read_text()))
    assert "--force" in program(*book, "copy.json").err
    assert program(*book, "copy.json", "--force").code == 0
    before = (tmp_path / "book.sqlite").read_bytes()
    assert program(*book, "book.sqlite", "--force").code == 2
    assert (tmp_path / "book.sqlite").read_bytes() == before


def test_looking_makes_nothing(program, tmp_path: Path) -> None:
    for words in (BOOK, (), ("nowhere.npz",)):
        assert program("ledger", "show", *words).code == program("ledger", "export", *words).code == 2
    assert program("ledger", "set-budget", "nowhere.npz", "--epsilon", "1", "--delta", "1e-5").code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_edited_ledger_is_refused(program, tmp_path: Path) -> None:
    assert program("ledger", "set-budget", "--epsilon", "1", "--delta", "1e-5", *BOOK).code == 0
    with sqlite3.connect(tmp_path / ".locum" / "ledger.sqlite") as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE entries SET body = replace(body, '1.0', '9.0')")
    ran = program("ledger", "show", *BOOK)
    assert ran.code == 2
    assert "altered" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ledger", "show", *BOOK), "There is no ledger"),
        (("ledger", "show"), "Say which ledger"),
        (("ledger", "show", "nowhere.npz"), "There is no file or folder 'nowhere.npz'"),
        (("ledger", "set-budget", "--epsilon", "-1", "--delta", "1e-5", *BOOK), "above 0"),
        (("plan", "--generator", "cvae"), "n_public"),
        (("plan", "--n-public", "1000", "--delta", "0.1"), "1 / (10 n_public)"),
        (("plan", "--n-public", "1000", "--generator", "magic"), "auto, gaussian, cvae"),
        (("plan", "--n-public", "1000", "--generator", "sgd", "--batch", "0"), "`batch`"),
        (("plan", "--n-public", "1000", "--epsilon", "nan"), "epsilon"),
        (("plan", "--n-public", "1000", "--generator", "sgd", "--clip", "0"), "above 0"),
        (("plan", "--n-public", "1000", "--generator", "gaussian", "--clip", "2"), "no setting 'clip'"),
    ],
)
def test_wrong_words_are_told(program, words: tuple[str, ...], told: str) -> None:
    ran = program(*words)
    assert ran.code == 2
    assert told in ran.err


def test_a_plan_needs_no_data(program) -> None:
    ran = program("plan", "--n-public", "2000", "--generator", "sgd", "--json")
    assert ran.code == 0, ran.err
    assert 0.99 < ran.json["epsilon_spent"] <= 1
    assert ran.json["steps"] == 79
    costs = [cost for _, cost in ran.json["epsilon_by_step"]]
    assert costs == sorted(costs)
    shown = program("plan", "--n-public", "2000", "--generator", "sgd").out
    for word in ("sampling rate", "0.128", "noise multiplier", "epsilon after step 79", "epsilon at delta 1e-09"):
        assert word in shown


def test_a_plan_for_one_sum_by_either_relation(program) -> None:
    one = program("plan", "--n-public", "2000", "--json").json
    other = program("plan", "--n-public", "2000", "--relation", "replace-one", "--json").json
    assert other["noise_multiplier"] == pytest.approx(2 * one["noise_multiplier"], rel=2e-3)


def test_words_need_no_size_and_take_the_numbers_given(program) -> None:
    assert "usual" in program("plan", "--explain").out
    told = program("plan", "--explain", "--n-public", "2000", "--unit", "subject", "--json").json
    words = " ".join(told["explanation"])
    # e to the 1, the odds; e / (1 + e), the coin; 1 / (10 n).
    for word in ("2.719", "73.11 %", "5e-05", "person", "n_public 2000"):
        assert word in words
    assert told["epsilon_spent"] <= 1
    assert program("plan", "--explain", "--epsilon", "100").code == 0


def test_a_plan_of_the_private_cvae_is_what_a_fit_pays(program) -> None:
    made = program("plan", "--n-public", "2000", "--generator", "cvae", "--epochs", "2", "--json").json
    assert made["generator"] == "cvae"
    assert [event["kind"] for event in made["events"]] == ["poisson-gaussian", "gaussian"]
    assert made["epsilon_spent"] <= 1
    assert program("plan", "--n-public", "2000", "--json").json["generator"] == "gaussian"


def test_a_backup_comes_back_but_never_over_a_newer_ledger(program, files, tmp_path: Path) -> None:
    budget = ("ledger", "set-budget", "train.npz", "--delta", "1e-5", "--yes")
    assert program(*budget, "--epsilon", "1").code == 0
    made = program("ledger", "backup", "train.npz", "-o", "copy.sqlite", "--json")
    assert (made.code, made.json["entries"]) == (0, 1)
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    assert "already exists" in program("ledger", "backup", "train.npz", "-o", "copy.sqlite").err
    assert program(*budget, "--epsilon", "2").code == 0
    refused = program("ledger", "restore", "copy.sqlite", "train.npz")
    assert (refused.code, "would forget" in refused.err) == (2, True)
    (tmp_path / ".locum" / "ledger.sqlite").unlink()
    assert "1 of 1 entries restored" in program("ledger", "restore", "copy.sqlite", "train.npz").out
    shown = program("ledger", "show", "train.npz", "--json").json
    assert (shown["tip"], shown["holdings"][0]["budget"]["epsilon"]) == (made.json["tip"], 1)


def test_looks_at_the_records_are_shown(program, tmp_path: Path) -> None:
    """Also where nobody has set a budget yet, which a look does not do."""
    Ledger(tmp_path / "looked.sqlite").note_look("scans", "preview of budgets")
    shown = program("ledger", "show", "--ledger", "looked.sqlite")
    assert shown.code == 0, shown.err
    assert "looks       1 (previews on the records" in shown.out
    told = program("ledger", "show", "--ledger", "looked.sqlite", "--json").json
    assert (told["looks"], told["holdings"]) == (1, [])
    assert program("ledger", "backup", "--ledger", "looked.sqlite", "-o", "copy").code == 0
    (tmp_path / "looked.sqlite").unlink()
    assert program("ledger", "restore", "copy", "--ledger", "looked.sqlite", "--json").json["added"] == 1
    assert Ledger(tmp_path / "looked.sqlite").looks("scans") == 1
