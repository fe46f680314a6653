"""A share of records in pieces that takes no part in a fit, the same in every pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from locum.data.whole_subjects import OtherPieces, hashed
from locum.types import Batches, EmbeddingSet, Facts


def hold_out(batches: Batches, share: float, seed: int) -> tuple[Batches, Batches]:
    """Two parts of the records: most of them, and about `share` of them.

    A subject is in one part with all of its records; without subjects, equal vectors are in one part.

    Parameters
    ----------
    batches
        The records.
    share
        The share of the second part, between 0 and 1.
    seed
        Another seed gives other parts.

    Returns
    -------
    kept, held : Batches
        The two parts. Their lengths are counted once, which reads the vectors if there are no subjects.

    Examples
    --------
    >>> from locum.data import hold_out, load_sample
    >>> from locum.types import SetBatches
    >>> kept, held = hold_out(SetBatches(load_sample("digits")), 0.1, seed=0)
    >>> len(kept) + len(held), 100 < len(held) < 260
    (1797, True)
    """
    limit, salt = int(share * 2**32), f"{seed} held out"
    held = 0
    if batches.has_subjects:
        for facts in batches.only(subject=True).facts():
            assert facts.subject is not None, "asked for"
            held += int(_below(hashed(facts.subject), salt, limit).sum())
    else:
        for piece in batches.only(subject=False):
            held += int(_below(_of_vectors(piece.X), salt, limit).sum())
    kept = len(batches) - held
    return _Share(batches, salt, limit, False, kept), _Share(batches, salt, limit, True, held)


def _of_vectors(X: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    """A number for each vector that depends on its bits."""
    # Adding 0 makes -0.0 and 0.0 the same.
    bits = np.ascontiguousarray(X + np.float32(0)).view(np.uint32)
    weights = np.random.default_rng(0).integers(1, 2**63, bits.shape[1], dtype=np.uint64) | np.uint64(1)
    out: npt.NDArray[np.uint64] = (bits * weights).sum(axis=1, dtype=np.uint64)
    return out


def _below(numbers: npt.NDArray[np.uint64], salt: str, limit: int) -> npt.NDArray[np.bool_]:
    """Whether each number, mixed with the salt, falls into the share."""
    key = np.frombuffer(hashlib.sha256(salt.encode()).digest()[:16], dtype=np.uint64)
    mixed = numbers ^ key[0]
    for shift in (np.uint64(33), np.uint64(29)):
        mixed = (mixed ^ (mixed >> shift)) * (key[1] | np.uint64(1))
    out: npt.NDArray[np.bool_] = (mixed >> np.uint64(32)) < np.uint64(limit)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Share(OtherPieces):
    """The records inside or outside of the share."""

    salt: str
    limit: int
    inside: bool
    # Counted once; a part of the data does not know its own.
    rows: int | None

    def __len__(self) -> int:
        return sum(map(len, self)) if self.rows is None else self.rows

    def state(self) -> str:
        """That of the data, and which of them."""
        return repr((self.batches.state(), self.salt, self.limit, self.inside))

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for piece in self.batches:
            numbers = _of_vectors(piece.X) if piece.subject is None else hashed(piece.subject)
            mine = _below(numbers, self.salt, self.limit) == self.inside
            if mine.any():
                yield piece.take(mine)

    def facts(self) -> Iterator[Facts]:
        """The records without their vectors, which must be read to tell whose they are."""
        for piece in self:
            yield Facts(piece.y, piece.subject, piece.attributes)

    def parts(self) -> Sequence[Batches]:
        """One part per part of the data; one may be empty."""
        return [_Share(part, self.salt, self.limit, self.inside, None) for part in self.batches.parts()]

    def only(self, *, subject: bool, attributes: Sequence[str] = ()) -> Batches:
        """The same records; subjects stay where they decide who is held out."""
        lean = self.batches.only(subject=self.batches.has_subjects, attributes=attributes)
        return _Share(lean, self.salt, self.limit, self.inside, self.rows)

    def with_classes(self, names: tuple[str, ...]) -> Batches:
        """The same records with codes in the order of `names`."""
        return _Share(self.batches.with_classes(names), self.salt, self.limit, self.inside, self.rows)
