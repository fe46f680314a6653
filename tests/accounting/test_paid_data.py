"""What a ledger says that it has paid for, and what reading somebody else's ledger leaves as it is."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from locum.accounting import Gaussian, Ledger, check_one_ledger, paying_for
from locum.errors import DataError, PrivacyError
from locum.io import LEDGER, STATE_FOLDER


def paid(home: Path, *places: Path) -> Path:
    """A ledger at its usual place in `home` that has paid for some data."""
    file = home / STATE_FOLDER / LEDGER
    home.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(file)
    ledger.set_budget("all", epsilon=50.0, delta=1e-4)
    for place in places:
        with paying_for(str(place)):
            ledger.charge("all", [Gaussian(5.0)], delta=1e-6, purpose="means")
    return file


def test_a_charge_notes_its_data_once_and_in_the_same_turn(tmp_path: Path) -> None:
    file = paid(tmp_path, tmp_path / "scans", tmp_path / "scans", Path("/elsewhere/scans"))
    assert Ledger(file).data() == (tmp_path / "scans", Path("/elsewhere/scans"))
    kinds = [entry["body"]["kind"] for entry in Ledger(file).export()]
    assert kinds == ["budget", "charge", "data", "charge", "charge", "data"]
    # Beside the ledger it is relative, so that both can move.
    assert next(e["body"]["place"] for e in Ledger(file).export() if e["body"]["kind"] == "data") == "scans"


def test_a_charge_without_a_place_notes_nothing(tmp_path: Path) -> None:
    file = paid(tmp_path)
    Ledger(file).charge("all", [Gaussian(5.0)], delta=1e-6, purpose="means")
    assert Ledger(file).data() == ()


def test_a_process_that_is_killed_after_paying_has_noted_what_for(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from locum.accounting import Gaussian, Ledger, paying_for
        ledger = Ledger({str(tmp_path / "l.sqlite")!r})
        ledger.set_budget("all", epsilon=5.0, delta=1e-4)
        with paying_for("/data/scans"):
            ledger.charge("all", [Gaussian(5.0)], delta=1e-6, purpose="means")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert Ledger(tmp_path / "l.sqlite").data() == (Path("/data/scans"),)


def test_neighbors_and_other_data_are_free(tmp_path: Path) -> None:
    paid(tmp_path, tmp_path / "scans", tmp_path / "a.npz")
    for free in ("b.npz", "scans-2/train", "other/scans"):
        check_one_ledger(str(tmp_path / free), tmp_path / "x.sqlite")
    check_one_ledger("", tmp_path / "x.sqlite")


def test_two_ledgers_in_one_folder_are_named_with_a_way_out(tmp_path: Path) -> None:
    for part in ("a", "b"):
        paid(tmp_path / "all" / part, tmp_path / "all" / part / "scans")
    with pytest.raises(PrivacyError, match="release the parts one by one, each with its own"):
        check_one_ledger(str(tmp_path / "all"), tmp_path / STATE_FOLDER / LEDGER)
    with pytest.raises(PrivacyError, match="release the parts one by one, each with its own"):
        check_one_ledger(str(tmp_path / "all"), tmp_path / "all" / "a" / STATE_FOLDER / LEDGER)


def test_who_has_two_ledgers_has_a_way_on(tmp_path: Path) -> None:
    """Data that were moved below others that another ledger had paid for."""
    whole = paid(tmp_path, tmp_path / "scans")
    part = paid(tmp_path / "scans" / "far", tmp_path / "scans" / "far" / "two")
    check_one_ledger(str(tmp_path / "scans" / "far" / "two"), part)
    check_one_ledger(str(tmp_path / "scans"), whole)
    with pytest.raises(PrivacyError, match="second budget"):
        check_one_ledger(str(tmp_path / "scans" / "far" / "three"), part)


def test_a_linked_ledger_is_itself(tmp_path: Path) -> None:
    file = paid(tmp_path / "real", tmp_path / "scans")
    (tmp_path / STATE_FOLDER).symlink_to(file.parent)
    check_one_ledger(str(tmp_path / "scans" / "train"), file)
    check_one_ledger(str(tmp_path / "scans"), tmp_path / STATE_FOLDER / LEDGER)


def test_a_damaged_ledger_above_is_not_overlooked(tmp_path: Path) -> None:
    file = paid(tmp_path, tmp_path / "scans")
    with sqlite3.connect(file) as database:
        database.execute("DROP TRIGGER no_update")
        database.execute("UPDATE entries SET body = replace(body, 'scans', 'scams')")
    with pytest.raises(PrivacyError, match="altered"):
        check_one_ledger(str(tmp_path / "scans" / "train"), tmp_path / "x.sqlite")
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises((DataError, PrivacyError)):
        check_one_ledger(str(tmp_path / "scans" / "train"), tmp_path / "x.sqlite")


@pytest.mark.parametrize("held", [b"", b"not a database", None])
def test_what_is_no_ledger_is_left_alone(held: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / STATE_FOLDER / LEDGER
    file.parent.mkdir()
    if held is None:
        file.mkdir()
    else:
        file.write_bytes(held)
    if held == b"not a database":
        with pytest.raises(DataError, match="cannot be read"):
            check_one_ledger(str(tmp_path / "scans"), tmp_path / "x.sqlite")
    else:
        check_one_ledger(str(tmp_path / "scans"), tmp_path / "x.sqlite")
    assert held is None or file.read_bytes() == held


def test_reading_a_ledger_of_others_changes_nothing(tmp_path: Path) -> None:
    file = paid(tmp_path, tmp_path / "scans")
    file.chmod(0o664)
    before = file.read_bytes()
    check_one_ledger(str(tmp_path / "other"), tmp_path / "x.sqlite")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (before, 0o664)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_ledger_that_others_keep_to_themselves_is_unknown(tmp_path: Path) -> None:
    file = paid(tmp_path, tmp_path / "scans")
    file.parent.chmod(0)
    try:
        check_one_ledger(str(tmp_path / "scans" / "train"), tmp_path / "x.sqlite")
    finally:
        file.parent.chmod(0o700)
