"""Passport files in a release: refused unless they belong to it, and written all at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from locum.errors import ConfigError, FormatError, IntegrityError, ReleaseError
from locum.release import load, verify
from locum.release.passport import present_passport_files, write_passport_files
from locum.release.passport.files import read_passport_files


def listing(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_release_without_passport_files_is_read(folder: Path) -> None:
    release = load(folder)
    passport_files = read_passport_files(folder, release.manifest, release.fingerprint or "")
    assert passport_files.passport is passport_files.signature is None
    assert passport_files.hashes == {"manifest.json": release.fingerprint}
    found = verify(folder)
    assert found.passport is found.signed_by is None
    assert "the release is not signed" in found.not_checked[0]


@pytest.mark.parametrize("name", ["passport.html", "passport.md", "croissant.json", "dp-registry.json"])
def test_a_passport_file_that_nothing_lists_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("hello")
    with pytest.raises(IntegrityError, match="no passport in it lists"):
        load(folder)


@pytest.mark.parametrize("name", ["passport.json", "signature.json"])
@pytest.mark.parametrize("raw", [b"", b"hello", b"{}", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_passport_file_is_refused(folder: Path, name: str, raw: bytes) -> None:
    (folder / name).write_bytes(raw)
    with pytest.raises(ReleaseError, match=name):
        load(folder)


def test_a_link_or_a_giant_is_not_opened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (folder / "signature.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="link"):
        load(folder)
    (folder / "signature.json").unlink()
    (folder / "signature.json").write_bytes(b" " * (4 * 2**20 + 1))
    with pytest.raises(FormatError, match="bytes long"):
        load(folder)


def test_passport_files_are_written_and_removed_all_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(folder)
    write_passport_files(folder, {"passport.md": b"old", "croissant.json": b"old"})
    assert present_passport_files(folder) == ["croissant.json", "passport.md"]
    write_passport_files(folder, {"passport.md": b"new"}, remove=["croissant.json"])
    assert listing(folder) == {**before, "passport.md": b"new"}
    held = listing(folder)

    def fail_late(one: Path, two: Path) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("locum.io.atomic._exchange", fail_late)
    with pytest.raises(ConfigError, match="No space left"):
        write_passport_files(folder, {"passport.md": b"newer", "passport.html": b"newer"})
    assert listing(folder) == held
    assert sorted(os.listdir(tmp_path)) == ["release"], "nothing is left beside it"
    with pytest.raises(ConfigError, match="not a passport file"):
        write_passport_files(folder, {"README.md": b"other"})
