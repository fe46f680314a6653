"""Shamir's sharing against a plain twin: powers for the polynomial, fractions for the interpolation."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import FormatError
from locum.federated.secret_sharing import PRIME, combine, decode, encode, recover, split

secrets = st.binary(min_size=32, max_size=32)


def shares_by_powers(secret: bytes, coefficients: list[int], holders: list[int]) -> dict[int, int]:
    terms = [int.from_bytes(secret, "big"), *coefficients]
    return {x: sum(c * x**power for power, c in enumerate(terms)) % PRIME for x in holders}


def secret_by_fractions(shares: dict[int, int]) -> int:
    """Lagrange over the rationals, reduced modulo the prime only at the end."""
    total = Fraction(0)
    for i, share in shares.items():
        weight = Fraction(1)
        for j in shares:
            if i != j:
                weight *= Fraction(-j, i - j)
        total += share * weight
    return total.numerator * pow(total.denominator, -1, PRIME) % PRIME


def randomness(coefficients: list[int]) -> bytes:
    return b"".join(c.to_bytes(48, "big") for c in coefficients)


def test_the_prime_is_the_first_above_32_bytes() -> None:
    def is_prime(n: int) -> bool:  # Miller and Rabin, with the first twelve primes as bases
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
            x = pow(base, odd, n)
            if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
                return False
        return True

    assert [n for n in range(2**256, PRIME + 1) if is_prime(n)] == [PRIME]


@given(secrets, st.lists(st.integers(0, 2**384 - 1), max_size=6), st.data())
@settings(max_examples=60)
def test_shares_and_secret_equal_the_plain_twin(secret: bytes, coefficients: list[int], data: st.DataObject) -> None:
    threshold = len(coefficients) + 1
    count = data.draw(st.integers(threshold, threshold + 5))
    shares = split(secret, randomness(coefficients), range(1, count + 1))
    assert shares == shares_by_powers(secret, coefficients, list(range(1, count + 1)))
    some = data.draw(st.permutations(sorted(shares)))[:threshold]
    assert combine({x: shares[x] for x in some}) == secret
    assert secret_by_fractions({x: shares[x] for x in some}) == int.from_bytes(secret, "big")


@given(secrets, secrets, st.integers(2, 6), st.binary(min_size=240, max_size=240))
@settings(max_examples=40)
def test_one_share_too_few_fits_every_secret(one: bytes, other: bytes, threshold: int, noise: bytes) -> None:
    """For each other secret there is a polynomial with the same t - 1 shares: they say nothing."""
    shares = split(one, noise[: 48 * (threshold - 1)], range(1, threshold))
    # The other secret is one more point, at 0; where t points are given, there is a share for holder t too.
    moved = {x - threshold: value for x, value in {0: int.from_bytes(other, "big"), **shares}.items()}
    assert combine({**shares, threshold: secret_by_fractions(moved)}) == other


def spoil(shares: dict[int, int], wrong: set[int] | tuple[int, ...], rng: np.random.Generator) -> dict[int, int]:
    return {x: int.from_bytes(rng.bytes(32), "big") if x in wrong else share for x, share in shares.items()}


@given(st.integers(2, 7), st.integers(0, 3), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=60)
def test_wrong_shares_are_found_as_long_as_enough_are_right(
    threshold: int, extra: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    secret = rng.bytes(32)
    shares = split(secret, rng.bytes(48 * (threshold - 1)), range(1, threshold + extra + 1))
    wrong = data.draw(st.sets(st.sampled_from(sorted(shares)), max_size=extra))
    spoiled = spoil(shares, wrong, rng)
    found = recover(spoiled, threshold, secret.__eq__)
    assert found is not None
    assert found.secret == secret
    assert found.wrong == tuple(sorted(wrong))
    assert recover(spoiled, threshold, secret.__eq__, suspects=wrong) == found


def test_two_who_lie_together_can_shift_the_blame_but_not_the_secret() -> None:
    rng = np.random.default_rng(4)
    secret = rng.bytes(32)
    shares = split(secret, rng.bytes(48 * 2), range(1, 6))
    # The weights of holders 1, 2 and 3 at 0 are 3, -3 and 1: equal errors of 1 and 2 cancel there.
    shares[1], shares[2] = shares[1] + 9, shares[2] + 9
    found = recover(shares, 3, secret.__eq__)
    assert found is not None
    assert found.secret == secret
    assert found.wrong == (4, 5)


def test_too_many_wrong_shares_give_nothing() -> None:
    rng = np.random.default_rng(0)
    secret = rng.bytes(32)
    shares = split(secret, rng.bytes(48 * 2), range(1, 6))
    for wrong in itertools.combinations(shares, 3):
        assert recover(spoil(shares, wrong, rng), 3, secret.__eq__) is None
    assert recover(dict(list(shares.items())[:2]), 3, secret.__eq__) is None


def test_fifty_holders_with_two_wrong_shares() -> None:
    rng = np.random.default_rng(1)
    secret = rng.bytes(32)
    shares = split(secret, rng.bytes(48 * 44), range(1, 51))
    shares[3], shares[40] = 17, 18
    found = recover(shares, 45, secret.__eq__)
    assert found is not None
    assert found.wrong == (3, 40)


@given(st.integers(0, PRIME - 1))
def test_a_share_survives_the_bytes(share: int) -> None:
    assert decode(encode(share)) == share


@pytest.mark.parametrize("raw", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "big"), b"\xff" * 33])
def test_what_is_no_share_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match="33 bytes"):
        decode(raw)


def test_a_secret_has_32_bytes() -> None:
    with pytest.raises(FormatError, match="32 bytes"):
        split(b"short", b"", [1])
    with pytest.raises(FormatError, match="48 random bytes"):
        split(bytes(32), bytes(47), [1])
