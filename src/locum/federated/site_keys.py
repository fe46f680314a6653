"""Names and keys of sites: who a site is, for the coordinator, for other sites and for readers of a release."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from locum.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

SITE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def check_site_name(name: str) -> str:
    """The name, if a site may have it: it becomes a file name and is shown to everyone."""
    if not isinstance(name, str) or not SITE_NAME.fullmatch(name):
        raise ConfigError(f"A site's name must be 1 to 63 letters, digits and inner hyphens; got {str(name)[:80]!r}.")
    return name


def key_id(key: EllipticCurvePublicKey) -> str:
    """SHA-256 of a site's public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)).hexdigest()


@lru_cache(maxsize=4096)
def read_public_key(name: str, text: str) -> EllipticCurvePublicKey:
    """The public key of a site from the text of its NAME.pub; an error that names the site if it is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    # The curves of NIST, which Flower takes too.
    if not isinstance(key, EllipticCurvePublicKey) or not key.curve.name.startswith("secp"):
        raise ConfigError(
            f"The entry of {name!r} is not the public key of a site: make one with `locum federate key`."
        )
    return key


def read_site_keys(folder: str | Path) -> dict[str, EllipticCurvePublicKey]:
    """The public keys (`NAME.pub`) in a folder, by site."""
    texts = read_key_texts(folder)
    found = {name: read_public_key(name, text) for name, text in texts.items()}
    if len({key_id(key) for key in found.values()}) < len(found):
        raise ConfigError(f"Two sites have the same public key in {str(folder)!r}: each site needs its own.")
    return found


def read_key_texts(folder: str | Path) -> dict[str, str]:
    """The texts of the public keys (`NAME.pub`) in a folder, by site."""
    texts: dict[str, str] = {}
    for file in sorted(Path(folder).glob("*.pub")):
        try:
            texts[check_site_name(file.stem)] = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                f"{str(file)!r} is not the public key of a site: make one with `locum federate key`."
            ) from None
    return texts


def read_site_key(file: str | Path) -> EllipticCurvePrivateKey:
    """A site's private key (`NAME.key`), which nobody else may be able to read."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    path = Path(file)
    try:
        raw, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"The key {str(file)!r} cannot be read: {error.strerror}.") from None
    if mode & 0o077:
        raise ConfigError(f"Others may read the private key {str(file)!r}: run chmod 600 on it.")
    try:
        key = load_ssh_private_key(raw, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError(f"{str(file)!r} is not the private key of a site: make one with `locum federate key`.")
    return key
