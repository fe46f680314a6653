"""Training and test parts, and folds: by class, and by subject where subjects are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.data.allocate import allocate
from understudy.data.groups import assign_groups, class_table, units
from understudy.errors import ConfigError, DataError
from understudy.types import EmbeddingSet

__all__ = ["each_alone", "kfold", "split", "stratified_split", "subject_split"]

Index = npt.NDArray[np.int64]

_TRAIN_TEST: Mapping[str, float] = MappingProxyType({"train": 0.8, "test": 0.2})


def split(
    data: EmbeddingSet, fractions: Mapping[str, float] = _TRAIN_TEST, *, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """Parts of `data` by subject where subjects are known, and by record otherwise.

    See `subject_split` and `stratified_split`.

    Examples
    --------
    >>> import numpy as np
    >>> from understudy.data import load_sample, split
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

    Every class that has a record has one in the part called "train", if there is such a part; with
    many tiny classes that part may grow beyond its share. Subjects are not looked at: one person
    may end up in several parts, so prefer `split`.

    Parameters
    ----------
    data
        What to part. Records keep their order within a part.
    fractions
        Part names with fractions that sum to 1, or with whole numbers: sizes. Sizes may sum to less
        than all records; the others are left out.
    rng
        Chooses the records.

    Examples
    --------
    >>> import numpy as np
    >>> from understudy.data import load_sample, stratified_split
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


def each_alone(data: EmbeddingSet, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """About `share` of the records, where each record, or each subject, is drawn by a hash of itself alone.

    Nobody's place hangs on who else is there: without one of them all others stay where they are, and what a private
    fit learns from differs by that one. Equal records stay together.
    """
    key, limit = str(seed).encode(), round(share * 2**64)
    if data.subject is None:
        names = [row.tobytes() + label.tobytes() for row, label in zip(data.X, data.y, strict=True)]
    else:
        names = [str(who).encode() for who in data.subject.tolist()]
    drawn = [int.from_bytes(hashlib.blake2b(name, key=key, digest_size=8).digest(), "big") for name in names]
    return np.array([number < limit for number in drawn], dtype=bool)


def subject_split(
    data: EmbeddingSet, fractions: Mapping[str, float] = _TRAIN_TEST, *, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """Parts that share no subject, with about their share of every class.

    A subject may have records of several classes. Balance is greedy and approximate: a subject is
    never cut to improve it, so sizes differ from what was asked by about one subject or more. Every
    class reaches the part called "train" unless that would empty another part.

    Parameters
    ----------
    data
        Must have `subject`.
    fractions
        As for `stratified_split`; sizes are met approximately.
    rng
        Breaks ties between subjects with equally many records.

    Examples
    --------
    >>> import numpy as np
    >>> from understudy.data import subject_split
    >>> from understudy.types import EmbeddingSet
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
    nobody is in the train and the test part of one pair, and balance is approximate.

    Examples
    --------
    >>> import numpy as np
    >>> from understudy.data import kfold, load_sample
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
        # Dealt like cards, class after class: every run of one class is spread evenly.
        shuffled = rng.permutation(len(data))
        dealt = shuffled[np.argsort(data.y[shuffled], kind="stable")]
        fold = np.empty(len(data), dtype=np.int64)
        fold[dealt] = np.arange(len(data)) % k
    else:
        fold = assign_groups(class_table(unit, data), np.full(k, 1 / k), rng, k)[unit]
    return ((np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k))


def _shares(fractions: Mapping[str, float], n: int) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Names, and a share for each; where sizes leave records over, one share more."""
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
