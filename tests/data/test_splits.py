"""Parts and folds: every record once, no subject twice, every class in its share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.data import kfold, load_sample, split, stratified_split, subject_split
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingInfo, EmbeddingSet

FRACTIONS = [{"train": 0.8, "test": 0.2}, {"train": 0.7, "val": 0.1, "test": 0.2}, {"a": 0.5, "b": 0.5}]


def numbered(labels: list[int], subject: list[int] | None = None) -> EmbeddingSet:
    """A set whose only feature is the record's number, with ten class names."""
    info = EmbeddingInfo(class_names=tuple(str(c) for c in range(10)))
    X = np.arange(len(labels), dtype=float)[:, None]
    return EmbeddingSet(X, np.array(labels), None if subject is None else np.array(subject), info=info)


def numbers(part: EmbeddingSet) -> list[int]:
    return part.X[:, 0].astype(int).tolist()


labels = st.lists(st.integers(0, 4), min_size=25, max_size=80)
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(labels, st.sampled_from(FRACTIONS), seeds)
def test_stratified_every_record_once_and_classes_within_one(
    y: list[int], fractions: dict[str, float], seed: int
) -> None:
    data = numbered(y)
    parts = stratified_split(data, fractions, rng=np.random.default_rng(seed))
    assert list(parts) == list(fractions)
    assert sorted(i for p in parts.values() for i in numbers(p)) == list(range(len(y)))
    for name, part in parts.items():
        assert numbers(part) == sorted(numbers(part))
        assert [y[i] for i in numbers(part)] == part.y.tolist()
        assert (np.abs(part.counts - data.counts * fractions[name]) < 1 + 1e-6).all()
    if "train" in parts:
        assert set(parts["train"].y.tolist()) == set(y)


def test_a_class_of_one_record_goes_to_train_however_small_train_is() -> None:
    data = numbered([0] * 30 + [1, 2, 3])
    for seed in range(10):
        parts = stratified_split(data, {"test": 0.9, "train": 0.1}, rng=np.random.default_rng(seed))
        assert set(parts["train"].y.tolist()) == {0, 1, 2, 3}


@settings(max_examples=60, deadline=None)
@given(labels, st.data(), st.sampled_from(FRACTIONS), seeds)
def test_by_subject_every_record_once_and_no_subject_twice(
    y: list[int], data_: st.DataObject, fractions: dict[str, float], seed: int
) -> None:
    subject = [0, 1, 2, *data_.draw(st.lists(st.integers(0, 15), min_size=len(y) - 3, max_size=len(y) - 3))]
    parts = split(numbered(y, subject), fractions, rng=np.random.default_rng(seed))
    assert sorted(i for p in parts.values() for i in numbers(p)) == list(range(len(y)))
    homes = [{subject[i] for i in numbers(p)} for p in parts.values()]
    assert sum(len(h) for h in homes) == len(set(subject))


def test_by_subject_balance_is_close_with_many_subjects() -> None:
    # Subjects are synthetic: 1-8 records each, of several classes.
    rng = np.random.default_rng(0)
    digits = load_sample("digits")
    subject = np.repeat(np.arange(2000), rng.integers(1, 9, size=2000))[: len(digits)]
    data = EmbeddingSet(digits.X, digits.y, rng.permutation(subject), info=digits.info)
    parts = subject_split(data, {"train": 0.7, "val": 0.1, "test": 0.2}, rng=rng)
    for name, fraction in {"train": 0.7, "val": 0.1, "test": 0.2}.items():
        assert np.abs(parts[name].counts / data.counts - fraction).max() < 0.03


def test_by_subject_a_rare_class_reaches_train() -> None:
    for seed in range(20):
        data = numbered([0] * 40 + [1], [i // 4 for i in range(40)] + [99])
        parts = subject_split(data, {"test": 0.7, "train": 0.3}, rng=np.random.default_rng(seed))
        assert 1 in parts["train"].y


def test_sizes_are_exact_and_the_rest_is_left_out() -> None:
    digits = load_sample("digits")
    parts = split(digits, {"train": 500, "val": 33, "test": 100}, rng=np.random.default_rng(0))
    assert [len(p) for p in parts.values()] == [500, 33, 100]
    assert np.abs(parts["test"].counts - digits.counts * 100 / len(digits)).max() < 1
    whole = split(digits, {"train": 1700, "test": 97}, rng=np.random.default_rng(0))
    assert [len(p) for p in whole.values()] == [1700, 97]


def test_the_generator_decides_and_nothing_else() -> None:
    digits = load_sample("digits")
    a, b, c = (split(digits, rng=np.random.default_rng(s))["test"].X for s in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_every_record_is_equally_likely_to_be_tested() -> None:
    rng = np.random.default_rng(0)
    seen: Counter[int] = Counter()
    for _ in range(300):
        seen.update(
            numbers(stratified_split(numbered([0] * 10 + [1] * 10), {"train": 0.5, "test": 0.5}, rng=rng)["test"])
        )
    assert all(abs(seen[i] / 300 - 0.5) < 0.15 for i in range(20))


@pytest.mark.parametrize(
    ("fractions", "error", "said"),
    [
        ({}, ConfigError, "positive fraction or size"),
        ({"train": 0.0, "test": 1.0}, ConfigError, "positive fraction or size"),
        ({"train": -1, "test": 3}, ConfigError, "positive fraction or size"),
        ({"train": 0.5, "test": 0.4}, ConfigError, "sum to 1"),
        ({"train": 0.5, "test": 5}, ConfigError, "sum to 1"),
        ({"train": 20, "test": 5}, DataError, "ask for 25 records and there are 20"),
        ({"train": 0.999, "test": 0.001}, DataError, "'test' would be empty"),
    ],
)
def test_each_wrong_wish_gets_its_own_sentence(
    fractions: dict[str, float], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        split(numbered([0, 1] * 10), fractions, rng=np.random.default_rng(0))


def test_subject_split_needs_subjects_and_enough_of_them() -> None:
    with pytest.raises(DataError, match="needs `subject`"):
        subject_split(numbered([0, 1]), rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="2 parts need at least 2 subjects; got 1"):
        subject_split(numbered([0, 1], [7, 7]), rng=np.random.default_rng(0))


@settings(max_examples=60, deadline=None)
@given(labels, st.integers(2, 7), seeds)
def test_folds_test_every_record_once_within_one_a_class(y: list[int], k: int, seed: int) -> None:
    data = numbered(y)
    folds = list(kfold(data, k, np.random.default_rng(seed)))
    assert len(folds) == k
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(len(y)))
    for train, test in folds:
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(y)))
        assert test.tolist() == sorted(test.tolist())
    counts = np.array([np.bincount(data.y[test], minlength=5) for _, test in folds])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


@settings(max_examples=60, deadline=None)
@given(labels, st.data(), st.integers(2, 3), seeds)
def test_folds_by_subject_never_share_one(y: list[int], data_: st.DataObject, k: int, seed: int) -> None:
    subject = [0, 1, 2, *data_.draw(st.lists(st.integers(0, 15), min_size=len(y) - 3, max_size=len(y) - 3))]
    who = np.array(subject)
    folds = list(kfold(numbered(y, subject), k, np.random.default_rng(seed)))
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(len(y)))
    for train, test in folds:
        assert len(test) > 0
        assert not set(who[train].tolist()) & set(who[test].tolist())


@pytest.mark.parametrize(("k", "subject"), [(1, None), (5, None), (3, [1, 1, 2, 2])])
def test_a_wrong_number_of_folds_is_refused_at_once(k: int, subject: list[int] | None) -> None:
    with pytest.raises(ConfigError, match=r"`k` must lie in 2\.\."):
        kfold(numbered([0, 1, 0, 1], subject), k, np.random.default_rng(0))
