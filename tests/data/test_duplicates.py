"""Copies: found by content, against a naive twin; dropped so that no unit moves the records of others."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.data import (
    Reference,
    copies_of,
    count_copies_of,
    count_duplicates,
    drop_duplicates,
    find_duplicates,
    list_copies,
)
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate.private import query_sums
from locum.types import DP, EmbeddingSet, SetBatches

RECORD = DP(1.0, 1e-6, n_public=100)
SUBJECT = DP(1.0, 1e-6, unit="subject", n_public=100)
# Few values: copies everywhere. A record is a vector, a label, a subject and an attribute.
Row = tuple[tuple[float, ...], int, int, int]
ROW = st.tuples(
    st.tuples(st.sampled_from([0.0, -0.0, 1.0]), st.sampled_from([0.0, 2.0])),
    st.integers(0, 1),
    st.integers(0, 2),
    st.integers(0, 1),
)
ROWS = st.lists(ROW, min_size=1, max_size=14)


def as_set(rows: list[Row], *, subjects: bool = True) -> EmbeddingSet:
    X, y, subject, attribute = (np.array(column) for column in zip(*rows, strict=True))
    return EmbeddingSet(X, y, subject if subjects else None, {"sex": attribute})


def as_rows(data: EmbeddingSet) -> Counter[Row]:
    who = np.zeros(len(data), int) if data.subject is None else data.subject
    return Counter(
        (tuple(x), label, subject, sex)
        for x, label, subject, sex in zip(
            data.X.tolist(), data.y.tolist(), who.tolist(), data.attributes["sex"].tolist(), strict=True
        )
    )


def naive_firsts(rows: list[Row], *columns: int) -> list[int]:
    """Each record compared with every earlier one; Python's own 0.0 == -0.0."""
    return [
        next(j for j in range(i + 1) if all(rows[i][c] == rows[j][c] for c in (0, *columns)))
        for i in range(len(rows))
    ]


@given(ROWS)
def test_the_first_of_each_kind_is_what_a_comparison_of_all_pairs_finds(rows: list[Row]) -> None:
    data = as_set(rows)
    assert find_duplicates(data.X).tolist() == naive_firsts(rows)
    assert find_duplicates(data.X, data.y).tolist() == naive_firsts(rows, 1)
    assert find_duplicates(data.X, data.y, data.subject).tolist() == naive_firsts(rows, 1, 2)
    assert find_duplicates(data.X, subject=data.subject).tolist() == naive_firsts(rows, 2)
    # By vector and label, and under a guarantee for subjects within each of them.
    for privacy, columns in ((None, (1,)), (RECORD, (1,)), (SUBJECT, (1, 2))):
        left = [rows[i] for i, first in enumerate(naive_firsts(rows, *columns)) if first == i]
        assert as_rows(drop_duplicates(data, privacy)) == as_rows(as_set(left))


@given(ROWS, ROWS)
def test_copies_between_sets_and_the_listing_equal_their_twins(mine: list[Row], theirs: list[Row]) -> None:
    members, others = as_set(mine), as_set(theirs)
    assert copies_of(others, members).tolist() == [any(b[0] == a[0] for a in mine) for b in theirs]
    found = list_copies({"train": members, "test": others})
    both = [("train", i, row) for i, row in enumerate(mine)] + [("test", i, row) for i, row in enumerate(theirs)]
    expected = []
    for place, (split, i, row) in enumerate(both):
        equal = [other for other in both[:place] if other[2][0] == row[0]]
        if not equal:
            continue
        if equal[0][0] == split:
            # The one that agrees most, and of these the first.
            equal.sort(key=lambda other: -((other[2][1] == row[1]) * (1 + (other[2][2] == row[2]))))
        first = equal[0]
        words = tuple("same" if first[2][c] == row[c] else "other" for c in (1, 2))
        expected.append((split, i, first[0], first[1], *words, first[0] != split))
    assert expected == [(c.split, c.row, c.first_split, c.first_row, c.label, c.subject, c.is_shared) for c in found]
    alone = list_copies({"train": as_set(mine, subjects=False)})
    assert {c.subject for c in alone} <= {"unknown"}


@given(ROWS, ROW, st.integers(0, 14), st.booleans())
def test_one_record_more_moves_nothing_but_itself(rows: list[Row], more: Row, at: int, subjects: bool) -> None:
    """Unit record, add-or-remove: neighbors stay neighbors or become equal."""
    near = [*rows[:at], more, *rows[at:]]
    left = [drop_duplicates(as_set(part, subjects=subjects), RECORD) for part in (rows, near)]
    # Subjects and attributes are not read by a fit whose unit is the record.
    seen = [Counter((row.tobytes(), int(label)) for row, label in zip(d.X, d.y, strict=True)) for d in left]
    assert not seen[0] - seen[1]
    assert (seen[1] - seen[0]).total() <= 1


@given(ROWS, st.lists(ROW, max_size=6), st.lists(ROW, max_size=6), st.randoms(use_true_random=False))
def test_a_subject_moves_none_but_its_own(rows: list[Row], old: list[Row], new: list[Row], rnd: object) -> None:
    """Unit subject, both relations: whatever subject 9 holds, all others stay as they were."""
    seen = []
    for own in (old, new):
        all_rows = [*rows, *((x, label, 9, sex) for x, label, _, sex in own)]
        rnd.shuffle(all_rows)  # type: ignore[attr-defined]
        left = drop_duplicates(as_set(all_rows), SUBJECT)
        assert (9 in left.subject) == bool(own)
        others = left.subject != 9
        # A private fit does not read attributes.
        seen.append(Counter(row[:3] for row in as_rows(left.take(others))) if others.any() else Counter())
    assert seen[0] == seen[1]


def test_dropping_between_subjects_would_move_the_sums_by_many_times_the_bound() -> None:
    """The planted fault: 40 subjects with one record each, and one more who holds a copy of every record."""
    X = (2 + 0.1 * np.random.default_rng(0).normal(size=(40, 4))).astype(np.float32)
    data = EmbeddingSet(X, np.zeros(40, int), np.arange(40))
    both = EmbeddingSet(
        np.concatenate([X, X]), np.zeros(80, int), np.repeat([99, 0], 40) + np.r_[np.zeros(40, int), :40]
    )

    def moved(privacy: DP | None) -> float:
        sums = []
        for records in (data, both):
            left = drop_duplicates(records, privacy)
            sums.append(query_sums(left.X, left.y, left.subject, 1, Reference.plain(4)))
        return float(np.linalg.norm(np.asarray(sums[0], float) - np.asarray(sums[1], float)))

    assert moved(SUBJECT) <= 1 + 1e-6
    assert moved(None) > 20


def test_what_cannot_be_proven_is_refused() -> None:
    data = EmbeddingSet(np.ones((4, 2)), np.zeros(4, int))
    with pytest.raises(PrivacyError, match="replace-one"):
        drop_duplicates(data, DP(1.0, 1e-6, n_public=100, relation="replace-one"))
    with pytest.raises(PrivacyError, match="needs `subject`"):
        drop_duplicates(data, SUBJECT)
    people = EmbeddingSet(data.X, data.y, np.array([1, 1, 2, 2]))
    swap = DP(1.0, 1e-6, unit="subject", n_public=100, relation="replace-one")
    assert len(drop_duplicates(people, swap)) == 2


def test_replacing_one_record_can_change_how_many_are_left() -> None:
    """Why `replace-one` is refused: data of one size become data of two sizes."""
    sizes = [len(drop_duplicates(EmbeddingSet(np.array([[1.0], [x]]), np.zeros(2, int)), RECORD)) for x in (1.0, 2.0)]
    assert sizes == [1, 2]


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(DataError, match="table"):
        find_duplicates([1.0, 2.0])
    with pytest.raises(DataError, match="one entry per record"):
        find_duplicates(np.eye(3), y=[1, 2])


def test_it_is_fast_and_takes_blocks_of_any_layout(rng: np.random.Generator) -> None:
    X = rng.normal(size=(10_000, 500))
    X[5000:] = X[:5000]
    started = time.process_time()
    firsts = find_duplicates(np.asfortranarray(X))
    # Comparing all pairs would take minutes.
    assert time.process_time() - started < 5
    np.testing.assert_array_equal(firsts, np.arange(10_000) % 5000)
    assert all(a < b for a, b in pairwise(np.unique(firsts)))


@given(ROWS, ROWS, st.integers(1, 5), st.sampled_from([1, 3, 100]))
def test_counts_in_pieces_are_those_of_arrays(rows: list[Row], more: list[Row], size: int, in_memory: int) -> None:
    """Also if hashes go to files, which happens after one record, three or never."""
    data, others = as_set(rows), as_set(more)
    pieces, other_pieces = SetBatches(data, size), SetBatches(others, size)
    repeats = int((find_duplicates(data.X, data.y) != np.arange(len(data))).sum())
    assert count_duplicates(pieces, in_memory=in_memory) == repeats
    assert count_copies_of(pieces, other_pieces, in_memory=in_memory) == copies_of(data, others).sum()
    want = list_copies({"train": data, "test": others})
    assert list_copies({"train": pieces, "test": other_pieces}, in_memory=in_memory) == want
    assert list_copies({"train": data, "test": other_pieces}, in_memory=in_memory) == want


class Watched:
    """Records in pieces that note the files that were written meanwhile, and may break off at the end."""

    def __init__(self, data: EmbeddingSet, folder: Path, *, fails: bool) -> None:
        self.pieces, self.folder, self.fails = SetBatches(data, 10), folder, fails
        self.seen: set[tuple[int, bool]] = set()

    def __iter__(self) -> Iterator[EmbeddingSet]:
        for piece in self.pieces:
            yield piece
            self.seen |= {(path.stat().st_mode & 0o777, path.is_dir()) for path in self.folder.rglob("*")}
        if self.fails:
            raise OSError("the disk is gone")


@pytest.mark.parametrize("fails", [False, True])
def test_files_are_private_and_removed(tmp_path: Path, fails: bool) -> None:
    rng = np.random.default_rng(0)
    data = EmbeddingSet(rng.normal(size=(200, 3)), np.zeros(200, int))
    batches = Watched(data, tmp_path, fails=fails)
    with pytest.raises(OSError, match="gone") if fails else nullcontext():
        count_duplicates(batches, scratch=tmp_path, in_memory=20)
    assert batches.seen == {(0o700, True), (0o600, False)}
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """Four times the records, in files: the peak stays that of one piece and one group of hashes."""
    peaks = []
    for n in (20_000, 80_000):
        data = EmbeddingSet(np.arange(2 * n, dtype=np.float32).reshape(n, 2) // 4, np.zeros(n, int))
        tracemalloc.start()
        assert count_duplicates(SetBatches(data, 1000), scratch=tmp_path, in_memory=2000) == n // 2
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_a_wrong_bound_of_memory_is_named() -> None:
    data = EmbeddingSet(np.ones((3, 2)), np.zeros(3, int))
    with pytest.raises(ConfigError, match="in_memory"):
        count_duplicates(SetBatches(data), in_memory=0)
