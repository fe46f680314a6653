"""Merging cells into groups by noisy counts. No record is involved: it costs nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.generate.table.columns import Codes, Column

Floats = npt.NDArray[np.float64]
# A category is a group of its own if its noisy count is so many standard deviations of the noise above 0.
_CLEAR = 4.0


def merge_cells(column: Column, counts: Floats, noise: float, most: int) -> Codes:
    """The group of each cell, about `most` groups that hold about equally many records.

    Neighboring ranges of a number are merged, and a value that many records share stays alone. Rare categories are
    merged into one group. Missing values are a group of their own.

    Parameters
    ----------
    column
        The column.
    counts
        Its noisy counts, one per cell.
    noise
        The standard deviation of their noise.
    most
        About how many groups, 2 or more.

    Returns
    -------
    ndarray of int64
        The group of each cell, numbered from 0 without gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.table import NumberColumn, merge_cells
    >>> age = NumberColumn.within("age", 0, 5, whole=True)
    >>> merge_cells(age, np.array([50.0, 1, 1, 20, 20, 10]), 0.1, 3).tolist()
    [0, 1, 1, 1, 1, 2]
    """
    ordered = column.ordered
    if not ordered:
        return _categories(counts, noise, most, column.missing)
    out = np.full(column.cells, -1, dtype=np.int64)
    group, held = 0, 0.0
    # Noise below this is not a record.
    seen = np.where(counts > _CLEAR * noise, counts, 0.0) if counts.sum() <= 0 else np.maximum(counts, 0.0)
    if len(ordered) > most:
        target = seen[list(ordered)].sum() / most
        for cell in ordered:
            alone = counts[cell] >= target and counts[cell] > _CLEAR * noise
            # A frequent value closes the group before it.
            if held > 0 and (alone or held + counts[cell] / 2 >= target):
                group, held = group + 1, 0.0
            out[cell] = group
            held += float(counts[cell])
            held = max(held, 0.0)
            if alone:
                group, held = group + 1, 0.0
    else:
        out[list(ordered)] = np.arange(len(ordered))
    if column.missing:
        out[column.cells - 1] = out.max() + 1
    found: Codes = np.unique(out, return_inverse=True)[1].astype(np.int64)
    return found


def _categories(counts: Floats, noise: float, most: int, missing: bool) -> Codes:
    last = len(counts) - missing
    order = np.argsort(-counts[:last], kind="stable")
    clear = counts[order] > _CLEAR * noise
    kept = order[: most - 1][clear[: most - 1]] if last > most else order[clear]
    out = np.full(len(counts), len(kept), dtype=np.int64)
    out[np.sort(kept)] = np.arange(len(kept))
    if missing:
        out[last] = len(counts)
    found: Codes = np.unique(out, return_inverse=True)[1].astype(np.int64)
    return found


def within_groups(counts: Floats, group: Codes, noise: float) -> Floats:
    """The distribution over cells within each group, from noisy counts: each group's part sums to 1."""
    # Counts that noise explains count less; an empty group is uniform.
    positive = np.maximum(counts - noise, 0.0)
    total = np.bincount(group, weights=positive)
    size = np.bincount(group)
    flat = total[group] <= 0
    return np.where(flat, 1.0 / size[group], positive / np.where(flat, 1.0, total[group]))
