"""Signing a release and checking it: any changed byte, any missing file and any other key are seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.errors import ConfigError, IntegrityError, LocumError, PrivacyError
from locum.generate import ClassGaussian
from locum.io import regular_bytes
from locum.recipes import make_key_pair, read_passphrase, sign_release, verify_release, write_passport
from locum.release import Release, load
from locum.types import DPClaim, PrivacyClaim

pytest.importorskip("cryptography")
PASSPORT_FILES = ("passport.json", "passport.html", "passport.md", "croissant.json", "signature.json")
FILES = ("manifest.json", "decoder.safetensors", "README.md", *PASSPORT_FILES)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key_pair(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def release(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    folder = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "release")
    write_passport(folder)
    return folder


@pytest.fixture
def public(key: Path) -> Path:
    return key.with_name("key.pub")


@pytest.fixture
def signed(release: Path, key: Path) -> Path:
    sign_release(release, key)
    return release


def test_verify_and_sign_read_every_file_once(
    signed: Path, key: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(reader: Callable[..., bytes]) -> Callable[..., bytes]:
        def count(file: Path, *more: Any) -> bytes:
            read.append(file.name)
            return reader(file, *more)

        return count

    monkeypatch.setattr(Path, "read_bytes", counted(Path.read_bytes))
    monkeypatch.setattr("locum.io.reading.regular_bytes", counted(regular_bytes))
    verify_release(signed, key=public)
    assert sorted(read) == sorted((*FILES, "key.pub"))
    read.clear()
    sign_release(signed, key, overwrite=True)
    assert sorted(read) == sorted((*FILES, "key"))


def test_signed_and_checked(signed: Path, key: Path, public: Path) -> None:
    found = verify_release(signed, key=public)
    assert found.signed_by == json.loads((signed / "signature.json").read_text())["key"]
    assert found.not_checked == ()
    assert any(found.signed_by[:16] in line and "passport.json" in line for line in found.checks)
    unasked = verify_release(signed)
    assert unasked.signed_by is None
    assert "the signature was not checked" in unasked.not_checked[0]
    with pytest.raises(ConfigError, match="--force"):
        sign_release(signed, key)
    sign_release(signed, key, overwrite=True)
    verify_release(signed, key=public)
    load(signed)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_in_any_file_is_seen(signed: Path, public: Path, name: str) -> None:
    file = signed / name
    whole = file.read_bytes()
    places = np.random.default_rng(0).choice(len(whole), size=min(6, len(whole)), replace=False)
    for place in (0, len(whole) - 1, *places.tolist()):
        for other in (whole[place] ^ 1, whole[place] ^ 0x20, 0x20 if whole[place] == 0x0A else 0x0A):
            if other == whole[place]:
                continue
            file.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            with pytest.raises(LocumError):
                verify_release(signed, key=public)
    file.write_bytes(whole)
    verify_release(signed, key=public)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_an_added_file_is_seen(signed: Path, public: Path, name: str) -> None:
    whole = (signed / name).read_bytes()
    (signed / name).write_bytes(whole + b"\n")
    with pytest.raises(LocumError):
        verify_release(signed, key=public)
    (signed / name).unlink()
    with pytest.raises(LocumError):
        verify_release(signed, key=public)
    (signed / name).write_bytes(whole)
    (signed / "extra.txt").write_text("hello")
    with pytest.raises(IntegrityError, match=r"extra\.txt"):
        verify_release(signed, key=public)


def test_passport_files_cannot_be_stripped(signed: Path, public: Path) -> None:
    for name in set(PASSPORT_FILES) - {"signature.json"}:
        (signed / name).unlink()
    with pytest.raises(IntegrityError, match="other files than these"):
        verify_release(signed)
    (signed / "signature.json").unlink()
    assert verify_release(signed).passport is None
    with pytest.raises(IntegrityError, match="is not signed"):
        verify_release(signed, key=public)


def test_another_key_is_refused(signed: Path, tmp_path: Path) -> None:
    make_key_pair(tmp_path / "thief")
    with pytest.raises(IntegrityError, match="not with the one given"):
        verify_release(signed, key=tmp_path / "thief.pub")
    sign_release(signed, tmp_path / "thief", overwrite=True)
    with pytest.raises(IntegrityError, match="not with the one given"):
        verify_release(signed, key=tmp_path / "key.pub")


def test_a_new_passport_takes_the_signature_away(signed: Path, key: Path, public: Path) -> None:
    with pytest.raises(ConfigError, match="--force"):
        write_passport(signed)
    assert write_passport(signed, overwrite=True).signature_removed
    with pytest.raises(IntegrityError, match="is not signed"):
        verify_release(signed, key=public)
    sign_release(signed, key)
    verify_release(signed, key=public)


def test_a_release_without_a_passport_can_be_signed(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path, key: Path, public: Path
) -> None:
    bare = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "bare")
    assert list(sign_release(bare, key).files) == ["manifest.json"]
    verify_release(bare, key=public)


def test_what_is_broken_or_lies_is_not_signed(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path, key: Path
) -> None:
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    dp = DPClaim(0.01, 1e-5, "add-or-remove", ({"kind": "gaussian", "noise_multiplier": 1.0},), "0" * 64)
    claim = PrivacyClaim(kind="dp", not_covered=("the rest",), dp=dp)
    liar = Release(release.manifest.model_copy(update={"claim": claim}), release.tensors).save(tmp_path / "liar")
    with pytest.raises(PrivacyError, match="costs"):
        sign_release(liar, key)
    broken = release.save(tmp_path / "broken")
    (broken / "README.md").write_text("hello")
    with pytest.raises(IntegrityError):
        sign_release(broken, key)
    assert not list(tmp_path.glob("*/signature.json"))


def test_keys_stay_out_of_releases(release: Path, key: Path) -> None:
    inside = release / "passport.md"
    with pytest.raises(ConfigError, match="move it out"):
        sign_release(release, inside)
    assert not (release / "signature.json").exists()


def test_a_passphrase_from_a_file(tmp_path: Path, release: Path) -> None:
    (tmp_path / "word").write_text("open sesame\n")
    assert read_passphrase(tmp_path / "word") == b"open sesame"
    make_key_pair(tmp_path / "locked", passphrase=b"open sesame")
    with pytest.raises(ConfigError, match="--passphrase-file"):
        sign_release(release, tmp_path / "locked")
    sign_release(release, tmp_path / "locked", passphrase=b"open sesame")
    verify_release(release, key=tmp_path / "locked.pub")
    (tmp_path / "word").write_text("\n")
    with pytest.raises(ConfigError, match="1 to 1024"):
        read_passphrase(tmp_path / "word")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_passphrase(tmp_path / "none")
