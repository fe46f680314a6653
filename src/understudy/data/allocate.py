"""How many records of each class go to each part."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

__all__ = ["allocate", "round_shares"]

Counts = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

# Shares such as 0.8 are not exact in binary: 0.8 * 5 must count as 4.
_SLACK = 1e-9


def round_shares(n: int, shares: Shares) -> Counts:
    """Whole numbers that sum to `n`, each within one of its share."""
    ideal = n * shares
    sizes = np.floor(ideal + _SLACK).astype(np.int64)
    order = np.argsort(sizes - ideal, kind="stable")
    sizes[order[: n - int(sizes.sum())]] += 1
    return sizes


def allocate(class_counts: Counts, shares: Shares, keep: int | None = None) -> Counts:
    """A table of classes by parts whose rows sum to `class_counts`.

    Each entry lies within one record of class count times share. The sums over classes equal the
    rounded shares of all records whenever that is possible; where part `keep` is given, each class
    that has records puts at least one there first, even at the cost of those sums.
    """
    ideal = class_counts[:, None] * shares
    low = np.floor(ideal + _SLACK).astype(np.int64)
    high = np.maximum(np.ceil(ideal - _SLACK).astype(np.int64), low)
    if keep is not None:
        low[:, keep] = np.where(class_counts > 0, np.maximum(low[:, keep], 1), 0)
        high[:, keep] = np.maximum(high[:, keep], low[:, keep])
    table = low.copy()
    for c, left in enumerate(class_counts - low.sum(axis=1)):
        open_parts = np.flatnonzero(high[c] > low[c])
        need = ideal[c, open_parts] - low[c, open_parts]
        table[c, open_parts[np.argsort(-need, kind="stable")[:left]]] += 1
    wanted = round_shares(int(class_counts.sum()), shares)
    while _shift(table, low, high, wanted):
        pass
    return table


def _shift(table: Counts, low: Counts, high: Counts, wanted: Counts) -> bool:
    """Move one record from a part with too many to one with too few; False where none can move.

    The move may pass through other parts (a shortest path), so that no entry leaves its bounds.
    By the integrality of flows this finds exact sums whenever some table within the bounds has them.
    """
    surplus = table.sum(axis=0) - wanted
    came: dict[int, tuple[int, int]] = {}
    starts = [int(p) for p in np.flatnonzero(surplus > 0)]
    seen, queue = set(starts), deque(starts)
    while queue:
        a = queue.popleft()
        if surplus[a] < 0:
            while a in came:
                before, c = came[a]
                table[c, before] -= 1
                table[c, a] += 1
                a = before
            return True
        can_give = table[:, a] > low[:, a]
        for b in range(table.shape[1]):
            if b in seen:
                continue
            classes = np.flatnonzero(can_give & (table[:, b] < high[:, b]))
            if len(classes):
                seen.add(b)
                came[b] = (a, int(classes[0]))
                queue.append(b)
    return False
