"""Substitution: an image is replaced by one of a pool that has the same utility labels."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from locum.errors import DataError

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
Pool = Literal["collages", "donors"]
# Epsilon at a noise of 1.
EPSILON = 10.0
# The fewest images for which a combination of labels gets a pool of its own: two for each quarter.
FEWEST = 8
# The most pool images per combination.
_MOST = 4096
# Images are compared by the sums of this many by this many blocks.
_BLOCKS = 8
# The weight of the nearest image of the pool; 2^40 times a million pool images still fits into 64 bits.
_WHOLE = 2**40
# How many pool images vote where a label is guessed.
_VOTES = 15
# Distances at once.
_PAIRS = 2**24


@dataclass(frozen=True, slots=True, eq=False)
class Substitution:
    """Replaces an image by one of the pool's images with its utility labels, at random, near ones more often.

    The pool's images are ranked by how near they are to the image, and a rank is drawn: rank r of m has a weight of
    exp(-epsilon r / (m - 1)), with epsilon = 10 / `noise`. The distribution of the rank does not depend on the image,
    so every pool image has its probability within a factor of exp(epsilon), whatever the image: `local_epsilon`
    (section 8 of the proofs). Without noise it is the nearest one, with infinite noise any. Nothing but pool images
    ever leaves. `owners` is the row of `combinations` that each belongs to.
    """

    combinations: Codes
    images: npt.NDArray[np.uint8]
    owners: Codes
    pool: Pool

    @classmethod
    def of_collages(cls, images: Array, codes: Codes, rng: np.random.Generator, subject: Array | None = None) -> Self:
        """A pool of collages: four quarters, of four images with the same labels, with blended borders.

        Each image gives one quarter at most, always the same, so no image can be put together again from the pool.
        With `subject`, whose an image is, all images of one subject give the same quarter.
        """
        combinations, which = _frequent(codes, FEWEST)
        given = _given_quarters(which, len(combinations), subject, rng)
        parts = [[np.flatnonzero((which == k) & (given == q)) for q in range(4)] for k in range(len(combinations))]
        full = [k for k, rows in enumerate(parts) if all(map(len, rows))]
        if not full:
            whose = "images" if subject is None else "subjects"
            raise DataError(f"No utility label has {FEWEST} {whose} or more, two per quarter: merge rare labels.")
        combinations, masks, made, owners = combinations[full], quarters(images.shape[2]), [], []
        for k, members in enumerate(parts[old] for old in full):
            # A power of two: the exact number of records is private.
            size = min(_MOST, 1 << (sum(map(len, members)).bit_length() - 1))
            out = np.zeros((size, *images.shape[1:]), dtype=np.float32)
            for mask, rows in zip(masks, members, strict=True):
                out += mask * images[_repeated(rows, size, rng)]
            made.append(_bytes(out))
            owners.append(np.full(size, k, dtype=np.int64))
        return cls(combinations, np.concatenate(made), np.concatenate(owners), "collages")

    @classmethod
    def of_donors(cls, images: Array, codes: Codes) -> Self:
        """A pool of images that may be shown as they are."""
        combinations, which = _frequent(codes, 1)
        order = np.argsort(which, kind="stable")
        return cls(combinations, _bytes(images[order]), which[order], "donors")

    def apply(
        self, images: Array, codes: Codes, noise: float, rng: np.random.Generator | None, plain: float = 1.0
    ) -> Array:
        """A pool image for each image, between 0 and 1. Without an `rng` the operating system's randomness is used.

        `plain`, from 0 to 1, is the probability that it is chosen among those with the same labels; otherwise it is
        chosen among all.
        """
        same = (codes[:, None, :] == self.combinations[None]).all(axis=2)
        row = np.where(same.any(axis=1), same.argmax(axis=1), len(self.combinations))
        among_all = _integers(_WHOLE, len(images), rng) >= round(plain * _WHOLE)
        row[among_all] = len(self.combinations)
        chosen = np.empty(len(images), dtype=np.int64)
        for k in np.unique(row):
            rows, candidates = np.flatnonzero(row == k), self._candidates(int(k))
            weights = rank_weights(len(candidates), noise)
            ends = np.cumsum(weights)
            ranks = np.searchsorted(ends, _integers(int(ends[-1]), len(rows), rng), side="right")
            if math.isinf(noise):
                # All are as likely, whatever the image: no need to look at it.
                chosen[rows] = candidates[ranks]
                continue
            for part, order in self._orders(images[rows], candidates):
                places = np.take_along_axis(order, ranks[part, None], axis=1)[:, 0]
                chosen[rows[part]] = candidates[places]
        out: Array = self.images[chosen].astype(np.float32) / 255
        return out

    def guess(self, images: Array) -> Codes:
        """The combination that most of the fifteen nearest pool images have."""
        everything = np.arange(len(self.images))
        votes = np.zeros((len(images), len(self.combinations)))
        for rows, order in self._orders(images, everything):
            near = self.owners[order[:, :_VOTES]]
            for k in range(len(self.combinations)):
                votes[rows, k] = (near == k).sum(axis=1)
        guessed: Codes = self.combinations[votes.argmax(axis=1)]
        return guessed

    def local_epsilon(self, noise: float, delta: float) -> float:
        """Epsilon of one release of an image against any other image with the same labels, at a delta of 0.

        It holds for images that neither the pool was made from nor are in it. Each further release adds to it. It
        does not cover the utility labels.
        """
        if len(self.images) == 1 or math.isinf(noise):
            return 0.0
        return EPSILON / noise if noise > 0 else math.inf

    @property
    def size(self) -> int:
        """How many numbers the pool has."""
        return int(self.images.size)

    def tensors(self) -> dict[str, Array]:
        """The arrays to save."""
        return {
            "noise.combinations": self.combinations,
            "noise.pool": self.images,
            "noise.owners": self.owners,
        }

    @classmethod
    def restore(cls, tensors: Mapping[str, Array], pool: Pool) -> Self:
        """Undo `tensors`."""
        return cls(tensors["noise.combinations"], tensors["noise.pool"], tensors["noise.owners"], pool)

    def _candidates(self, row: int) -> Codes:
        if row == len(self.combinations):
            return np.arange(len(self.images))
        return np.flatnonzero(self.owners == row)

    def _orders(self, images: Array, candidates: Codes) -> Iterator[tuple[slice, Codes]]:
        """In chunks, the candidates of each image from the nearest to the farthest; of two as near, the first one."""
        theirs = _sums(self.images[candidates])
        lengths = np.square(theirs).sum(axis=1)
        step = max(1, _PAIRS // len(candidates))
        for start in range(0, len(images), step):
            rows = slice(start, start + step)
            # Whole numbers below 2^53: exact in any order, so an image's ranking depends on it alone.
            far = lengths - 2 * (_sums(_bytes(images[rows])) @ theirs.T)
            yield rows, np.argsort(far, axis=1, kind="stable")


def rank_weights(count: int, noise: float) -> Codes:
    """Whole-number weights of the ranks 0 to `count` - 1; the first is at most exp(10 / noise) times the last."""
    if math.isinf(noise) or count == 1:
        return np.ones(count, dtype=np.int64)
    if noise == 0:
        nearest: Codes = np.eye(1, count, dtype=np.int64)[0]
        return nearest
    fall = np.exp(-np.minimum(EPSILON / noise, 700.0) * np.arange(count) / (count - 1))
    # Rounded up, after more than any error of `exp`: a smaller last weight would cost more than epsilon.
    weights: Codes = np.minimum(np.ceil(_WHOLE * fall * (1 + 2.0**-45)), _WHOLE).astype(np.int64)
    return weights


def quarters(side: int) -> npt.NDArray[np.float32]:
    """Four masks (4, side, side) that add up to 1: upper left, upper right, lower left, lower right.

    They change into each other within a sixteenth of the side on both sides of the middle.
    """
    ramp = side // 16
    along = np.clip((np.arange(side) + 0.5 - side / 2 + ramp) / (2 * ramp), 0, 1)
    halves = np.stack([1 - along, along])
    masks: npt.NDArray[np.float32] = (
        np.einsum("iy,jx->ijyx", halves, halves).reshape(4, side, side).astype(np.float32)
    )
    return masks


def _sums(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Sums over 8 x 8 blocks, as whole numbers below 2^16: what images are compared by."""
    n, channels, side, _ = images.shape
    cut = images.reshape(n, channels, _BLOCKS, side // _BLOCKS, _BLOCKS, side // _BLOCKS)
    sums = cut.sum(axis=(3, 5), dtype=np.int64) // max(1, (side // 128) ** 2)
    flat: npt.NDArray[np.float64] = sums.reshape(n, -1).astype(np.float64)
    return flat


def _bytes(images: Array) -> npt.NDArray[np.uint8]:
    pixels: npt.NDArray[np.uint8] = np.rint(images * 255).clip(0, 255).astype(np.uint8)
    return pixels


def _frequent(codes: Codes, fewest: int) -> tuple[Codes, Codes]:
    """The combinations of labels with enough images, and the row of each image's; -1 if it has none."""
    found, which, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    kept = counts >= fewest
    return found[kept], np.where(kept, np.cumsum(kept) - 1, -1)[which.ravel()]


def _given_quarters(which: Codes, combinations: int, subject: Array | None, rng: np.random.Generator) -> Codes:
    """The quarter that each image gives: one per subject, and each quarter from about as many images of a row."""
    whose = np.arange(len(which)) if subject is None else np.unique(subject, return_inverse=True)[1].reshape(-1)
    held = np.zeros((whose.max() + 1, combinations), dtype=np.int64)
    np.add.at(held, (whose[which >= 0], which[which >= 0]), 1)
    given = np.empty(len(held), dtype=np.int64)
    filled = np.zeros((combinations, 4), dtype=np.int64)
    # Who has most images first: the others even out what is left.
    order = rng.permutation(len(held))
    for one in order[np.argsort(-held.sum(axis=1)[order], kind="stable")]:
        given[one] = np.argmin(held[one] @ filled)
        filled[:, given[one]] += held[one]
    out: Codes = given[whose]
    return out


def _repeated(members: Codes, size: int, rng: np.random.Generator) -> Codes:
    """`size` members in random order, each as often as any other or once more."""
    rounds = [rng.permutation(members) for _ in range(-(-size // len(members)))]
    return np.concatenate(rounds)[:size]


def _integers(below: int, count: int, rng: np.random.Generator | None) -> Codes:
    """Even draws from 0 to `below` - 1."""
    if rng is not None:
        return rng.integers(below, size=count)
    return np.array([secrets.randbelow(below) for _ in range(count)], dtype=np.int64)
