"""The file: private, durable, for one writer at a time, and never made anew by mistake."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from locum.accounting.store import EntryFile
from locum.errors import DataError, PrivacyError

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.sqlite"


def add(entries: EntryFile, word: str) -> str:
    with entries.turn() as turn:
        return turn.append({"word": word})


def words(entries: EntryFile) -> list[str]:
    return [entry["body"]["word"] for entry in entries.read()]


def test_entries_come_back_in_order(file: Path) -> None:
    entries = EntryFile(file)
    heads = [add(entries, word) for word in "abc"]
    assert words(EntryFile(file)) == ["a", "b", "c"]
    assert [entry["hash"] for entry in entries.read()] == heads
    assert [entry["previous"] for entry in entries.read()] == ["0" * 64, *heads[:2]]


def test_equal_bodies_have_different_hashes(file: Path) -> None:
    """The tip leaves with a release: without salt, its body could be guessed."""
    assert add(EntryFile(file), "a") != add(EntryFile(file.with_name("other.sqlite")), "a")


def test_several_in_one_turn(file: Path) -> None:
    entries = EntryFile(file)
    with entries.turn() as turn:
        turn.append({"word": "a"})
        turn.append({"word": "b"})
    assert words(entries) == ["a", "b"]


@pytest.mark.parametrize("error", [PrivacyError, KeyboardInterrupt])
def test_an_error_takes_the_turn_back(file: Path, error: type[BaseException]) -> None:
    entries = EntryFile(file)
    add(entries, "kept")

    def fail() -> None:
        with entries.turn() as turn:
            turn.append({"word": "lost"})
            raise error("no")

    with pytest.raises(error):
        fail()
    assert words(entries) == ["kept"]
    add(entries, "next")
    assert words(entries) == ["kept", "next"]


def test_for_the_owner_alone(file: Path) -> None:
    before = os.umask(0)
    try:
        add(EntryFile(file), "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_journal_has_the_mode_of_the_file(file: Path) -> None:
    EntryFile(file)
    before = os.umask(0)
    try:
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("BEGIN EXCLUSIVE")
        database.execute("INSERT INTO entries VALUES (1, 'a', 'b', 'c')")
        journal = file.with_name(file.name + "-journal")
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600
        database.execute("ROLLBACK")
        database.close()
    finally:
        os.umask(before)


def test_a_file_that_others_could_read_is_closed_to_them(file: Path) -> None:
    EntryFile(file)
    file.chmod(0o644)
    EntryFile(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_every_byte_is_synced_and_no_log_lies_beside_it(file: Path) -> None:
    entries = EntryFile(file)
    add(entries, "a")
    with entries._opened() as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [p.name for p in file.parent.iterdir()] == [file.name]


def test_a_write_ahead_log_that_somebody_switched_on_is_switched_off(file: Path) -> None:
    add(EntryFile(file), "a")
    database = sqlite3.connect(file)
    database.execute("PRAGMA journal_mode=WAL")
    database.close()
    add(EntryFile(file), "b")
    assert [p.name for p in file.parent.iterdir()] == [file.name]
    assert words(EntryFile(file)) == ["a", "b"]


def test_a_file_that_vanished_does_not_come_back_empty(file: Path) -> None:
    entries = EntryFile(file)
    add(entries, "a")
    file.unlink()
    for use in (entries.read, lambda: add(entries, "b")):
        with pytest.raises(DataError, match="cannot be used"):
            use()
    assert not file.exists()


def test_updates_and_deletes_are_stopped(file: Path) -> None:
    add(EntryFile(file), "a")
    database = sqlite3.connect(file)
    for statement in ("UPDATE entries SET body = '{}'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            database.execute(statement)
    database.close()


def test_no_folder_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No such file.*--ledger"):
        EntryFile(tmp_path / "typo" / "typo" / "ledger.sqlite")
    with pytest.raises(DataError, match="is not a regular file"):
        EntryFile(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 2000)
    with pytest.raises(DataError, match="not a database"):
        EntryFile(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE patients (name TEXT)")
    database.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(DataError, match="not a ledger"):
        EntryFile(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before


def test_a_newer_file_is_left_alone(file: Path) -> None:
    add(EntryFile(file), "a")
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version=2")
    database.close()
    with pytest.raises(DataError, match="newer Locum"):
        EntryFile(file)


def test_a_file_that_may_only_be_read_can_be_read(file: Path) -> None:
    add(EntryFile(file), "a")
    file.chmod(0o400)
    file.parent.chmod(0o500)
    try:
        if os.access(file, os.W_OK):
            pytest.skip("this user may write everything")
        entries = EntryFile(file)
        assert words(entries) == ["a"]
        with pytest.raises(DataError, match="readonly"):
            add(entries, "b")
    finally:
        file.parent.chmod(0o700)


def test_a_lock_that_stays_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = EntryFile(file)
    monkeypatch.setattr("locum.accounting.store._WAIT_SECONDS", 0.05)
    with entries.turn(), pytest.raises(DataError, match="locked"):
        add(entries, "b")


def test_threads_share_one_object(file: Path) -> None:
    entries = EntryFile(file)
    workers = [threading.Thread(target=lambda i=i: [add(entries, f"{i}-{j}") for j in range(10)]) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(words(entries)) == sorted(f"{i}-{j}" for i in range(4) for j in range(10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_go_on(file: Path) -> None:
    entries = EntryFile(file)
    add(entries, "parent")
    child = os.fork()
    if child == 0:
        add(entries, "child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    add(entries, "parent")
    assert words(entries) == ["parent", "child", "parent"]


def make_and_add(file: str, start: Any, number: int) -> None:
    start.wait()
    add(EntryFile(file), str(number))


def test_two_that_make_the_file_at_once_share_it(tmp_path: Path) -> None:
    for attempt in range(3):
        file, start = tmp_path / str(attempt) / "ledger.sqlite", SPAWN.Event()
        workers = [SPAWN.Process(target=make_and_add, args=(str(file), start, n)) for n in range(2)]
        for worker in workers:
            worker.start()
        start.set()
        for worker in workers:
            worker.join(120)
            assert worker.exitcode == 0
        assert sorted(words(EntryFile(file))) == ["0", "1"]


def write_halfway(file: str, there: Any) -> None:
    """Insert, then hang before COMMIT with everything flushed into the file: the worst moment to be killed."""
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA cache_size=1")
    database.execute("BEGIN EXCLUSIVE")
    for number in range(2, 400):
        database.execute("INSERT INTO entries VALUES (?, 'x', ?, ?)", (number, "y" * 2000, str(number)))
    there.set()
    signal.pause()


def test_killed_between_insert_and_commit(file: Path) -> None:
    entries = EntryFile(file)
    add(entries, "kept")
    there = SPAWN.Event()
    worker = SPAWN.Process(target=write_halfway, args=(str(file), there))
    worker.start()
    assert there.wait(120)
    worker.kill()
    worker.join(60)
    journal = file.with_name(file.name + "-journal")
    assert journal.exists(), "the killed process left its journal behind"
    assert words(EntryFile(file)) == ["kept"]
    add(entries, "next")
    assert words(entries) == ["kept", "next"]
    assert not journal.exists()
