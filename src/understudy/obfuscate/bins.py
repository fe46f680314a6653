"""Numbers as ranges: every column of a table becomes a choice among values, which can be drawn without distortion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NumberBins"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class NumberBins:
    """A table's matrix <-> the same with one entry for each range of a number, in place of the number.

    Ranges hold about equally many records; a value that many share is a range of its own. A number that comes back is
    drawn evenly from its range. The ends of ranges are values of some records.
    `columns` are the numbers' columns, `low` and `high` the ends of their ranges, one array each.
    """

    width: int
    columns: tuple[int, ...]
    low: tuple[Floats, ...]
    high: tuple[Floats, ...]

    @classmethod
    def fit(cls, Z: Floats, blocks: Sequence[slice], most: int) -> NumberBins:
        """At most about `most` ranges a number, from the rows of a matrix."""
        taken = {j for block in blocks for j in range(block.start, block.stop)}
        columns = tuple(j for j in range(Z.shape[1]) if j not in taken)
        ends = [_ranges(Z[:, j], most) for j in columns]
        return cls(Z.shape[1], columns, tuple(low for low, _ in ends), tuple(high for _, high in ends))

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Where the ranges of each number lie, after what was no number."""
        stops = self.width - len(self.columns) + np.cumsum([0, *(len(low) for low in self.low)])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(stops))

    def split(self, Z: Floats) -> Floats:
        """Everything else first, in its order, then a block for each number."""
        kept = np.delete(Z, self.columns, axis=1)
        parts = [kept]
        for j, low in zip(self.columns, self.low, strict=True):
            block = np.zeros((len(Z), len(low)), dtype=np.float32)
            place = np.clip(np.searchsorted(low, Z[:, j], side="right") - 1, 0, None)
            block[np.arange(len(Z)), place] = 1
            parts.append(block)
        return np.concatenate(parts, axis=1)

    def join(self, Q: Floats, rng: np.random.Generator) -> Floats:
        """Undo `split`, each number drawn from its range."""
        out = np.empty((len(Q), self.width), dtype=np.float32)
        others = [j for j in range(self.width) if j not in set(self.columns)]
        out[:, others] = Q[:, : len(others)]
        for j, block, low, high in zip(self.columns, self.blocks, self.low, self.high, strict=True):
            place = Q[:, block].argmax(axis=1)
            out[:, j] = low[place] + rng.random(len(Q), dtype=np.float32) * (high[place] - low[place])
        return out


def _ranges(values: Floats, most: int) -> tuple[Floats, Floats]:
    found, counts = np.unique(values, return_counts=True)
    starts = np.searchsorted(found, np.unique(np.quantile(values, np.linspace(0, 1, most + 1)[:-1])))
    # What many records share must come back as it was.
    often = np.flatnonzero(counts > len(values) / most)
    cuts = np.unique(np.concatenate([[0], starts, often, often + 1]))
    cuts = cuts[cuts < len(found)]
    stops = np.append(cuts[1:], len(found)) - 1
    return found[cuts].astype(np.float32), found[stops].astype(np.float32)
