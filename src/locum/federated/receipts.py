"""Receipts: each site signs what it paid for a run, so that others can check a joint claim without its ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from locum.errors import ConfigError
from locum.federated.certificates import check_site_name
from locum.federated.settings import FederationSettings

# Epsilon is left out: whoever reads a receipt computes it from the events.
_SIGNED = ("delta", "unit", "relation", "events", "ledger")


def sign_receipt(
    terms: Mapping[str, Any], settings: FederationSettings, run: str, key: EllipticCurvePrivateKey
) -> dict[str, str]:
    """The id of the site's key, and its signature over the payment, the federation's settings and the run's name."""
    signature = key.sign(_message(terms, settings, run), ECDSA(SHA384()))
    return {"key": key_id(key.public_key()), "signature": signature.hex()}


def is_receipt(
    receipt: Any, terms: Mapping[str, Any], settings: FederationSettings, run: str, key: EllipticCurvePublicKey
) -> bool:
    """Whether the owner of `key` signed this payment for this run under these settings."""
    try:
        if receipt["key"] != key_id(key):
            return False
        key.verify(bytes.fromhex(receipt["signature"]), _message(terms, settings, run), ECDSA(SHA384()))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


def key_id(key: EllipticCurvePublicKey) -> str:
    """SHA-256 of a site's public key."""
    return hashlib.sha256(key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)).hexdigest()


def read_site_keys(folder: str | Path) -> dict[str, EllipticCurvePublicKey]:
    """The public keys (`NAME.pub`) in a folder, by site."""
    found: dict[str, EllipticCurvePublicKey] = {}
    for file in sorted(Path(folder).glob("*.pub")):
        name = check_site_name(file.stem)
        try:
            key = load_ssh_public_key(file.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm):
            key = None
        # The curves of NIST, which Flower takes too.
        if not isinstance(key, EllipticCurvePublicKey) or not key.curve.name.startswith("secp"):
            raise ConfigError(
                f"{str(file)!r} is not the public key of a site: make one with `locum federate key`."
            ) from None
        found[name] = key
    if len({key_id(key) for key in found.values()}) < len(found):
        raise ConfigError(f"Two sites have the same public key in {str(folder)!r}: each site needs its own.")
    return found


def read_site_key(file: str | Path) -> EllipticCurvePrivateKey:
    """A site's private key (`NAME.key`), which nobody else may be able to read."""
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


def _message(terms: Mapping[str, Any], settings: FederationSettings, run: str) -> bytes:
    paid = {name: terms[name] for name in _SIGNED}
    if "looked" in terms:
        paid["looked"] = terms["looked"]
    body = {"format": "locum-receipt", "version": 1, "run": run, "settings": settings.to_dict(), **paid}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
