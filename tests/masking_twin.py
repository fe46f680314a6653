"""Masked sums a second time, as docs/explain/masked-sums.md describes them, slowly and with the standard library.

HKDF is made of `hmac`, X25519 is the ladder of RFC 7748, Shamir's polynomial is a sum of powers; only AES is from
`cryptography`. It shares no code with the package.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

P25519, PRIME = 2**255 - 19, 2**256 + 297


def canonical(message: str, **fields: Any) -> bytes:
    body = {"format": "locum-masks", "version": 1, "message": message, **fields}
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def hkdf(secret: bytes, info: bytes) -> bytes:
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def x25519(scalar: bytes, point: bytes) -> bytes:
    """Montgomery's ladder."""
    k = int.from_bytes(scalar, "little") & ~7 & ~(1 << 255) | 1 << 254
    u = int.from_bytes(point, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in range(254, -1, -1):
        swap = k >> bit & 1
        if swap:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P25519, b * b % P25519, d * a % P25519, c * b % P25519
        x3, z3 = (da + cb) ** 2 % P25519, u * (da - cb) ** 2 % P25519
        e = aa - bb
        x2, z2 = aa * bb % P25519, e * (aa + 121665 * e) % P25519
        if swap:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, P25519 - 2, P25519) % P25519).to_bytes(32, "little")


def public(private: bytes) -> bytes:
    return x25519(private, (9).to_bytes(32, "little"))


def counter_stream(key: bytes, length: int) -> bytes:
    """AES of 0, 1, 2 ... as 16 bytes each, most significant first."""
    blocks = b"".join(i.to_bytes(16, "big") for i in range(-(-length // 16)))
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)[:length]


def shares(secret: bytes, key: bytes, threshold: int, holders: int) -> dict[str, str]:
    stream = counter_stream(key, 48 * (threshold - 1))
    terms = [int.from_bytes(secret, "big")]
    terms += [int.from_bytes(stream[48 * i : 48 * i + 48], "big") for i in range(threshold - 1)]
    values = {x: sum(c * x**i for i, c in enumerate(terms)) % PRIME for x in range(1, holders + 1)}
    return {str(x): value.to_bytes(33, "big").hex() for x, value in values.items()}


def derived(v: dict[str, Any], site: str) -> dict[str, Any]:
    """Everything that a site makes from its master secret."""
    master, holders = bytes.fromhex(v["masters"][site]), len(v["masters"])
    threshold, steps = holders - v["absent"], range(v["steps"])

    def label(message: str, **fields: Any) -> bytes:
        return hkdf(master, canonical(message, run=v["run"], terms=v["terms"], site=site, **fields))

    masks, seeds = [label("mask key", step=k) for k in steps], [label("self mask", step=k) for k in steps]
    return {
        "encryption_private": label("encryption key").hex(),
        "encryption": public(label("encryption key")).hex(),
        "mask_privates": [m.hex() for m in masks],
        "masks": [public(m).hex() for m in masks],
        "self_masks": [s.hex() for s in seeds],
        "commitments": [hashlib.sha256(canonical("commitment") + s).hexdigest() for s in seeds],
        "shares": {
            kind: [shares(secrets[k], label("coefficients", step=k, kind=kind), threshold, holders) for k in steps]
            for kind, secrets in (("self", seeds), ("pair", masks))
        },
    }


def body(v: dict[str, Any], site: str) -> dict[str, Any]:
    """What a site signs when it announces itself."""
    keys = {name: v["derived"][site][name] for name in ("encryption", "masks", "commitments")}
    head = {"run": v["run"], "terms": v["terms"], "parameters": v["parameters"], "site": site}
    return json.loads(canonical("announcement", **head, **keys))


def announcements(v: dict[str, Any]) -> str:
    return hashlib.sha256(canonical("announcements", list=[body(v, s) for s in sorted(v["masters"])])).hexdigest()


def blob(v: dict[str, Any], sender: str, receiver: str) -> str:
    mine, theirs = v["derived"][sender], v["derived"][receiver]
    agreed = x25519(bytes.fromhex(mine["encryption_private"]), bytes.fromhex(theirs["encryption"]))
    fields = {"run": v["run"], "terms": v["terms"], "sender": sender, "receiver": receiver}
    key = hkdf(agreed, canonical("shares", **fields, announcements=v["announcements"]))
    holder = str(sorted(v["masters"]).index(receiver) + 1)
    plain = "".join(mine["shares"][kind][k][holder] for k in range(v["steps"]) for kind in ("self", "pair"))
    return AESGCM(key).encrypt(bytes(12), bytes.fromhex(plain), None).hex()


def context(v: dict[str, Any]) -> str:
    fields = {name: v[name] for name in ("run", "terms", "announcements", "step", "query")}
    participants, words = sorted(v["masters"]), len(v["total"])
    return hashlib.sha256(canonical("context", **fields, participants=participants, words=words)).hexdigest()


def self_stream(v: dict[str, Any], site: str) -> list[int]:
    seed = bytes.fromhex(v["derived"][site]["self_masks"][v["step"]])
    return _numbers(v, hkdf(seed, canonical("self stream", site=site, context=v["context"])))


def pair_stream(v: dict[str, Any], one: str, other: str) -> list[int]:
    mine, theirs = v["derived"][one], v["derived"][other]
    k = v["step"]
    agreed = x25519(bytes.fromhex(mine["mask_privates"][k]), bytes.fromhex(theirs["masks"][k]))
    return _numbers(v, hkdf(agreed, canonical("pair stream", sites=sorted((one, other)), context=v["context"])))


def masked(v: dict[str, Any], site: str) -> list[int]:
    out = [x + m for x, m in zip(v["integers"][site], self_stream(v, site), strict=True)]
    for other in v["masters"]:
        if other != site:
            sign = 1 if site < other else -1
            out = [x + sign * m for x, m in zip(out, pair_stream(v, site, other), strict=True)]
    return [x % 2**64 for x in out]


def _numbers(v: dict[str, Any], key: bytes) -> list[int]:
    stream = counter_stream(key, 8 * len(v["total"]))
    return [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8)]
