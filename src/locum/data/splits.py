"""Splits and folds: stratified by class, and by subject where subjects are known.

The functions that callers use come first, then the two algorithms behind them: `assign_groups` keeps subjects
together and balances classes greedily; `allocate` rounds the sizes of a stratified split exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.types import EmbeddingSet

Counts = npt.NDArray[np.int64]
Index = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
_TRAIN_TEST: Mapping[str, float] = MappingProxyType({"train": 0.8, "test": 0.2})
# Shares such as 0.8 are not exact in binary: 0.8 * 5 must count as 4.
_SLACK = 1e-9


def split(
    data: EmbeddingSet, fractions: Mapping[str, float] = _TRAIN_TEST, *, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """Parts of `data`: by subject if subjects are known, by record otherwise.

    See `subject_split` and `stratified_split`.

    Parameters
    ----------
    data
        Data to split. Records keep their order within a part.
    fractions
        Part names with fractions that sum to 1, or with whole numbers: sizes.
    rng
        Chooses the records.

    Returns
    -------
    dict of str to EmbeddingSet
        The parts by name; none is empty.

    Raises
    ------
    DataError
        If there are too few records or subjects.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, split
    >>> parts = split(load_sample("digits"), rng=np.random.default_rng(0))
    >>> {name: len(part) for name, part in parts.items()}
    {'train': 1438, 'test': 359}
    """
    by = stratified_split if data.subject is None else subject_split
    return by(data, fractions, rng=rng)


def stratified_split(
    data: EmbeddingSet, fractions: Mapping[str, float] = _TRAIN_TEST, *, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """Parts in which every class has its share, within one record.

    Every class with records has one in the part called "train", if there is such a part; with many
    tiny classes that part may exceed its share. Subjects are ignored: one subject may end up in
    several parts, so prefer `split`.

    Parameters
    ----------
    data
        Data to split. Records keep their order within a part.
    fractions
        Part names with fractions that sum to 1, or with whole numbers: sizes. Sizes may sum to less
        than all records; the others are left out.
    rng
        Chooses the records.

    Returns
    -------
    dict of str to EmbeddingSet
        The parts by name; none is empty.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, stratified_split
    >>> parts = stratified_split(load_sample("digits"), {"train": 1000, "test": 500}, rng=np.random.default_rng(0))
    >>> len(parts["train"]), len(parts["test"])
    (1000, 500)
    """
    names, shares = _shares(fractions, len(data))
    table = allocate(data.counts, shares, _train(names))
    part = np.empty(len(data), dtype=np.int64)
    for c, row in enumerate(table):
        members = rng.permutation(np.flatnonzero(data.y == c))
        part[members] = np.repeat(np.arange(len(shares)), row)
    return _parts(data, names, part)


def subject_split(
    data: EmbeddingSet, fractions: Mapping[str, float] = _TRAIN_TEST, *, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """Parts that share no subject, with about their share of every class.

    A subject may have records of several classes. Balance is greedy and approximate: subjects are
    never split to improve it, so sizes may be off by one subject or more. Every class reaches the
    part called "train" unless that would empty another part.

    Parameters
    ----------
    data
        Must have `subject`.
    fractions
        As for `stratified_split`; sizes are met approximately.
    rng
        Breaks ties between subjects with equally many records.

    Returns
    -------
    dict of str to EmbeddingSet
        The parts by name; none is empty.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import subject_split
    >>> from locum.types import EmbeddingSet
    >>> data = EmbeddingSet.from_arrays(np.eye(6), list("aabbab"), subject=[1, 1, 2, 2, 3, 3])
    >>> parts = subject_split(data, {"train": 0.5, "test": 0.5}, rng=np.random.default_rng(0))
    >>> set(parts["train"].subject) & set(parts["test"].subject)
    set()
    """
    if data.subject is None:
        raise DataError("A split by subject needs `subject`, which these data lack: add it, or use stratified_split.")
    names, shares = _shares(fractions, len(data))
    unit = units(data)
    part = assign_groups(class_table(unit, data), shares, rng, len(names), _train(names))
    return _parts(data, names, part[unit])


def kfold(data: EmbeddingSet, k: int, rng: np.random.Generator) -> Iterator[tuple[Index, Index]]:
    """`k` pairs of sorted positions (train, test); each record is in exactly one test part.

    Without subjects, folds differ by at most one record overall and in each class. With subjects,
    no subject is in the train and the test part of one pair, and balance is approximate.

    Parameters
    ----------
    data
        Data to split.
    k
        Number of folds, from 2 to the number of records or, if they are known, of subjects.
    rng
        Chooses the records.

    Returns
    -------
    iterator of (ndarray, ndarray)
        For each fold, positions of its train and of its test records.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import kfold, load_sample
    >>> folds = kfold(load_sample("digits"), 5, np.random.default_rng(0))
    >>> [len(test) for _, test in folds]
    [360, 360, 359, 359, 359]
    """
    unit = units(data)
    most = int(unit.max()) + 1
    if not 2 <= k <= most:
        what = "records" if data.subject is None else "subjects"
        raise ConfigError(f"`k` must lie in 2..{most}, the number of {what}; got {k!r}.")
    if data.subject is None:
        # Dealt in turn, class after class: every class is spread evenly over the folds.
        shuffled = rng.permutation(len(data))
        dealt = shuffled[np.argsort(data.y[shuffled], kind="stable")]
        fold = np.empty(len(data), dtype=np.int64)
        fold[dealt] = np.arange(len(data)) % k
    else:
        fold = assign_groups(class_table(unit, data), np.full(k, 1 / k), rng, k)[unit]
    return ((np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k))


def check_trainable(data: EmbeddingSet, min_per_class: int = 2) -> None:
    """Raise `DataError` unless two classes or more have `min_per_class` records each.

    Named classes without records pass: one split of a file may lack a class that another has. The
    message shows exact counts, so it is for the data holder only.

    Parameters
    ----------
    data
        Data to check.
    min_per_class
        Least number of records of a class that has any, 1 or more.

    Raises
    ------
    DataError
        If there is only one class, or a class is too small.

    Examples
    --------
    >>> from locum.data import check_trainable, load_sample
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


def units(data: EmbeddingSet) -> Counts:
    """The unit of each record, as an integer: its subject, or the record itself."""
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
    """A part for each group such that each part holds about its share of every class.

    Greedy: the largest group first, to the part that is least full in that group's classes; small
    groups even out the rest. Fullness is relative to the share, so a small part gets large groups
    too. Balance is approximate and may be poor with few groups. The first `needed` parts get at
    least one group. With `keep`, each class reaches that part unless this would empty another.
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
    """Give each empty part among the first `needed` the smallest group of the part with most groups."""
    for p in range(needed):
        if not (part == p).any():
            rich = np.flatnonzero(part == np.argmax(np.bincount(part)))
            part[rich[np.argmin(table[rich].sum(axis=1))]] = p


def _reach_all_classes(part: Counts, table: Counts, keep: int, needed: int) -> None:
    """Move one group of each class that part `keep` lacks into it."""
    for c in np.flatnonzero(table.sum(axis=0)):
        if table[part == keep, c].any():
            continue
        groups = np.bincount(part, minlength=needed)
        able = [g for g in np.flatnonzero(table[:, c]) if part[g] >= needed or groups[part[g]] > 1]
        if able:
            part[min(able, key=lambda g: int(table[g].sum()))] = keep


def round_shares(n: int, shares: Shares) -> Counts:
    """Integers that sum to `n`, each within one of its share.

    Parameters
    ----------
    n
        The sum, 0 or more.
    shares
        Fractions that sum to 1.

    Returns
    -------
    ndarray of shape (len(shares),)
        Integers; the largest remainders are rounded up.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import round_shares
    >>> round_shares(10, np.array([0.55, 0.25, 0.2])).tolist()
    [6, 2, 2]
    """
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
    """Move one record from a part with too many to one with too few; False if none can move.

    The move may pass through other parts (a shortest path), so that no entry leaves its bounds.
    By the integrality of flows this finds exact sums whenever a table within the bounds has them.
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


def _shares(fractions: Mapping[str, float], n: int) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Names and their shares; one more share if the sizes leave records over."""
    values: list[Any] = list(fractions.values())
    if not values or not all(v > 0 for v in values):
        raise ConfigError(f"Every part needs a positive fraction or size; got {dict(fractions)!r}.")
    if all(isinstance(v, int | np.integer) for v in values):
        over = n - sum(values)
        if over < 0:
            raise DataError(f"The parts ask for {sum(values)} records and there are {n}: ask for fewer.")
        return list(fractions), np.array([*values, over] if over else values, dtype=np.float64) / n
    if abs(sum(values) - 1) > 1e-6:
        raise ConfigError(f"Fractions must sum to 1, or all be whole numbers (sizes); got {dict(fractions)!r}.")
    return list(fractions), np.array(values, dtype=np.float64) / sum(values)


def _train(names: list[str]) -> int | None:
    return names.index("train") if "train" in names else None


def _parts(data: EmbeddingSet, names: list[str], part: Index) -> dict[str, EmbeddingSet]:
    for i, name in enumerate(names):
        if not (part == i).any():
            raise DataError(f"Part {name!r} would be empty with {len(data)} records: give it a larger share.")
    return {name: data.take(np.flatnonzero(part == i)) for i, name in enumerate(names)}
