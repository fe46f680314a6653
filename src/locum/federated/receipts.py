"""Receipts: each site signs what it paid for a run, so that others can check a joint claim without its ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from locum.federated.settings import FederationSettings
from locum.federated.site_keys import key_id

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


def _message(terms: Mapping[str, Any], settings: FederationSettings, run: str) -> bytes:
    paid = {name: terms[name] for name in _SIGNED}
    if "looked" in terms:
        paid["looked"] = terms["looked"]
    body = {"format": "locum-receipt", "version": 1, "run": run, "settings": settings.to_dict(), **paid}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
