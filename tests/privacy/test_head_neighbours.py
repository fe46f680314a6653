"""Neighbor replay for the private head: one unit more moves every sum by exactly what it contributes alone.

Two sets of records differ in one unit, which stands anywhere among the others. At every stage the exact sums differ
by the integers of that unit alone, whose squared length is at most 1, computed from its definition in integers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from locum.data import Reference, load_reference
from locum.generate.private import FIRST, HeadQuery, SoftmaxRule, unit_vectors
from locum.mechanisms import ExactSums

CLASSES, D = 3, 4
WHITENED = Reference(
    "own", "drawn", np.array([1.0, -2.0, 0.5, 0.0]), np.array([[0.6, 0.8, 0.0, 0.0]]), np.array([4.0]), 0.3
)
PLAIN = Reference.plain(D)

extreme = st.sampled_from([np.nan, np.inf, -np.inf, 3.4e38, -3e38, 1e19, 1e-30, 1e-38, 1e-45, -1e-45, 0.0, -0.0])
numbers = st.one_of(st.floats(-4, 4, width=32), extreme)
rules = st.tuples(
    hnp.arrays(np.float64, (CLASSES, D), elements=st.sampled_from([0.0, 1.0, -3.0, 40.0, 1e-9, 1e9, -1e30])),
    hnp.arrays(np.float64, CLASSES, elements=st.sampled_from([0.0, -1.0, -9.0])),
)
Stages = dict[str, ExactSums]


def stages(
    X: np.ndarray,
    codes: np.ndarray,
    subject: np.ndarray | None,
    center: np.ndarray,
    rule: SoftmaxRule,
    ref: Reference,
) -> Stages:
    """Every sum that a head draws, at the same public numbers."""
    query = HeadQuery(X, codes, subject, CLASSES, ref)
    out = {"first": query.first(FIRST)}
    query.recenter(center)
    out["class sums"] = query.class_sums()
    still = SoftmaxRule(np.zeros((CLASSES, X.shape[1])), np.log(np.array([0.9, 0.09, 0.01])))
    for clip in (0.5, 2.0, 1e-3):
        out[f"step, clip {clip}"] = query.gradient(rule, clip)
        out[f"first step, clip {clip}"] = query.gradient(still, clip)
    return out


def squared_length(name: str, sums: ExactSums, d: int) -> Fraction:
    """From the definition in docs/explain/proofs.md, in rational numbers."""

    def square(part: np.ndarray) -> int:
        return sum(int(value) ** 2 for value in part)

    if name != "first":
        return Fraction(square(sums.integers), 2**72)
    vectors, counts, lengths, _ = FIRST.parts(sums.integers, CLASSES, d)
    parts = ((FIRST.sums, vectors), (FIRST.counts, counts), (FIRST.lengths, lengths))
    return sum((Fraction(share) * square(part) for share, part in parts), Fraction(0)) / 2**60


def check(fewer: Stages, more: Stages, alone: Stages, d: int = D) -> None:
    for name, own in alone.items():
        np.testing.assert_array_equal(more[name].integers - fewer[name].integers, own.integers, err_msg=name)
        assert squared_length(name, own, d) <= 1


def center_of(X: np.ndarray, kind: str, ref: Reference) -> np.ndarray:
    """A public center; the worst is the very vector of the unit, or one close to it."""
    unit = unit_vectors(X[:1], ref)[0][0]
    return {"zero": np.zeros(D), "equal": unit, "close": unit + 1e-17, "far": np.full(D, -1e6)}[kind]


@settings(max_examples=150)
@given(
    others=hnp.arrays(np.float32, st.tuples(st.integers(0, 9), st.just(D)), elements=numbers),
    unit=hnp.arrays(np.float32, (1, D), elements=numbers),
    center=st.sampled_from(["zero", "equal", "close", "far"]),
    rule=rules,
    ref=st.sampled_from([PLAIN, WHITENED]),
    data=st.data(),
)
@example(
    others=np.full((3, D), 2, np.float32),
    unit=np.full((1, D), 2, np.float32),
    center="equal",
    rule=(np.ones((CLASSES, D)), np.zeros(CLASSES)),
    ref=PLAIN,
    data=None,
).via("duplicates of one vector that is the center")
def test_a_record_moves_each_sum_by_what_it_contributes_alone(
    others: np.ndarray,
    unit: np.ndarray,
    center: str,
    rule: tuple[np.ndarray, np.ndarray],
    ref: Reference,
    data: st.DataObject | None,
) -> None:
    n = len(others)
    labels = st.lists(st.integers(0, CLASSES - 1), min_size=n + 1, max_size=n + 1)
    codes = np.array([0] * (n + 1) if data is None else data.draw(labels))
    place = 0 if data is None else data.draw(st.integers(0, n))
    public = center_of(unit, center, ref), SoftmaxRule(*rule), ref
    alone = stages(unit, codes[-1:], None, *public)
    fewer = stages(others, codes[:-1], None, *public)
    more = stages(np.insert(others, place, unit[0], axis=0), np.insert(codes[:-1], place, codes[-1]), None, *public)
    check(fewer, more, alone)


@settings(max_examples=150)
@given(
    others=hnp.arrays(np.float32, st.tuples(st.integers(0, 9), st.just(D)), elements=numbers),
    unit=hnp.arrays(np.float32, st.tuples(st.integers(1, 7), st.just(D)), elements=numbers),
    copies=st.sampled_from([1, 1, 5]),
    center=st.sampled_from(["zero", "equal", "close", "far"]),
    rule=rules,
    ref=st.sampled_from([PLAIN, WHITENED]),
    data=st.data(),
)
def test_a_subject_moves_each_sum_by_what_it_contributes_alone(
    others: np.ndarray,
    unit: np.ndarray,
    copies: int,
    center: str,
    rule: tuple[np.ndarray, np.ndarray],
    ref: Reference,
    data: st.DataObject,
) -> None:
    n, unit = len(others), np.repeat(unit, copies, axis=0)
    k = len(unit)
    codes = np.array(data.draw(st.lists(st.integers(0, CLASSES - 1), min_size=n + k, max_size=n + k)))
    # The new subject's number comes before, between or after those of others.
    subjects = np.array([*(2 * s for s in data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))], np.int64)
    own = np.full(k, data.draw(st.sampled_from([-1, 3, 99])), np.int64)
    # Its records keep their order, and those of others stand between them.
    mine = np.zeros(n + k, dtype=bool)
    mine[np.array(data.draw(st.permutations(range(n + k))))[:k]] = True
    X, y, who = np.empty((n + k, D), np.float32), np.empty(n + k, np.int64), np.empty(n + k, np.int64)
    X[mine], X[~mine], y[mine], y[~mine], who[mine], who[~mine] = unit, others, codes[n:], codes[:n], own, subjects
    public = center_of(unit, center, ref), SoftmaxRule(*rule), ref
    alone = stages(unit, codes[n:], own, *public)
    check(stages(others, codes[:n], subjects, *public), stages(X, y, who, *public), alone)


@pytest.mark.parametrize("size", [64, 65, 200])
def test_a_subject_with_more_records_than_are_used(size: int, rng: np.random.Generator) -> None:
    """Its first 64 usable ones in their order, wherever they stand; all of one class and direction is the worst."""
    unit = np.ones((size, D), np.float32)
    unit[64:] = -1e30
    unit[3] = np.nan
    others = rng.normal(size=(150, D)).astype(np.float32)
    codes, subjects = rng.integers(CLASSES, size=150), rng.integers(40, size=150)
    rule = SoftmaxRule(np.eye(CLASSES, D) * -30, np.zeros(CLASSES))
    public = np.zeros(D), rule, PLAIN
    label, own = np.zeros(size, np.int64), np.full(size, 20)
    keep = subjects != 20
    others, codes, subjects = others[keep], codes[keep], subjects[keep]
    alone = stages(unit, label, own, *public)
    places = np.sort(rng.integers(len(others), size=size))
    more = stages(
        np.insert(others, places, unit, axis=0),
        np.insert(codes, places, label),
        np.insert(subjects, places, own),
        *public,
    )
    check(stages(others, codes, subjects, *public), more, alone)
    used = np.flatnonzero(np.isfinite(unit).all(axis=1))[:64]
    for name, sums in stages(unit[used], label[used], own[used], *public).items():
        np.testing.assert_array_equal(sums.integers, alone[name].integers)
        # As much as it may, and no more.
        assert squared_length(name, sums, D) > 0.99


def test_records_of_a_real_backbone_across_the_edges_of_blocks() -> None:
    """Where floating-point matrix products depend on company: 1,280 features, whitened, more rows than a block."""
    rng, ref, d = np.random.default_rng(0), load_reference("efflite0", 1280), 1280
    X, codes = rng.gamma(0.5, size=(4200, d)).astype(np.float32), rng.integers(CLASSES, size=4200)
    X[5] *= 1e30
    X[4097] = 3e38
    center = unit_vectors(X[7:8], ref)[0][0]
    public = center, SoftmaxRule(rng.normal(size=(CLASSES, d)), np.zeros(CLASSES)), ref
    more = stages(X, codes, None, *public)
    for i in (5, 7, 4097):
        rest = np.arange(len(X)) != i
        alone = stages(X[i : i + 1], codes[i : i + 1], None, *public)
        check(stages(X[rest], codes[rest], None, *public), more, alone, d)


def test_the_bound_is_reached_and_not_there_by_chance() -> None:
    """A record of a class that a rule gives no chance contributes length 1, up to the grid, to every sum."""
    X, codes = np.full((1, D), 1e6, np.float32), np.array([2])
    public = np.zeros(D), SoftmaxRule(np.array([[9.0] * D, [0.0] * D, [-9.0] * D]), np.zeros(CLASSES)), PLAIN
    for name, sums in stages(X, codes, None, *public).items():
        if "clip 2" not in name:
            assert 0.9999 < squared_length(name, sums, D) <= 1
