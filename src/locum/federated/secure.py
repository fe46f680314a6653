"""Masked sums, of which only the total can be read: each pair of sites shares a mask; one adds it, one subtracts it.

Sites agree on keys by X25519 through the coordinator, who then cannot read the sums of a single site; so all sites
together need no more noise than one alone. This protects against a coordinator who looks, not against one who invents
sites or swaps keys: who takes part must be known by other means. Without the reply of every site nothing can be read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, FormatError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


Words = npt.NDArray[np.uint64]


def colluders(sites: int, share: float) -> int:
    """How many sites may collude with the coordinator: at least one, because each site knows its own sums."""
    return max(1, math.floor(share * sites))


def noise_of_each(total: float, sites: int, share: float) -> float:
    """Noise that each site adds so that the sites that do not collude add up to `total`; variances add.

    >>> round(noise_of_each(3.0, 10, 0.1), 6)
    1.0
    """
    honest = sites - colluders(sites, share)
    if honest < 2:
        raise ConfigError(
            f"Masked sums need at least two honest sites; of {sites} sites only {honest} can be relied on."
        )
    return total / math.sqrt(honest)


def new_key() -> bytes:
    """A private key for one run; it stays at the site."""
    private = _x25519().generate()
    return private.private_bytes_raw()


def public_key(private: bytes) -> str:
    """The public part, which the other sites need."""
    return _x25519().from_private_bytes(private).public_key().public_bytes_raw().hex()


def check_keys(private: bytes, keys: Sequence[str]) -> None:
    """Refuse a list of keys that no mask can be made with; a site does so before it pays."""
    own = public_key(private)
    if not isinstance(keys, list) or own not in keys or len({str(key).lower() for key in keys}) < len(keys):
        raise FormatError(
            "The list of keys lacks this site's own key, or holds a key twice: it is not the list of this run."
        )
    for key in keys:
        _agreed(private, key)


def masked(integers: npt.NDArray[np.int64], private: bytes, keys: Sequence[str], run: str) -> Words:
    """Integers plus the masks shared with each other site in `keys` (all public keys), modulo 2**64.

    Without the other sites' replies it looks like random numbers.
    """
    check_keys(private, keys)
    own = public_key(private)
    out = integers.view(np.uint64).copy()
    for key in keys:
        if key == own:
            continue
        mask = _stream(_agreed(private, key), "\n".join([run, *sorted((own, key))]), len(out))
        # One of each pair adds the mask, the other subtracts it.
        if own < key:
            out += mask
        else:
            out -= mask
    return out


def unmasked(parts: Mapping[str, Words]) -> npt.NDArray[np.int64]:
    """The sum of all integers; if a site of the list is missing, the result is random."""
    total = np.zeros_like(next(iter(parts.values())))
    for part in parts.values():
        total += part
    return total.view(np.int64)


def _agreed(private: bytes, key: str) -> bytes:
    """The secret that two sites share."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return _x25519().from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(key)))
    except (ValueError, TypeError):
        raise FormatError(f"A key in the list is not a valid X25519 key; got {str(key)[:80]!r}.") from None


def _stream(shared: bytes, context: str, words: int) -> Words:
    """Random words that only the two sites can make: AES in counter mode, keyed by secret and context."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = hashlib.sha256(b"locum secure sums\n" + shared + context.encode()).digest()
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * words)), dtype=np.uint64)


def _x25519() -> type[X25519PrivateKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    except ImportError:
        raise ConfigError("Masked sums need cryptography: pip install 'locum[federated]'.") from None
    return X25519PrivateKey
