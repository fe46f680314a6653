"""What is written is complete or not there; a file that was there before survives a failure."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

import pytest

from locum.errors import ConfigError, DataError
from locum.io import atomic, create_bytes, replace_in_folder, write_atomically, write_bytes, write_folder_atomically


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
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == "c" and self.parent.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(atomic.Path, "rename", failing)
    with pytest.raises(ConfigError, match="space"):
        replace_in_folder(place, {"a": b"newer", "c": b"4"})
    assert ((place / "a").read_bytes(), (place / "c").read_bytes(), names(tmp_path)) == (b"new", b"3", ["release"])
