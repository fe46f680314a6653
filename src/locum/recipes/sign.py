"""`keygen` and `sign`: a holder signs a release with a private key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locum.errors import ConfigError, PolicyError
from locum.recipes.verify import verify_opened_release
from locum.release import (
    OpenedRelease,
    Verification,
    audit_refuses,
    audit_sentence,
    holder_refuses,
    open_release,
)
from locum.release.passport import (
    SIGNATURE,
    Signature,
    key_id,
    make_keys,
    make_signature,
    read_private_key,
    write_passport_files,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class KeySummary:
    """Where the two keys are, and the id of the pair."""

    private: str
    public: str
    key: str
    encrypted: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SignSummary:
    """Which release was signed, over which hashes, with which key, and what was checked first."""

    path: str
    key: str
    files: dict[str, str]
    verified: Verification

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "path": self.path,
            "key": self.key,
            "files": self.files,
            "fingerprint": self.verified.fingerprint,
            "passport": self.verified.passport,
            "audit": self.verified.audit,
            "decision": self.verified.decision,
            "override": self.verified.override,
            "checks": list(self.verified.checks),
        }


def make_key_pair(path: Path, *, passphrase: bytes | None = None) -> KeySummary:
    """Write a private key, which only its owner can read, and the public key beside it.

    Parameters
    ----------
    path
        File of the private key; the public key has `.pub` added to the name. Neither is overwritten.
    passphrase
        Encrypts the private key; None: it is not encrypted.

    Returns
    -------
    KeySummary
        `private` and `public`, the two files, `key`, the id of the pair, and `encrypted`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_key_pair
    >>> make_key_pair(Path("holder"), passphrase=b"correct horse").public
    'holder.pub'
    """
    if not path.name:
        raise ConfigError(f"KEY is the name of a file to write; got {str(path)!r}. Give one such as holder.pem.")
    public = path.with_name(path.name + ".pub")
    key = make_keys(path, public, passphrase)
    return KeySummary(str(path), str(public), key, passphrase is not None)


def sign_release(
    release: Path,
    key: Path,
    *,
    passphrase: bytes | None = None,
    override: str | None = None,
    overwrite: bool = False,
) -> SignSummary:
    """Write a signature over manifest and passport into a release that passes every check of `verify`.

    A signature says who vouches for these bytes, not that they are harmless. A release whose events cost more than it
    claims is not signed. Without a passport the signature covers the manifest alone; writing a passport removes it.

    Parameters
    ----------
    release
        Folder of the release.
    key
        File of the private key; it must not be inside the release.
    passphrase
        What the key was encrypted with, if it was.
    override
        The reason for signing although the audit in the passport found a leak or its policy is not met. It is part of
        the signature, and `verify` shows it.
    overwrite
        Replace a signature that is there.

    Returns
    -------
    SignSummary
        `path`, the id of the `key`, the `files` with the signed hashes, and what was `verified` first.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, make_key_pair, sign_release, verify_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-sign"), no_dp=True).release
    >>> pair = make_key_pair(Path("signer"))
    >>> signed = sign_release(release, Path(pair.private))
    >>> verify_release(release, key=Path(pair.public)).signed_by == signed.key
    True
    """
    private = read_signing_key(release, key, passphrase)
    opened = open_release(release)
    verified = verify_opened_release(opened)
    passport_files = opened.passport_files
    if passport_files.signature is not None and not overwrite:
        raise ConfigError(f"{str(release)!r} is signed already: use --force to sign it again.")
    signature = sign_opened(opened, private, override)
    write_passport_files(release, {SIGNATURE: signature.dumps().encode()})
    verified = replace(verified, override=override)
    return SignSummary(str(release), key_id(private.public_key()), passport_files.hashes, verified)


def read_signing_key(release: Path, key: Path, passphrase: bytes | None) -> Ed25519PrivateKey:
    """The private key, which must not be inside the release."""
    if release.resolve() in key.resolve().parents:
        raise ConfigError("The private key is inside the release, which is made to be sent: move it out first.")
    return read_private_key(key, passphrase)


def sign_opened(opened: OpenedRelease, private: Ed25519PrivateKey, override: str | None) -> Signature:
    """A signature over manifest and passport of a release that was verified; nothing is written."""
    _check_override(opened, override)
    return make_signature(opened.passport_files.hashes, private, override)


def _check_override(opened: OpenedRelease, override: str | None) -> None:
    """A release against its holder's own policy is signed only for a reason that everyone can read.

    A refusal needs none: the passport says itself that the release must not be used.
    """
    passport = opened.passport_files.passport
    against = audit_refuses(passport) and not holder_refuses(passport)
    if against and override is None:
        raise PolicyError(
            f"The audit in the passport says: {audit_sentence(passport)}. To sign nevertheless, give a reason with "
            "--override REASON: it becomes part of the signature, and receivers see it."
        )
    if override is not None and not against:
        why = "that the holder did not refuse and " if holder_refuses(passport) else ""
        raise ConfigError(f"--override is for a release {why}whose audit does not meet its policy: leave it out.")
    if override is not None and not (override.strip() and len(override) <= 500 and override.isprintable()):
        raise ConfigError(f"--override takes up to 500 printable letters; got {override[:80]!r}.")


def read_passphrase(path: Path) -> bytes:
    r"""Read a passphrase of 1 to 1024 bytes from a file, without the line ending.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    bytes
        The passphrase.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import read_passphrase
    >>> _ = Path("passphrase.txt").write_text("correct horse\n")
    >>> read_passphrase(Path("passphrase.txt"))
    b'correct horse'
    """
    try:
        # From a pipe too, but a device has no end.
        with path.open("rb") as stream:
            raw = stream.read(2000)
    except OSError as error:
        raise ConfigError(f"The passphrase cannot be read from {str(path)!r}: {error.strerror}.") from None
    found = raw.rstrip(b"\r\n")
    if not found or len(found) > 1024:
        raise ConfigError(f"{str(path)!r} must hold a passphrase of 1 to 1024 bytes.")
    return found
