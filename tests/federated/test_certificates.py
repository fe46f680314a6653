from __future__ import annotations

import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locum.errors import ConfigError

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from locum.federated import make_certificates, make_site_key


def serve(keys: Path) -> Iterator[int]:
    """A TLS server that greets clients that trust it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as tls:
                        tls.sendall(b"hello")
                except OSError:
                    continue

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_certificates(folder, ["fed.example.org", "10.1.2.3"], ["clinic", "ward-2"])
    return folder


@pytest.fixture(scope="module")
def port(keys: Path) -> Iterator[int]:
    yield from serve(keys)


def greeting(port: int, authority: Path, name: str) -> bytes:
    context = ssl.create_default_context(cafile=str(authority))
    # What Python checks by default from 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    with (
        socket.create_connection(("127.0.0.1", port), 5) as raw,
        context.wrap_socket(raw, server_hostname=name) as tls,
    ):
        return tls.recv(5)


@pytest.mark.parametrize("name", ["fed.example.org", "10.1.2.3", "localhost", "127.0.0.1"])
def test_the_server_is_trusted_under_its_names(keys: Path, port: int, name: str) -> None:
    assert greeting(port, keys / "ca.crt", name) == b"hello"


def test_the_server_is_not_trusted_under_other_names(keys: Path, port: int) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        greeting(port, keys / "ca.crt", "evil.example.org")


def test_another_authority_does_not_vouch_for_it(tmp_path: Path, port: int) -> None:
    make_certificates(tmp_path / "other", ["fed.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError):
        greeting(port, tmp_path / "other" / "ca.crt", "fed.example.org")


def test_both_authorities_in_one_file_allow_a_rotation(keys: Path, tmp_path: Path, port: int) -> None:
    make_certificates(tmp_path / "new")
    both = tmp_path / "both.crt"
    both.write_bytes((tmp_path / "new" / "ca.crt").read_bytes() + (keys / "ca.crt").read_bytes())
    assert greeting(port, both, "localhost") == b"hello"


def test_the_server_cannot_sign_for_others(keys: Path) -> None:
    server = x509.load_pem_x509_certificate((keys / "server.crt").read_bytes())
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    lasts = server.not_valid_after_utc - server.not_valid_before_utc
    assert lasts.days == 730


def test_flower_reads_the_keys_of_sites(keys: Path) -> None:
    pytest.importorskip("flwr")
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    for name in ("clinic", "ward-2"):
        private = serialization.load_ssh_private_key((keys / f"{name}.key").read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert try_load_public_key(keys / f"{name}.pub") == public_key_to_bytes(private.public_key())


def test_private_files_are_for_their_owner(keys: Path) -> None:
    private = sorted(f.name for f in keys.iterdir() if stat.S_IMODE(f.stat().st_mode) == 0o600)
    assert private == ["clinic.key", "server.key", "ward-2.key"]
    assert not any(b"PRIVATE" in f.read_bytes() for f in keys.iterdir() if f.suffix != ".key")


def test_the_authority_key_is_not_kept(keys: Path) -> None:
    authority = x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes()).public_key()
    for file in keys.glob("*.key"):
        raw = file.read_bytes()
        load = serialization.load_ssh_private_key if b"OPENSSH" in raw else serialization.load_pem_private_key
        assert load(raw, None).public_key() != authority  # type: ignore[union-attr]


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    first = make_site_key(tmp_path, "clinic")["clinic.key"].read_bytes()
    for again in (lambda: make_site_key(tmp_path, "clinic"), lambda: make_certificates(tmp_path, sites=["clinic"])):
        with pytest.raises(ConfigError, match="never overwritten"):
            again()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["clinic.key", "clinic.pub"]
    assert (tmp_path / "clinic.key").read_bytes() == first


@pytest.mark.parametrize("place", [".", "", "/", "release", "release/deeper", "file"])
@pytest.mark.parametrize("make", [make_certificates, lambda folder: make_site_key(folder, "clinic")])
def test_keys_get_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, make: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "manifest.json").write_text("{}")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"made to be sent|need their own folder|is not a folder"):
        make(Path(place))
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/ca.crt").exists()


@pytest.mark.parametrize("name", ["", "../x", "a b", "-a", "a-", "x" * 64, "a\n", ".."])
def test_a_site_needs_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name must be"):
        make_certificates(tmp_path / "keys", sites=[name])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hosts": []}, "hosts"),
        ({"hosts": ["fed.example.org:8010"]}, "without a port"),
        ({"sites": ["a", "a"]}, "once"),
        ({"days": 0}, "days"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        make_certificates(tmp_path / "keys", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "keys").exists()
