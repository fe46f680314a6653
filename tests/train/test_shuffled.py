"""Records in pieces: every record once per epoch, in an order that a seed repeats, with a fixed share held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from locum.train import ClassMoments, HeldOut, ShuffledRows, held_out_records, record_units, seeded, survey
from locum.types import Batches, EmbeddingInfo, EmbeddingSet

INFO = EmbeddingInfo(class_names=("a", "b"))


@dataclass(frozen=True)
class Parts:
    """Records in parts of given sizes, each read in pieces of at most `rows`."""

    data: EmbeddingSet
    sizes: tuple[int, ...]
    rows: int = 7

    info = INFO
    attribute_names = ()

    @property
    def dim(self) -> int:
        return self.data.dim

    @property
    def has_subjects(self) -> bool:
        return self.data.subject is not None

    def __len__(self) -> int:
        return sum(self.sizes)

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for start in range(0, len(self), self.rows):
            yield self.data.take(range(start, min(start + self.rows, len(self))))

    def parts(self) -> Sequence[Batches]:
        sized = zip(self.sizes, np.cumsum(self.sizes), strict=True)
        return [Parts(self.data.take(range(end - n, end)), (n,), self.rows) for n, end in sized]


def numbered(sizes: Sequence[int], per_subject: int | None = None) -> Parts:
    """Record i has the vector (i, -i)."""
    i = np.arange(sum(sizes))
    subject = None if per_subject is None else i // per_subject
    return Parts(EmbeddingSet(np.stack([i, -i], axis=1), i % 2, subject, info=INFO), tuple(sizes))


def read(piece: EmbeddingSet) -> tuple[np.ndarray, np.ndarray]:
    return piece.X, piece.y[:, None]


def ids(epoch: list[tuple[np.ndarray, np.ndarray]]) -> list[int]:
    return [int(x) for X, _ in epoch for x in X[:, 0]]


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    batch=st.integers(1, 20),
    buffer=st.integers(0, 3000),
)
def test_an_epoch_gives_every_record_once_with_its_label(sizes: list[int], batch: int, buffer: int) -> None:
    rows = ShuffledRows(numbered(sizes).parts(), read, batch, buffer=buffer)
    epoch = list(rows(seeded(0)))
    assert sorted(ids(epoch)) == list(range(sum(sizes)))
    for X, codes in epoch:
        assert (codes[:, 0] == X[:, 0] % 2).all()
        assert (X[:, 1] == -X[:, 0]).all()
    counts = [len(X) for X, _ in epoch]
    assert set(counts[:-1]) <= {batch}
    # Batch normalization cannot use a single record.
    assert counts[-1] <= batch + 1
    assert counts[-1] > 1 or sum(sizes) == 1


def test_the_order_follows_from_the_generator_at_the_start_of_an_epoch_alone() -> None:
    rows = ShuffledRows(numbered([50] * 20).parts(), read, 32, buffer=200 * 8)
    rng, other = seeded(3), seeded(3)
    first, second = ids(list(rows(rng))), ids(list(rows(rng)))
    assert first != second
    # What a loss draws while an epoch runs does not change its order, and a restored generator gives it again.
    state = other.get_state()
    seen = []
    for X, _ in rows(other):
        torch.rand(5, generator=other)
        seen += X[:, 0].astype(int).tolist()
    assert seen == first
    again = torch.Generator()
    again.set_state(state)
    assert ids(list(rows(again))) == first


def test_rows_are_mixed_far_beyond_their_part() -> None:
    # Sorted by class: without mixing over parts, a minibatch would hold one class.
    n, part = 8000, 100
    i = np.arange(n)
    data = Parts(EmbeddingSet(np.stack([i, -i], axis=1), (i >= n // 2).astype(int), info=INFO), (part,) * (n // part))
    epoch = list(ShuffledRows(data.parts(), read, 64, buffer=2000 * 8)(seeded(0)))
    shares = np.array([codes.mean() for _, codes in epoch])
    assert shares.std() < 0.15
    spread = np.array([X[:, 0].std() for X, _ in epoch]) / (n / np.sqrt(12))
    assert spread.min() > 0.6


def test_an_order_of_everything_is_uniform_if_the_buffer_holds_it() -> None:
    rows, rng = ShuffledRows(numbered([4, 3, 5]).parts(), read, 5), seeded(0)
    places = np.zeros((12, 12))
    for _ in range(3000):
        for place, record in enumerate(ids(list(rows(rng)))):
            places[record, place] += 1
    # 250 are expected in each cell, with a standard deviation of 15.
    assert np.abs(places - 250).max() < 80


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=10),
    per_subject=st.sampled_from([None, 1, 3, 25]),
    key=st.integers(0, 2**63 - 1),
)
def test_what_is_held_out_and_what_is_trained_on_are_all_records_and_share_no_subject(
    sizes: list[int], per_subject: int | None, key: int
) -> None:
    data = numbered(sizes, per_subject)
    parts = data.parts()
    held = survey(parts, read, 2, key).held_out()
    trained = set(ids(list(ShuffledRows(parts, read, 8, held)(seeded(1)))))
    assert trained == set(ids(list(ShuffledRows(parts, read, 8, held).in_order())))
    out = set() if held is None else {int(x) for piece in held_out_records(parts, held) for x in piece.X[:, 0]}
    assert trained | out == set(range(len(data)))
    assert not trained & out
    # No class is held out as a whole, and none that has fewer than ten records.
    for c in (0, 1):
        own = {i for i in range(len(data)) if i % 2 == c}
        assert not own or own & trained
        assert len(own) >= 10 or not own & out
    units = len(data) if per_subject is None else -(-len(data) // per_subject)
    if per_subject is not None:
        assert not {i // per_subject for i in out} & {i // per_subject for i in trained}
    if per_subject in (None, 1) and len(data) >= 20:
        assert len(out) == round(units / 10)


@pytest.mark.parametrize("per_subject", [None, 3])
def test_the_held_out_share_of_very_many_records_is_limited(
    monkeypatch: pytest.MonkeyPatch, per_subject: int | None
) -> None:
    monkeypatch.setattr("locum.train.shuffled._MOST_HELD", 1500)
    data = numbered([50_000, 40_000], per_subject)
    data = Parts(data.data, data.sizes, rows=9000)
    held = survey(data.parts(), read, 2, 5).held_out()
    assert held is not None
    out = held_out_records(data.parts(), held)
    assert sum(map(len, out)) == pytest.approx(1500, rel=0.15)
    trained = sum(len(X) for X, _ in ShuffledRows(data.parts(), read, 64, held)(seeded(0)))
    assert trained + sum(map(len, out)) == 90_000


def test_numbers_of_records_are_even_and_depend_on_the_key() -> None:
    piece = EmbeddingSet(np.zeros((20_000, 1)), np.zeros(20_000, int))
    units = record_units(piece, 3, 100, key=1)
    assert len(np.unique(units)) == len(units)
    counts, _ = np.histogram(units.astype(np.float64) / 2**64, bins=20, range=(0, 1))
    assert np.abs(counts - 1000).max() < 160
    assert not np.isin(units, record_units(piece, 3, 100, key=2)).any()
    assert not np.isin(units, record_units(piece, 4, 100, key=1)).any()
    np.testing.assert_array_equal(units[10:], record_units(piece.take(range(19_990)), 3, 110, key=1))


def test_a_spared_unit_is_not_held_out() -> None:
    held = HeldOut(0, 100, np.array([7], np.uint64))
    assert held.mask(np.array([7, 8, 100, 101], np.uint64)).tolist() == [False, True, True, False]


@given(cuts=st.lists(st.integers(0, 90), max_size=5), shift=st.sampled_from([0.0, 1e4]))
def test_moments_of_pieces_are_those_of_the_whole(cuts: list[int], shift: float) -> None:
    rng = np.random.default_rng(len(cuts))
    X = (rng.normal(size=(90, 3)) + shift).astype(np.float32)
    y = rng.integers(0, 3, size=90)
    pieces = np.split(np.arange(90), sorted(cuts))
    one, other = ClassMoments.empty(4, 3), ClassMoments.empty(4, 3)
    for k, i in enumerate(pieces):
        if len(i):
            (one if k % 2 else other).add(X[i], y[i])
    one.merge(other)
    wide = X.astype(np.float64)
    assert one.counts.tolist() == np.bincount(y, minlength=4).tolist()
    found = one
    np.testing.assert_allclose(found.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, wide.var(axis=0), rtol=1e-9)
    for c in range(3):
        np.testing.assert_allclose(found.means[c], wide[y == c].mean(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(found.low[c], X[y == c].min(axis=0))
        np.testing.assert_array_equal(found.high[c], X[y == c].max(axis=0))
    np.testing.assert_allclose(found.within, np.square(wide - found.means[y]).sum(axis=0), rtol=1e-9)
