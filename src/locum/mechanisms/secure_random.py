"""The coins of privacy: who joins a batch, the noise, and the latent noise of a CVAE.

They come from OpenSSL's generator (AES in counter mode, keyed and re-keyed by the operating system): whoever could
foresee them could take the noise away again. Latent noise is among them because it is dealt out by place in a batch:
to somebody who knew it, one record more would show in all records behind it. Weights at the start need no such care:
they are there before any record is looked at.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_63_BITS = 2**63 - 1
_STREAMS = {"members": 0, "noise": 1, "latent": 2}


class Draw(NamedTuple):
    """The coins of one step: positions of the units that join, in order; noise (float64); latent noise by row."""

    members: npt.NDArray[np.int64]
    noise: Tensor
    latent: Tensor


class SecureRandom:
    """Coins for steps of DP-SGD over units of `counts` rows each.

    Each unit joins with probability `rate` by a coin of 63 bits of its own. Noise has `values` numbers of standard
    deviation `std`, latent noise `latent` standard normal numbers a row. `insecure_seed` makes every step repeatable,
    and then nothing is private.
    """

    def __init__(
        self,
        counts: npt.NDArray[np.int64],
        rate: float,
        values: int,
        std: float,
        *,
        latent: int = 0,
        dtype: torch.dtype = torch.float32,
        insecure_seed: int | None = None,
    ) -> None:
        self._counts, self._values, self._std, self._latent, self._dtype = counts, values, std, latent, dtype
        # Coins are compared as whole numbers: a rate of 1 takes all of them, without a special case.
        self._last_to_join = round(rate * 2**63) - 1
        self._insecure_seed = insecure_seed
        # One in use and two ahead.
        self._buffers = [torch.empty(1, values + values % 2, dtype=torch.float64) for _ in range(3)]

    def steps(self, start: int, stop: int) -> Iterator[Draw]:
        """The draws of steps `start` to `stop`, made ahead by a thread; each holds until the next is asked for."""
        with ThreadPoolExecutor(1, "coins") as pool:
            ready: list[Future[Draw]] = []
            for step in range(start, stop):
                while len(ready) < 3 and step + len(ready) < stop:
                    ready.append(pool.submit(self.draw, step + len(ready)))
                yield ready.pop(0).result()

    def draw(self, step: int) -> Draw:
        """The coins of one step; the third draw after this one overwrites its noise."""
        joins = (self._words("members", step, len(self._counts)) & _63_BITS) <= self._last_to_join
        members = np.flatnonzero(joins)
        noise = self._buffers[step % 3]
        normals(self._words("noise", step, noise.numel()), self._std, noise)
        # Row by row, so that a row's latent noise does not hang on how many rows follow.
        latent = torch.empty(int(self._counts[members].sum()), self._latent + self._latent % 2, dtype=torch.float64)
        normals(self._words("latent", step, latent.numel()), 1.0, latent)
        return Draw(members, noise[0, : self._values], latent[:, : self._latent].to(self._dtype))

    def _words(self, stream: Literal["members", "noise", "latent"], step: int, count: int) -> npt.NDArray[np.int64]:
        if self._insecure_seed is None:
            return np.frombuffer(ssl.RAND_bytes(8 * count), dtype=np.int64)
        # One stream for each step and use: a test that is killed and resumed, or gets a unit more, meets the same.
        bits = np.random.SFC64(np.random.SeedSequence([self._insecure_seed, step, _STREAMS[stream]]))
        return bits.random_raw(count).view(np.int64)


def normals(words: npt.NDArray[np.int64], std: float, out: Tensor) -> None:
    """Fill the rows of `out`, of even length, with normal numbers made of as many random words (Box and Muller).

    Float64 throughout. The radius comes from a uniform number of 63 bits that is never 0 and is finest near 0, so
    that tails are right up to nine standard deviations, where they end.
    """
    half = out.shape[1] // 2
    pairs = words.reshape(len(out), 2, half)
    radius = (pairs[:, 0] & _63_BITS) + 0.5
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0 * std**2
    np.sqrt(radius, out=radius)
    angle = torch.from_numpy(pairs[:, 1] * (math.pi * 2.0**-63))
    length = torch.from_numpy(radius)
    torch.mul(length, torch.cos(angle), out=out[:, :half])
    torch.mul(length, torch.sin(angle), out=out[:, half:])
