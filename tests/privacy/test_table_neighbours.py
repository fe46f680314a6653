"""Neighbor replay and canaries of a private table: whatever a unit's rows are, it moves each draw by at most 1."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from locum.audit import audit_epsilon
from locum.audit.epsilon import table as table_canaries
from locum.generate.private import paid_sums
from locum.generate.table import CategoryColumn, NumberColumn, PrivateTable, TableDomain, TableLearner, row_weights
from locum.types import DP

DOMAIN = TableDomain(
    (
        CategoryColumn("a", ("x", "y", "z")),
        NumberColumn.within("b", 0, 20, whole=True, special=(0,), missing=True),
        CategoryColumn("label", ("no", "yes")),
        CategoryColumn("c", tuple(range(6))),
    )
)
record = st.tuples(*(st.integers(0, cells - 1) for cells in DOMAIN.cells))


def replay(rows: list[tuple[int, ...]], subject: list[int] | None, extra: int, k: int) -> None:
    """All draws of a fit on all records and on all but the last `extra`, at the same noisy results."""
    codes = np.array(rows, dtype=np.int64).reshape(-1, len(DOMAIN.columns))
    owners = None if subject is None else np.array(subject)
    few = slice(0, len(rows) - extra)
    learner, rng = TableLearner(DOMAIN, "label", 2.0), np.random.default_rng(0)
    while not learner.done:
        query = learner.query
        pair = []
        for part in (slice(None), few):
            held = None if owners is None else owners[part]
            pair.append(query.sums(codes[part], row_weights(len(codes[part]), held, k)))
        moved = pair[0].integers - pair[1].integers
        # In rational numbers, with the steps as they are: squared length at most 1.
        square = sum(
            Fraction(int(one)) ** 2 * Fraction(step) ** 2
            for one, step in zip(moved[moved != 0], pair[0].steps[moved != 0], strict=True)
        )
        assert square <= 1
        assert (moved >= 0).all()
        noise = 2.0 / np.sqrt(learner.share)
        learner.take(pair[0].to_array() + noise * rng.normal(size=query.size))


@settings(max_examples=60, deadline=None)
@given(others=st.lists(record, max_size=12), unit=record)
def test_one_record(others: list[tuple[int, ...]], unit: tuple[int, ...]) -> None:
    replay([*others, unit], None, 1, 1)


@settings(max_examples=60, deadline=None)
@given(
    others=st.lists(st.tuples(record, st.integers(0, 3)), max_size=12),
    unit=st.lists(record, min_size=1, max_size=9),
    k=st.integers(1, 4),
)
def test_one_subject_with_several_records(others: list[Any], unit: list[tuple[int, ...]], k: int) -> None:
    owners = [owner for _, owner in others] + [9] * len(unit)
    replay([*(row for row, _ in others), *unit], owners, len(unit), k)


def test_the_bound_is_reached_and_no_more() -> None:
    """A record, and a subject with seven equal rows, use nearly all of it."""
    learner = TableLearner(DOMAIN, "label", 2.0)
    one = np.array([[0, 3, 1, 5]])
    for rows, owners in ((one, None), (np.repeat(one, 7, axis=0), np.zeros(7, np.int64))):
        sums = learner.query.sums(rows, row_weights(len(rows), owners))
        assert np.linalg.norm(sums.to_array()) == pytest.approx(1, abs=1e-5)


# -- canaries --------------------------------------------------------------------------------------------------------
def audited(epsilon: float = 1.0, unit: str = "record", relation: str = "add-or-remove") -> PrivateTable:
    return PrivateTable(DOMAIN, "label", DP(epsilon, 1e-5, unit, relation=relation))  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["record", "subject"])
@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
def test_honest_runs_pass(unit: str, relation: str) -> None:
    for seed in range(3):
        found = audit_epsilon(audited(1.0, unit, relation), canaries=1000, records=300, seed=seed)
        assert found.ok
        assert found.mechanism == "private table"
        assert found.lower.epsilon > 0.4


def change_noise(monkeypatch: pytest.MonkeyPatch, factor: float, draws: range) -> None:
    honest = paid_sums.noisy

    def faulty(sums: Any, noise: float, *, insecure_seed: int, step: int) -> Any:
        return honest(sums, (factor if step in draws else 1.0) * noise, insecure_seed=insecure_seed, step=step)

    monkeypatch.setattr(paid_sums, "noisy", faulty)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace-one"])
def test_halved_noise_is_caught(relation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change_noise(monkeypatch, 0.5, range(3))
    for seed in range(3):
        found = audit_epsilon(audited(1.0, relation=relation), canaries=1000, records=300, seed=seed)
        assert not found.ok


def test_a_draw_with_next_to_no_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for draw in range(3):
        with monkeypatch.context() as patch:
            change_noise(patch, 0.1, range(draw, draw + 1))
            assert not audit_epsilon(audited(), canaries=1000, records=300, seed=0).ok


def test_canaries_see_missing_noise_by_guesses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    change_noise(monkeypatch, 1e-3, range(3))
    found = audit_epsilon(audited(), canaries=1000, records=300, seed=0)
    assert found.lower.correct == found.lower.guesses


def test_subjects_that_are_no_longer_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_epsilon(audited(unit="subject"), canaries=1000, records=300, seed=0).ok
    monkeypatch.setattr(table_canaries, "row_weights", lambda n, subject=None, rows=1: row_weights(n))
    assert not audit_epsilon(audited(unit="subject"), canaries=1000, records=300, seed=0).ok
