"""Signatures of releases: Ed25519 keys in files, and a signature over the hashes of manifest and passport."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from locum.errors import ConfigError, FormatError, IntegrityError
from locum.io import create_bytes
from locum.release.manifest import Strict, parse_document

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


SIGNATURE = "signature.json"
_MAX_KEY = 65536

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Signature(Strict):
    """Who vouches for a release: a signature over the hashes of manifest and passport.

    The manifest holds the hashes of decoder and card, the passport those of its other files: two hashes cover all.

    Parameters
    ----------
    format
        Always "locum-signature".
    schema_version
        Always 1.
    algorithm
        Always "Ed25519".
    key
        SHA-256 of the public key.
    files
        SHA-256 of the signed files, by name.
    override
        The signer's reason for signing although the audit's policy is not met; None if it is met, if there is no
        audit, or if the holder refused the release.
    signature
        Covers all other fields.

    Examples
    --------
    >>> from locum.release.passport import Signature
    >>> Signature(key="0" * 64, files={"manifest.json": "0" * 64}, signature="0" * 128).override is None
    True
    """

    format: Literal["locum-signature"] = "locum-signature"
    schema_version: Literal[1] = 1
    algorithm: Literal["Ed25519"] = "Ed25519"
    key: Hash
    files: dict[Literal["manifest.json", "passport.json"], Hash]
    override: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,500}$")] | None = None
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    def message(self) -> bytes:
        """The bytes that are signed: this document without the signature. `format` separates it from other uses."""
        return _canonical(self.model_dump(mode="json", exclude={"signature"}))

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return _canonical(self.model_dump(mode="json")).decode() + "\n"


def parse_signature(raw: bytes) -> Signature:
    """The signature in `raw`, checked in form only: `check_signature` checks who made it."""
    found = parse_document(raw, Signature, SIGNATURE, "signature")
    # There is one valid encoding, so no byte can change unnoticed.
    if found.dumps().encode() != raw:
        raise FormatError(f"{SIGNATURE} is not in the only valid encoding: damaged or altered; ask for it again.")
    return found


def make_signature(files: dict[str, str], key: Ed25519PrivateKey, override: str | None = None) -> Signature:
    """Sign files by their hashes.

    Parameters
    ----------
    files
        SHA-256 of `manifest.json` and, if there is one, of `passport.json`, by name.
    key
        The private key, from `read_private_key`.
    override
        The reason for signing although the policy of the audit is not met; part of what is signed.

    Returns
    -------
    Signature
        The document that is written to `signature.json`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import make_keys, make_signature, read_private_key
    >>> made = make_keys(Path("signer.pem"), Path("signer.pub"))
    >>> signature = make_signature({"manifest.json": "0" * 64}, read_private_key(Path("signer.pem")))
    >>> signature.key == made
    True
    """
    blank: Any = {"key": key_id(key.public_key()), "files": files, "override": override}
    unsigned = Signature(**blank, signature="0" * 128)
    return unsigned.model_copy(update={"signature": key.sign(unsigned.message()).hex()})


def check_signature(signature: Signature, key: Ed25519PublicKey) -> None:
    """Raise unless the owner of `key` made this signature. What it covers must be compared separately.

    Parameters
    ----------
    signature
        The signature.
    key
        The public key of whoever should have made it.

    Raises
    ------
    IntegrityError
        If another key made it, or none did.

    Examples
    --------
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> from locum.release.passport import check_signature, make_signature
    >>> key = Ed25519PrivateKey.generate()
    >>> check_signature(make_signature({"manifest.json": "0" * 64}, key), key.public_key())
    """
    from cryptography.exceptions import InvalidSignature

    if signature.key != key_id(key):
        raise IntegrityError(
            f"The release was signed with the key {signature.key[:16]}, not with the one given, {key_id(key)[:16]}: "
            "ask the sender over another channel which key is theirs."
        )
    try:
        key.verify(bytes.fromhex(signature.signature), signature.message())
    except InvalidSignature:
        raise IntegrityError(
            f"The signature in {SIGNATURE} is false: it was not made with this key. Do not use the release."
        ) from None


def key_id(key: Ed25519PublicKey) -> str:
    """SHA-256 of the key's 32 bytes: short enough to compare by phone.

    Parameters
    ----------
    key
        A public key.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import key_id, make_keys, read_private_key
    >>> made = make_keys(Path("id.pem"), Path("id.pub"))
    >>> key_id(read_private_key(Path("id.pem")).public_key()) == made
    True
    """
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def make_keys(private: Path, public: Path, passphrase: bytes | None = None) -> str:
    """Write a new key pair as PEM and return its id; an existing file is never replaced.

    Only its owner may read the private key. With a passphrase it is also encrypted; without one, whoever has the file
    can sign.

    Parameters
    ----------
    private, public
        Where to write the two keys. A private key inside a release folder is refused.
    passphrase
        Encrypts the private key; None: not encrypted.

    Returns
    -------
    str
        The id of the public key; see `key_id`.

    Raises
    ------
    ConfigError
        If a file exists, or cannot be written there.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import make_keys
    >>> len(make_keys(Path("holder.pem"), Path("holder.pub"), b"a long passphrase"))
    64
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    for path in (private, public):
        if os.path.lexists(path):
            raise ConfigError(f"{str(path)!r} already exists, and a key is never replaced. Choose another name.")
        if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
            raise ConfigError(f"Nothing can be written in {str(path.parent)!r}. Create it, or choose another folder.")
    if (private.absolute().parent / "manifest.json").exists():
        raise ConfigError("A release is made to be sent: keep a private key out of its folder.")
    if passphrase is not None and not passphrase:
        raise ConfigError("The passphrase is empty: give one, or leave it out.")
    key = Ed25519PrivateKey.generate()
    lock = form.NoEncryption() if passphrase is None else form.BestAvailableEncryption(passphrase)
    _write_new(private, key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, lock), 0o600)
    try:
        _write_new(public, _public_pem(key), 0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    return key_id(key.public_key())


def write_public_key(path: Path, private: Ed25519PrivateKey) -> None:
    """Write the public half of a key as PEM; an existing file is never replaced.

    Parameters
    ----------
    path
        Where to write it.
    private
        The key.

    Raises
    ------
    ConfigError
        If the file exists.
    OSError
        If it cannot be written there.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import key_id, make_keys, read_private_key, read_public_key, write_public_key
    >>> made = make_keys(Path("lost.pem"), Path("lost.pub"))
    >>> write_public_key(Path("again.pub"), read_private_key(Path("lost.pem")))
    >>> key_id(read_public_key(Path("again.pub"))) == made
    True
    """
    _write_new(path, _public_pem(private), 0o644)


def _public_pem(private: Ed25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return private.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def read_private_key(path: Path, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Read the private key in a PEM file; refused if others may read the file.

    Parameters
    ----------
    path
        The file, as `make_keys` writes it.
    passphrase
        Decrypts the key; not used if the key is not encrypted.

    Returns
    -------
    Ed25519PrivateKey
        A key of the package `cryptography`, for `make_signature`.

    Raises
    ------
    ConfigError
        If the file cannot be used to sign.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import make_keys, read_private_key
    >>> made = make_keys(Path("locked.pem"), Path("locked.pub"), b"secret")
    >>> read_private_key(Path("locked.pem"))
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: The private key 'locked.pem' has a passphrase: give it (--passphrase-file FILE).
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    raw = _read(path)
    if b"PUBLIC KEY" in raw:
        raise ConfigError(f"{str(path)!r} is a public key, which cannot sign. Give the private key (without .pub).")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ConfigError(f"Others may read the private key {str(path)!r}: run chmod 600 on it, or make a new one.")
    locked = b"ENCRYPTED" in raw
    if locked and passphrase is None:
        raise ConfigError(f"The private key {str(path)!r} has a passphrase: give it (--passphrase-file FILE).")
    try:
        key = load_pem_private_key(raw, passphrase if locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "the passphrase is wrong, or the file is damaged" if locked else "it is not a private key in PEM form"
        raise ConfigError(f"{str(path)!r} cannot be used to sign: {why}.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{str(path)!r} is not an Ed25519 key: make one with `locum keygen`.")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """The public key in a PEM file, as `make_keys` writes it.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Ed25519PublicKey
        The key.

    Raises
    ------
    ConfigError
        If the file holds no such key, or the private one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.release.passport import key_id, make_keys, read_public_key
    >>> made = make_keys(Path("owner.pem"), Path("owner.pub"))
    >>> key_id(read_public_key(Path("owner.pub"))) == made
    True
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    raw = _read(path)
    if b"PRIVATE KEY" in raw:
        raise ConfigError(f"{str(path)!r} is a private key, which stays with its owner. Give the public key (.pub).")
    try:
        key = load_pem_public_key(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{str(path)!r} is not a public key in PEM form, as `locum keygen` writes it.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{str(path)!r} is not an Ed25519 key: ask the sender for the key that they sign with.")
    return key


def _canonical(data: dict[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ConfigError(f"There is no key {str(path)!r}: make one with `locum keygen`, or check the name.")
    if path.stat().st_size > _MAX_KEY:
        raise ConfigError(f"{str(path)!r} is too long to be a key.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The key {str(path)!r} cannot be read: {error.strerror}.") from None


def _write_new(path: Path, raw: bytes, mode: int) -> None:
    """Write a new file with its final permissions from the start."""
    if not create_bytes(path, raw, mode=mode):
        raise ConfigError(f"{str(path)!r} already exists, and a key is never replaced. Choose another name.")
