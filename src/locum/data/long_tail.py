"""Long-tailed subsets of a data set, as in the literature on class imbalance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from locum.errors import ConfigError, DataError
from locum.types import EmbeddingSet


def long_tail_counts(n_max: int, classes: int, ratio: float) -> list[int]:
    """Records by class, from `n_max` for the first down to `n_max / ratio` for the last.

    Class i of C gets the whole part of n_max * (1 / ratio) ** (i / (C - 1)), as in CIFAR-10-LT
    and CIFAR-100-LT.

    Parameters
    ----------
    n_max
        Size of the first class, at least `ratio`.
    classes
        Number of classes, 1 or more.
    ratio
        Size of the first class over size of the last, 1 or more.

    Returns
    -------
    list of int
        Size of each class, largest first.

    Examples
    --------
    >>> from locum.data import long_tail_counts
    >>> long_tail_counts(5000, 10, ratio=100)
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    if classes < 1:
        raise ConfigError(f"`classes` must be 1 or more; got {classes!r}.")
    if not 1 <= ratio < float("inf"):
        raise ConfigError(f"`ratio` must be 1 or more; got {ratio!r}. 1 keeps all classes equally large.")
    if n_max < ratio:
        raise ConfigError(
            f"`n_max` must be at least `ratio`, or the rarest class is empty; got {n_max!r} and {ratio!r}."
        )
    # The last bit of a power must not cost a record: 49.999999999999993 stands for 50.
    guard = 1 + 1e-12
    return [int(n_max * (1 / ratio) ** (i / max(classes - 1, 1)) * guard) for i in range(classes)]


def make_long_tail(
    data: EmbeddingSet,
    ratio: float,
    rng: np.random.Generator,
    order: Sequence[int] | None = None,
    n_max: int | None = None,
) -> EmbeddingSet:
    """A part of `data` whose classes shrink by `ratio` from the first in `order` to the last.

    Records are drawn without replacement and keep their order. A subject may lose some of its records.

    Parameters
    ----------
    data
        Every class needs as many records as its place in the tail requires.
    ratio
        Size of the first class over size of the last, 1 or more.
    rng
        Chooses the records.
    order
        Class codes from the most frequent to the rarest. None: in the order of their numbers.
    n_max
        Size of the first class. None: all its records.

    Returns
    -------
    EmbeddingSet
        The chosen records, with sizes as `long_tail_counts` gives them.

    Raises
    ------
    DataError
        If a class has too few records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, make_long_tail
    >>> make_long_tail(load_sample("digits"), ratio=10, rng=np.random.default_rng(0)).counts.tolist()
    [178, 137, 106, 82, 63, 49, 38, 29, 22, 17]
    """
    names, counts = data.info.class_names, data.counts
    codes = list(range(len(names))) if order is None else [int(c) for c in order]
    if sorted(codes) != list(range(len(names))):
        raise ConfigError(f"`order` must name each class code 0..{len(names) - 1} once; got {codes!r}.")
    head = int(counts[codes[0]]) if n_max is None else n_max
    wanted = long_tail_counts(head, len(names), ratio)
    chosen = []
    for code, n in zip(codes, wanted, strict=True):
        if counts[code] < n:
            raise DataError(
                f"Class {names[code]!r} has {int(counts[code])} records and its place in the tail needs {n}: "
                f"put it later in `order`, or lower `n_max` (now {head})."
            )
        chosen.append(rng.choice(np.flatnonzero(data.y == code), size=n, replace=False))
    return data.take(np.sort(np.concatenate(chosen)))
