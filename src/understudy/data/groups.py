"""Sending whole subjects to parts, so that nobody stands on two sides."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError
from understudy.types import EmbeddingSet

__all__ = ["assign_groups", "class_table", "units"]

Counts = npt.NDArray[np.int64]


def units(data: EmbeddingSet) -> Counts:
    """For each record, the number of what must stay together: its subject, or itself alone."""
    if data.subject is None:
        return np.arange(len(data))
    return np.unique(data.subject, return_inverse=True)[1].astype(np.int64)


def class_table(unit: Counts, data: EmbeddingSet) -> Counts:
    """Records of each unit (row) by class (column)."""
    classes = len(data.info.class_names)
    flat = np.bincount(unit * classes + data.y, minlength=(int(unit.max()) + 1) * classes)
    return flat.reshape(-1, classes)


def assign_groups(
    table: Counts,
    shares: npt.NDArray[np.float64],
    rng: np.random.Generator,
    needed: int,
    keep: int | None = None,
) -> Counts:
    """A part for each group so that each part holds about its share of every class.

    Greedy: the largest group first, to the part that is least full in that group's classes; small
    groups even out the rest. Fullness is relative to the share, so a small part gets large groups
    too. Balance is approximate and may be poor with few groups. The first `needed` parts get one
    group at least. With `keep`, each class reaches that part unless this would empty another.
    """
    if len(table) < needed:
        raise DataError(f"{needed} parts need at least {needed} subjects; got {len(table)}: ask for fewer parts.")
    total = np.maximum(table.sum(axis=0), 1)
    filled = np.zeros((len(shares), table.shape[1]))
    part = np.empty(len(table), dtype=np.int64)
    shuffled = rng.permutation(len(table))
    for g in shuffled[np.argsort(-table[shuffled].sum(axis=1), kind="stable")]:
        weight = table[g] / total
        # Half of the group counts as already there: without it small parts would overflow.
        fullness = (filled + weight / 2) @ weight / shares
        part[g] = np.argmin(fullness)
        filled[part[g]] += weight
    _fill_empty(part, table, needed)
    if keep is not None:
        _reach_all_classes(part, table, keep, needed)
    return part


def _fill_empty(part: Counts, table: Counts, needed: int) -> None:
    """Give each needed part that is empty the smallest group of the part with most groups."""
    for p in range(needed):
        if not (part == p).any():
            rich = np.flatnonzero(part == np.argmax(np.bincount(part)))
            part[rich[np.argmin(table[rich].sum(axis=1))]] = p


def _reach_all_classes(part: Counts, table: Counts, keep: int, needed: int) -> None:
    """Fetch one group of each class that part `keep` lacks."""
    for c in np.flatnonzero(table.sum(axis=0)):
        if table[part == keep, c].any():
            continue
        groups = np.bincount(part, minlength=needed)
        able = [g for g in np.flatnonzero(table[:, c]) if part[g] >= needed or groups[part[g]] > 1]
        if able:
            part[min(able, key=lambda g: int(table[g].sum()))] = keep
