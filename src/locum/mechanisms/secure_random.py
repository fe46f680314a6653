"""Secure randomness for DP-SGD: which units join a batch, the noise, and the latent noise of a CVAE.

It comes from OpenSSL's generator (AES in counter mode, keyed by the operating system): whoever could predict it could
subtract the noise. Latent noise is included because it is assigned by position in a batch: to an attacker who knew
it, one more record would show in all records after it. Initial weights need no such care: they are drawn before any
record is read.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
CosSin = Callable[[Floats], tuple[Floats, Floats]]
_63_BITS = 2**63 - 1
_STREAMS = {"members": 0, "noise": 1, "latent": 2}


class Draw(NamedTuple):
    """The randomness of one step: positions of the units that join, in order; noise; latent noise per row."""

    members: npt.NDArray[np.int64]
    noise: Floats
    latent: npt.NDArray[np.floating]


def cos_sin(angle: Floats) -> tuple[Floats, Floats]:
    """Cosine and sine by numpy."""
    return np.cos(angle), np.sin(angle)


class SecureRandom:
    """Randomness for the steps of DP-SGD, from the generator of OpenSSL that the operating system keys.

    It decides which units join a batch and draws the noise, so it must stay secret.

    Parameters
    ----------
    counts
        Rows per unit.
    rate
        Probability with which each unit joins a step, by its own 63 random bits.
    values
        How many noise values a step needs: one per parameter of the model.
    std
        Standard deviation of the noise.
    latent
        How many standard normal numbers each row gets, for the latent noise of a CVAE.
    dtype
        Type of the latent noise.
    insecure_seed
        Makes every step repeatable, for tests: nothing is private then. None: secure randomness.
    cos_sin
        Computes cosine and sine; a faster function may differ from numpy's in the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.mechanisms import SecureRandom
    >>> random = SecureRandom(np.array([1, 2, 1]), rate=1.0, values=5, std=2.0)
    >>> step = random.draw(0)
    >>> step.members.tolist(), step.noise.shape
    ([0, 1, 2], (5,))
    """

    def __init__(
        self,
        counts: npt.NDArray[np.int64],
        rate: float,
        values: int,
        std: float,
        *,
        latent: int = 0,
        dtype: npt.DTypeLike = np.float32,
        insecure_seed: int | None = None,
        cos_sin: CosSin = cos_sin,
    ) -> None:
        self._counts, self._values, self._std, self._latent, self._dtype = counts, values, std, latent, dtype
        # Compared as integers, so that a rate of 1 takes every unit without a special case.
        self._last_to_join = round(rate * 2**63) - 1
        self._insecure_seed, self._cos_sin = insecure_seed, cos_sin
        # One in use and two ahead.
        self._buffers = [np.empty((1, values + values % 2)) for _ in range(3)]

    def steps(self, start: int, stop: int) -> Iterator[Draw]:
        """The draws of steps `start` to `stop`, prepared by a thread; each is valid until the next is requested."""
        with ThreadPoolExecutor(1, "secure-random") as pool:
            ready: list[Future[Draw]] = []
            for step in range(start, stop):
                while len(ready) < 3 and step + len(ready) < stop:
                    ready.append(pool.submit(self.draw, step + len(ready)))
                yield ready.pop(0).result()

    def draw(self, step: int) -> Draw:
        """The randomness of one step; the third draw after this one overwrites its noise."""
        joins = (self._words("members", step, len(self._counts)) & _63_BITS) <= self._last_to_join
        members = np.flatnonzero(joins)
        noise = self._buffers[step % 3]
        normals(self._words("noise", step, noise.size), self._std, noise, self._cos_sin)
        # Row by row, so that a row's latent noise does not depend on how many rows follow.
        latent = np.empty((int(self._counts[members].sum()), self._latent + self._latent % 2))
        normals(self._words("latent", step, latent.size), 1.0, latent, self._cos_sin)
        return Draw(members, noise[0, : self._values], latent[:, : self._latent].astype(self._dtype))

    def _words(self, stream: Literal["members", "noise", "latent"], step: int, count: int) -> npt.NDArray[np.int64]:
        if self._insecure_seed is None:
            return np.frombuffer(ssl.RAND_bytes(8 * count), dtype=np.int64)
        # One stream per step and use, so that a test that is resumed or gets one more unit sees the same numbers.
        bits = np.random.SFC64(np.random.SeedSequence([self._insecure_seed, step, _STREAMS[stream]]))
        return bits.random_raw(count).view(np.int64)


def normals(words: npt.NDArray[np.int64], std: float, out: Floats, cos_sin: CosSin = cos_sin) -> None:
    """Fill the rows of `out`, of even length, with normal numbers from as many random words (Box and Muller).

    The radius comes from a 63-bit uniform number that is never 0 and is finest near 0, so the tails are right up to
    nine standard deviations, where they end.
    """
    half = out.shape[1] // 2
    pairs = words.reshape(len(out), 2, half)
    radius = (pairs[:, 0] & _63_BITS) + 0.5
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0 * std**2
    np.sqrt(radius, out=radius)
    angle: Floats = pairs[:, 1] * np.float64(math.pi * 2.0**-63)
    cosine, sine = cos_sin(angle)
    np.multiply(radius, cosine, out=out[:, :half])
    np.multiply(radius, sine, out=out[:, half:])
