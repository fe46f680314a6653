"""Keys and signatures: only the owner of the key can make one, and no byte changes unseen."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.release.passport import key_id, make_keys, make_signature, read_private_key
from locum.release.passport.signature import check_signature, parse_signature, read_public_key

pytest.importorskip("cryptography")
FILES = {"manifest.json": "12" * 32, "passport.json": "34" * 32}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "yours"):
        make_keys(folder / name, folder / f"{name}.pub")
    return folder


def test_a_signature_holds_for_its_key_alone(keys: Path) -> None:
    signature = make_signature(FILES, read_private_key(keys / "mine"))
    public = read_public_key(keys / "mine.pub")
    read = parse_signature(signature.dumps().encode())
    assert read == signature
    assert read.key == key_id(public)
    check_signature(read, public)
    with pytest.raises(IntegrityError, match="over another channel"):
        check_signature(read, read_public_key(keys / "yours.pub"))
    # A thief who writes the sender's id under a signature of their own.
    forged = make_signature(FILES, read_private_key(keys / "yours")).model_copy(update={"key": key_id(public)})
    with pytest.raises(IntegrityError, match="false"):
        check_signature(forged, public)


@given(st.data())
def test_any_other_byte_is_noticed(keys: Path, data: st.DataObject) -> None:
    raw = bytearray(make_signature(FILES, read_private_key(keys / "mine")).dumps().encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255).filter(lambda b: b != raw[place]))
    public = read_public_key(keys / "mine.pub")
    with pytest.raises((FormatError, IntegrityError)):
        check_signature(parse_signature(bytes(raw)), public)


@pytest.mark.parametrize("how", [{"indent": 1}, {"separators": (", ", ": ")}])
def test_there_is_one_way_to_write_it(keys: Path, how: dict[str, object]) -> None:
    text = make_signature(FILES, read_private_key(keys / "mine")).dumps()
    with pytest.raises(FormatError, match="only valid encoding"):
        parse_signature((json.dumps(json.loads(text), sort_keys=True, **how) + "\n").encode())  # type: ignore[arg-type]


def test_a_private_key_is_private(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "k", tmp_path / "k.pub")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert made == key_id(read_public_key(tmp_path / "k.pub"))
    with pytest.raises(ConfigError, match="never replaced"):
        make_keys(tmp_path / "k", tmp_path / "other.pub")
    with pytest.raises(ConfigError, match="never replaced"):
        make_keys(tmp_path / "other", tmp_path / "k.pub")
    assert not (tmp_path / "other").exists()
    (tmp_path / "k").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_private_key(tmp_path / "k")
    with pytest.raises(ConfigError, match="stays with its owner"):
        read_public_key(tmp_path / "k")


def test_no_key_is_written_into_a_release(folder: Path) -> None:
    before = sorted(os.listdir(folder))
    with pytest.raises(ConfigError, match="made to be sent"):
        make_keys(folder / "k", folder / "k.pub")
    assert sorted(os.listdir(folder)) == before


def test_a_passphrase_is_asked_for(tmp_path: Path) -> None:
    make_keys(tmp_path / "k", tmp_path / "k.pub", b"open sesame")
    assert b"ENCRYPTED" in (tmp_path / "k").read_bytes()
    with pytest.raises(ConfigError, match="has a passphrase"):
        read_private_key(tmp_path / "k")
    with pytest.raises(ConfigError, match="wrong"):
        read_private_key(tmp_path / "k", b"open barley")
    key = read_private_key(tmp_path / "k", b"open sesame")
    assert key_id(key.public_key()) == key_id(read_public_key(tmp_path / "k.pub"))
    with pytest.raises(ConfigError, match="empty"):
        make_keys(tmp_path / "e", tmp_path / "e.pub", b"")


def test_what_is_no_key_gets_one_sentence(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    other = X25519PrivateKey.generate()
    pem = form.Encoding.PEM
    (tmp_path / "text").write_text("hello")
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    (tmp_path / "x").write_bytes(other.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption()))
    (tmp_path / "x.pub").write_bytes(other.public_key().public_bytes(pem, form.PublicFormat.SubjectPublicKeyInfo))
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    for name, word in (
        ("none", "no key"),
        ("text", "PEM"),
        ("long", "too long"),
        ("x", "Ed25519"),
        ("x.pub", "cannot sign"),
    ):
        with pytest.raises(ConfigError, match=word):
            read_private_key(tmp_path / name)
    for name, word in (("none", "no key"), ("text", "PEM"), ("long", "too long"), ("x.pub", "Ed25519")):
        with pytest.raises(ConfigError, match=word):
            read_public_key(tmp_path / name)
