"""Shamir's secret sharing: any t shares give a secret back, and t - 1 shares say nothing about it.

Secrets are 32 bytes, read as numbers with the most significant byte first. Shares are numbers modulo the smallest
prime above 2**256. Holders are numbered from 1. Nothing here takes constant time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from locum.errors import FormatError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
# 384 bits modulo a prime of 257 bits: the most likely value is at most 1 + 2**-127 times as likely as the least.
COEFFICIENT_BYTES = 48
# One wrong share needs at most t + 1 tries, two need about t * t / 2. A try takes about 2 ms for 50 holders.
_MOST_TRIES = 1200


@dataclass(frozen=True)
class Recovered:
    """A secret, and the holders whose shares do not lie on its polynomial."""

    secret: bytes
    wrong: tuple[int, ...]


def split(secret: bytes, randomness: bytes, holders: Iterable[int]) -> dict[int, int]:
    """The shares of a secret by holder: the values of a polynomial whose constant term is the secret.

    Each 48 bytes of `randomness` give one more coefficient. The threshold is one more than the coefficients.

    >>> shares = split(bytes(31) + b"*", bytes(47) + bytes([5]), [1, 2, 3])
    >>> shares
    {1: 47, 2: 52, 3: 57}
    """
    if len(secret) != SECRET_BYTES or len(randomness) % COEFFICIENT_BYTES:
        raise FormatError("A shared secret has 32 bytes, and 48 random bytes for each further coefficient.")
    coefficients = [
        int.from_bytes(randomness[i : i + COEFFICIENT_BYTES], "big") % PRIME
        for i in range(0, len(randomness), COEFFICIENT_BYTES)
    ]
    constant = int.from_bytes(secret, "big")
    shares = {}
    for holder in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value + coefficient) * holder % PRIME
        shares[holder] = (value + constant) % PRIME
    return shares


def combine(shares: Mapping[int, int]) -> bytes | None:
    """The secret that these shares give; None if it has more than 32 bytes, so that some share must be wrong.

    >>> combine({1: 47, 3: 57})[-1:]
    b'*'
    """
    value = _value(shares, tuple(sorted(shares)), 0)
    return value.to_bytes(SECRET_BYTES, "big") if value < 1 << 8 * SECRET_BYTES else None


def recover(
    shares: Mapping[int, int], threshold: int, is_secret: Callable[[bytes], bool], suspects: Iterable[int] = ()
) -> Recovered | None:
    """The secret that satisfies `is_secret`, from shares of which some may be wrong; None if it is not found.

    All sets of one holder are left out in turn, then all sets of two, and so on, up to 1200 attempts; `suspects`
    come last, so that a holder who was wrong before costs no further search. The secret is right in any case. One
    wrong holder is always named rightly; several who work together can make the shares of others look wrong.
    """
    late = set(suspects)
    order = sorted(shares, key=lambda holder: (holder in late, holder))
    subsets = (
        [holder for holder in order if holder not in left_out][:threshold]
        for count in range(len(order) - threshold + 1)
        for left_out in itertools.combinations(order[: threshold + count], count)
    )
    for used in itertools.islice(subsets, _MOST_TRIES):
        good = {holder: shares[holder] for holder in used}
        secret = combine(good)
        if secret is not None and is_secret(secret):
            points = tuple(sorted(good))
            return Recovered(secret, tuple(h for h in sorted(shares) if _value(good, points, h) != shares[h]))
    return None


def encode(share: int) -> bytes:
    """A share as 33 bytes."""
    return share.to_bytes(SHARE_BYTES, "big")


def decode(raw: bytes) -> int:
    """Undo `encode`; refuse anything that is not a share."""
    value = int.from_bytes(raw, "big")
    if len(raw) != SHARE_BYTES or value >= PRIME:
        raise FormatError("A share is a number of 33 bytes below the prime.")
    return value


def _value(shares: Mapping[int, int], points: tuple[int, ...], at: int) -> int:
    """The value at one point of the polynomial through all shares."""
    return sum(w * shares[p] for w, p in zip(_weights(points, at), points, strict=True)) % PRIME


# One step recovers a secret per site from the same holders.
@lru_cache(maxsize=256)
def _weights(points: tuple[int, ...], at: int) -> Sequence[int]:
    out = []
    for i in points:
        above, below = 1, 1
        for j in points:
            if i != j:
                above = above * (at - j) % PRIME
                below = below * (i - j) % PRIME
        out.append(above * pow(below, -1, PRIME) % PRIME)
    return out
