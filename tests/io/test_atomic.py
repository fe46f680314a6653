"""What is written is complete or not there; a file that was there before survives a failure."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from locum.errors import ConfigError, DataError
from locum.io import (
    atomic,
    create_bytes,
    hold_folder,
    private_folder,
    replace_in_folder,
    write_atomically,
    write_bytes,
    write_folder_atomically,
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def fails_halfway(stream: BinaryIO) -> None:
    stream.write(b"half")
    raise KeyboardInterrupt


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    write_bytes(file, b"old")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, fails_halfway)
    assert (file.read_bytes(), names(tmp_path)) == (b"old", ["a.bin"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_modes_are_those_that_were_asked_for(tmp_path: Path) -> None:
    write_bytes(tmp_path / "shared", b"x", mode=0o644)
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o644


def test_folders_in_the_way_and_missing_folders_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        write_bytes(tmp_path, b"x")
    with pytest.raises(DataError, match="does not exist"):
        write_bytes(tmp_path / "no" / "x", b"x")


def test_what_must_never_be_replaced_is_not(tmp_path: Path) -> None:
    assert create_bytes(tmp_path / "key", b"first")
    assert not create_bytes(tmp_path / "key", b"second")
    assert ((tmp_path / "key").read_bytes(), names(tmp_path)) == (b"first", ["key"])


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    def contents(value: bytes):  # type: ignore[no-untyped-def]
        yield "manifest.json", value
        if value == b"bad":
            raise OSError(28, "No space left on device")
        yield "data.bin", value

    place = tmp_path / "release"
    write_folder_atomically(place, contents(b"one"), overwrite=False)
    with pytest.raises(OSError, match="space"):
        write_folder_atomically(place, contents(b"bad"), overwrite=True)
    assert ((place / "data.bin").read_bytes(), names(tmp_path)) == (b"one", ["release"])
    write_folder_atomically(place, contents(b"two"), overwrite=True)
    assert ((place / "data.bin").read_bytes(), names(tmp_path)) == (b"two", ["release"])


def test_files_are_swapped_all_at_once_or_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "release"
    write_folder_atomically(place, [("manifest.json", b"m"), ("a", b"1"), ("b", b"2")], overwrite=False)
    replace_in_folder(place, {"a": b"new", "c": b"3"}, remove={"b"})
    assert (names(place), (place / "a").read_bytes()) == (["a", "c", "manifest.json"], b"new")

    def failing(one: Path, two: Path) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "_exchange", failing)
    with pytest.raises(ConfigError, match="space"):
        replace_in_folder(place, {"a": b"newer", "c": b"4"})
    assert ((place / "a").read_bytes(), (place / "c").read_bytes(), names(tmp_path)) == (b"new", b"3", ["release"])


def saver(folder: str, times: int, problems: list[str]) -> None:
    """Replace one folder again and again, as concurrent fits with --force do."""
    for i in range(times):
        try:
            contents = [("manifest.json", str(i).encode()), ("data.bin", str(i).encode())]
            write_folder_atomically(Path(folder), contents, overwrite=True)
        except BaseException as error:
            problems.append(repr(error))


def test_concurrent_writers_replace_a_folder_without_an_error_or_a_gap(tmp_path: Path) -> None:
    place = tmp_path / "release"
    write_folder_atomically(place, [("manifest.json", b"0"), ("data.bin", b"0")], overwrite=False)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        problems = manager.list()
        writers = [context.Process(target=saver, args=(str(place), 60, problems)) for _ in range(3)]
        for writer in writers:
            writer.start()
        # Where the system cannot exchange two folders in one step, there is a moment without one.
        gaps = 0
        while any(writer.is_alive() for writer in writers):
            gaps += not place.is_dir()
        for writer in writers:
            writer.join()
        assert list(problems) == []
    assert gaps == 0 or sys.platform not in ("linux", "darwin")
    assert (place / "manifest.json").read_bytes() == (place / "data.bin").read_bytes()
    assert names(tmp_path) == ["release"]


def test_writers_without_the_exchange_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda one, two: False)
    place = tmp_path / "release"
    for value in (b"one", b"two"):
        write_folder_atomically(place, [("manifest.json", value)], overwrite=True)
    replace_in_folder(place, {"a": b"new"})
    assert ((place / "manifest.json").read_bytes(), names(place)) == (b"two", ["a", "manifest.json"])
    assert names(tmp_path) == ["release"]


def test_a_folder_that_is_being_written_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "release"
    inside = (
        "import sys, time; from pathlib import Path; from locum.io import hold_folder\n"
        "with hold_folder(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", inside, str(place)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="Another process"), hold_folder(place):
            pass
    finally:
        holder.kill()
        holder.wait()
    # The lock of a process that was killed is nobody's.
    with hold_folder(place), hold_folder(place):
        write_folder_atomically(place, [("manifest.json", b"m")], overwrite=False)
    assert names(tmp_path) == ["release"]


def test_what_a_kill_left_is_cleared_by_the_next_writer(tmp_path: Path) -> None:
    place, other = tmp_path / "release", tmp_path / ".release-notes"
    other.mkdir()
    script = (
        "import os, signal, sys; from pathlib import Path; from locum.io import write_folder_atomically\n"
        "def contents():\n    yield 'a.bin', b'half'\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_folder_atomically(Path(sys.argv[1]), contents(), overwrite=True)"
    )
    subprocess.run([sys.executable, "-c", script, str(place)], check=False)
    assert len(names(tmp_path)) > 1, "the kill left its folder"
    write_folder_atomically(place, [("manifest.json", b"m")], overwrite=False)
    assert names(tmp_path) == [".release-notes", "release"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_kill_while_files_are_replaced_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """A passport is several files: a reader must never find some of the old and some of the new."""
    place = tmp_path / "release"
    # One process imports, and forks a writer for each kill, which tells its number once it has replaced the files.
    script = (
        "import os, sys; from pathlib import Path; from locum.io import replace_in_folder\n"
        "for _ in sys.stdin:\n"
        "    writer = os.fork()\n"
        "    if writer:\n"
        "        print(os.WTERMSIG(os.waitpid(writer, 0)[1]), flush=True)\n"
        "        continue\n"
        "    for i in range(10**6):\n"
        "        files = {f'{i % 2}-{n}.json': str(i).encode() for n in range(5)}\n"
        "        replace_in_folder(Path(sys.argv[1]), files, remove=[f'{1 - i % 2}-{n}.json' for n in range(5)])\n"
        "        if i == 0:\n"
        "            print(os.getpid(), flush=True)"
    )
    rng = random.Random(0)
    write_folder_atomically(place, [("manifest.json", b"m")], overwrite=False)
    words = [sys.executable, "-c", script, str(place)]
    starter = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert starter.stdin is not None
    assert starter.stdout is not None
    for _ in range(30):
        starter.stdin.write("\n")
        starter.stdin.flush()
        writer = int(starter.stdout.readline())
        time.sleep(rng.uniform(0.01, 0.06))
        os.kill(writer, signal.SIGKILL)
        assert int(starter.stdout.readline()) == signal.SIGKILL
        found = [name for name in names(place) if name != "manifest.json"]
        assert len({name[0] for name in found}) == 1, found
        assert len(found) == 5, found
        assert len({(place / name).read_bytes() for name in found}) == 1
    starter.stdin.close()
    assert starter.wait(60) == 0


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    for umask in (0o000, 0o077):
        before = os.umask(umask)
        try:
            place = tmp_path / str(umask) / "deep" / "release"
            write_folder_atomically(place, [("manifest.json", b"m")], overwrite=False)
            replace_in_folder(place, {"passport.json": b"p"})
            write_folder_atomically(place.with_name("own"), [("manifest.json", b"m")], overwrite=False, mode=0o700)
            private = private_folder(tmp_path / str(umask) / "a" / "keys")
        finally:
            os.umask(before)
        assert mode(place) == 0o755
        assert {mode(file) for file in place.iterdir()} == {0o644}
        assert mode(place.with_name("own") / "manifest.json") == 0o600
        assert mode(private) == 0o700
        for folder in (place.parent, place.parent.parent, private.parent):
            assert not mode(folder) & 0o022, "others may write into it"


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def full(stream: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space") as told:
        write_atomically(tmp_path / "a.bin", full)
    assert str(told.value.filename).endswith("a.bin")
    script = (
        "import resource, sys; from pathlib import Path; from locum.io import write_folder_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_folder_atomically(Path(sys.argv[1]), [('manifest.json', b'm' * 5000)], overwrite=False)\n"
        "except OSError as error: print(error.filename)"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path / "r")], capture_output=True, text=True)
    assert ran.stdout.strip().endswith("r/manifest.json"), ran
    assert names(tmp_path) == []


def test_one_lock_whether_or_not_the_folder_above_exists(tmp_path: Path) -> None:
    """The second process comes when the first has made the folder above."""
    place = tmp_path / "new" / "deep" / "release"
    code = "import sys, pathlib; from locum.io import hold_folder as hold\nwith hold(pathlib.Path(sys.argv[1])): 0"
    with hold_folder(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        second = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=False)
        assert "Another process is writing" in second.stderr
        shutil.rmtree(tmp_path / "new" / "deep", ignore_errors=True)
    assert not [*tmp_path.rglob("*.lock")]


def test_folders_that_were_made_for_a_lock_are_removed(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "new" / "deep" / "release"):
        pass
    assert not [*tmp_path.iterdir()]


def test_only_what_we_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".a.locum-backup").mkdir()
    (tmp_path / ".a.locum-x.locum-abcd1234").mkdir()
    (tmp_path / ".a.locum-abcd1234").mkdir()
    write_folder_atomically(tmp_path / "a", [("manifest.json", b"{}")], overwrite=False)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".a.locum-backup", ".a.locum-x.locum-abcd1234", "a"]
