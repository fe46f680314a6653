"""Whether a set can be learnt from, asked before hours are spent on it."""

from __future__ import annotations

import numpy as np

from understudy.errors import ConfigError, DataError
from understudy.types import EmbeddingSet

__all__ = ["check_trainable"]


def check_trainable(data: EmbeddingSet, min_per_class: int = 2) -> None:
    """Raise `DataError` unless two classes or more have `min_per_class` records each.

    Classes that are named but have no record pass: a part of a file may lack a class that another
    part has. The text shows exact counts, so it belongs on the data holder's screen only.

    Examples
    --------
    >>> from understudy.data import check_trainable, load_sample
    >>> check_trainable(load_sample("digits"))
    """
    if min_per_class < 1:
        raise ConfigError(f"`min_per_class` must be 1 or more; got {min_per_class!r}.")
    counts = data.counts
    present = np.flatnonzero(counts)
    names = data.info.class_names
    if len(present) < 2:
        raise DataError(
            f"All {len(data)} records belong to one class, {names[present[0]]!r}: "
            f"at least two classes are needed, so add records of another."
        )
    short = [c for c in present if counts[c] < min_per_class]
    if short:
        few = int(counts[short[0]])
        more = f" ({len(short)} classes are too small)" if len(short) > 1 else ""
        raise DataError(
            f"Class {names[short[0]]!r} has {few} record{'s' if few > 1 else ''}; at least {min_per_class} are "
            f"needed{more}: add records, merge the class with another, or leave it out."
        )
