"""A private table: counts and inference against naive twins, and rows that follow what was learned."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError, NotFittedError, PrivacyError
from locum.generate.table import (
    CategoryColumn,
    CountQuery,
    LabelTree,
    NumberColumn,
    PrivateTable,
    TableDomain,
    best_tree,
    merge_cells,
    row_weights,
)
from locum.generate.table.groups import within_groups
from locum.generate.table.tree import Clue, consistent, on_simplex, order_of
from locum.types import DP

DOMAIN = TableDomain(
    (
        CategoryColumn("job", ("cook", "nurse", "pilot")),
        NumberColumn.within("age", 20, 69, whole=True),
        CategoryColumn("smokes", ("no", "yes")),
        CategoryColumn("town", ("A", "B")),
    )
)


def people(n: int = 6000, seed: int = 0) -> pd.DataFrame:
    """The job tells the age, the label tells the job, the town tells nothing."""
    rng = np.random.default_rng(seed)
    smokes = rng.random(n) < 0.3
    job = np.where(rng.random(n) < np.where(smokes, 0.7, 0.2), "cook", rng.choice(["nurse", "pilot"], n))
    age = np.where(job == "cook", rng.integers(20, 40, n), rng.integers(40, 70, n))
    town = rng.choice(["A", "B"], n)
    return pd.DataFrame({"job": job, "age": age, "smokes": np.where(smokes, "yes", "no"), "town": town})


@pytest.fixture(scope="module")
def fitted() -> PrivateTable:
    return PrivateTable(DOMAIN, "smokes", DP(3.0, 1e-6), insecure_seed=0).fit(people())


# -- counts ---------------------------------------------------------------------------------------------------------
@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=20),
    k=st.integers(1, 3),
)
def test_counts_equal_a_loop_over_records(rows: list[tuple[int, int, int]], k: int) -> None:
    codes, subject = np.array([row[:2] for row in rows]), np.unique([row[2] for row in rows], return_inverse=True)[1]
    groups = (np.array([0, 1, 1]), np.array([0, 0, 1, 2, 2]))
    query = CountQuery(((0,), (0, 1)), groups, (0.25, 0.75))
    found = query.tables_of(query.sums(codes, row_weights(len(rows), subject, k)).to_array())
    expected = [np.zeros(2), np.zeros((2, 3))]
    for (a, b), owner in zip(codes, subject, strict=True):
        weight = 1 / max(k, int((subject == owner).sum()))
        expected[0][groups[0][a]] += weight
        expected[1][groups[0][a], groups[1][b]] += weight
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_shares_that_exceed_one_are_refused() -> None:
    groups = (np.arange(2),)
    with pytest.raises(PrivacyError, match="more than 1"):
        CountQuery(((0,), (0,)), groups, (0.5, 0.5 + 1e-12))
    with pytest.raises(ConfigError, match="above 0"):
        CountQuery(((0,), (0,)), groups, (0.5, 0.0))
    with pytest.raises(ConfigError, match="rows_per_subject"):
        row_weights(3, np.zeros(3, np.int64), 0)


# -- merging --------------------------------------------------------------------------------------------------------
@settings(max_examples=100, deadline=None)
@given(counts=st.lists(st.floats(-50, 500), min_size=6, max_size=60), most=st.integers(3, 12), missing=st.booleans())
def test_groups_are_numbered_without_gaps_and_lie_side_by_side(counts: list[float], most: int, missing: bool) -> None:
    noisy, cells = np.array(counts), len(counts)
    number = NumberColumn("x", tuple(range(cells - missing + 1)), whole=True, missing=missing)
    category = CategoryColumn("x", tuple(range(cells - missing)), missing=missing)
    for column in (number, category):
        group = merge_cells(column, noisy, 10.0, most)
        assert np.unique(group).tolist() == list(range(group.max() + 1))
        spread = within_groups(noisy, group, 10.0)
        np.testing.assert_allclose(np.bincount(group, weights=spread), 1.0)
    line = merge_cells(number, noisy, 10.0, most)[list(number.ordered)]
    assert (np.diff(line) >= 0).all()
    assert line.max() <= 2 * most + 1


# -- the tree -------------------------------------------------------------------------------------------------------
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_tree_is_the_best_of_all(seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(4, 4))
    scores += scores.T
    parents = best_tree(scores)
    found = sum(scores[i, p] for i, p in enumerate(parents) if p >= 0)
    best = -np.inf
    for tried in product(range(-1, 4), repeat=4):
        if tried.count(-1) == 1 and tried[0] == -1 and len(order_of(tried)) == 4:
            best = max(best, sum(scores[i, p] for i, p in enumerate(tried) if p >= 0))
    assert found == pytest.approx(best)


def even(parents: tuple[int, ...], sizes: tuple[int, ...]) -> LabelTree:
    """Two labels, and every value equally likely."""
    above = [1 if p < 0 else sizes[p] for p in parents]
    start = [np.full((2, a, size), 1 / size) for a, size in zip(above, sizes, strict=True)]
    return LabelTree(parents, start, np.array([0.5, 0.5]))


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.floats(-100, 100), min_size=1, max_size=12), total=st.floats(0.5, 500))
def test_no_counts_with_this_sum_are_nearer(counts: list[float], total: float) -> None:
    """The conditions of the optimum: what is above 0 was moved by one constant, what is 0 would be below it."""
    noisy = np.array([counts])
    found = on_simplex(noisy, np.array([total]))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-6)
    shift = (noisy - found)[found > 0]
    assert np.ptp(shift) < 1e-6
    assert (noisy[found == 0] <= shift.max() + 1e-6).all()


def test_a_clique_gets_the_sums_of_its_columns() -> None:
    rng = np.random.default_rng(3)
    above, own = rng.uniform(1, 50, (2, 4)), rng.uniform(1, 50, (2, 3))
    own *= (above.sum(axis=1) / own.sum(axis=1))[:, None]
    found = consistent(rng.normal(5, 20, (2, 4, 3)), above, own)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), own, rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=2), above, rtol=0.02)


def test_marginals_equal_a_sum_over_all_rows() -> None:
    rng, parents, sizes = np.random.default_rng(0), (-1, 0, 0, 2), (2, 3, 2, 2)
    tree = even(parents, sizes)
    tree.potentials = [rng.normal(size=part.shape) for part in tree.potentials]
    joint = np.zeros((2, *sizes))
    for y, *values in product(range(2), *map(range, sizes)):
        score = sum(tree.potentials[i][y, 0 if p < 0 else values[p], values[i]] for i, p in enumerate(parents))
        joint[(y, *values)] = np.exp(score)
    joint /= joint.sum()
    for i, (parent, found) in enumerate(zip(parents, tree.marginals(), strict=True)):
        kept = (0, i + 1) if parent < 0 else (0, parent + 1, i + 1)
        summed = joint.sum(axis=tuple(axis for axis in range(5) if axis not in kept))
        expected = summed[:, None, :] if parent < 0 else summed if parent < i else summed.transpose(0, 2, 1)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_exact_counts_are_found_again() -> None:
    """A distribution that a tree can hold is learned to the last digits from its own cliques."""
    rng, parents = np.random.default_rng(1), (-1, 0, 1)
    truth = even(parents, (3, 3, 3))
    truth.potentials = [rng.normal(size=part.shape) for part in truth.potentials]
    wanted = truth.marginals()
    tree = even(parents, (3, 3, 3))
    clues = [
        Clue(i, np.eye(part.shape[1]), np.eye(3), 1000 * part, np.ones(part.shape)) for i, part in enumerate(wanted)
    ]
    tree.fit(clues, 1000.0, steps=3000)
    for one, other in zip(tree.marginals(), wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)


def test_noisy_counts_that_contradict_each_other_stay_consistent_and_above_zero() -> None:
    rng, parents = np.random.default_rng(2), (-1, 0, 0)
    tree = even(parents, (3, 3, 3))
    clues = [
        Clue(i, np.eye(part.shape[1]), np.eye(3), rng.normal(20, 30, part.shape), np.full(part.shape, 1e-3))
        for i, part in enumerate(tree.marginals())
    ]
    before, _ = tree._loss(tree.marginals(), clues, 500.0)
    after = tree.fit(clues, 500.0)
    assert after < before
    root, one, two = tree.marginals()
    for part in (one, two):
        assert (part >= 0).all()
        np.testing.assert_allclose(part.sum(axis=2), root[:, 0, :], atol=1e-9)


# -- the estimator --------------------------------------------------------------------------------------------------
def test_rows_follow_what_was_learned(fitted: PrivateTable) -> None:
    real, rows = people(), fitted.sample(20_000, random_state=0)
    assert rows.columns.tolist() == list(DOMAIN.names)
    assert rows["age"].between(20, 69).all()
    for values in (["smokes"], ["job"], ["smokes", "job"]):
        a, b = (frame.value_counts(values, normalize=True) for frame in (real, rows))
        assert a.sub(b, fill_value=0).abs().sum() / 2 < 0.04
    assert rows.loc[rows["job"] == "cook", "age"].lt(40).mean() > 0.95
    # The tree found what goes together.
    others = [name for name in DOMAIN.names if name != "smokes"]
    parents = {others[i]: others[p] for i, p in enumerate(fitted.model_.parents) if p >= 0}
    assert parents.get("age") == "job" or parents.get("job") == "age"
    assert len(fitted.sample()) == pytest.approx(6000, abs=150)


def test_the_same_seed_draws_the_same_rows(fitted: PrivateTable) -> None:
    assert fitted.sample(50, random_state=3).equals(fitted.sample(50, random_state=3))
    assert not fitted.sample(50).equals(fitted.sample(50))


def test_transform_keeps_the_true_labels_and_nothing_else(fitted: PrivateTable) -> None:
    frame = people(400, seed=5)
    out = fitted.transform(frame, random_state=0)
    assert out["smokes"].tolist() == frame["smokes"].tolist()
    assert abs(np.corrcoef(out["age"], frame["age"])[0, 1]) < 0.4


def test_a_subject_counts_once() -> None:
    """One patient with a thousand rows moves the count of labels no more than one with a single row."""
    frame = pd.concat([people(1000), pd.DataFrame([people(1).iloc[0]] * 5000)], ignore_index=True)
    owners = [f"p{i}" for i in range(1000)] + ["busy"] * 5000
    budget = DP(50.0, 1e-6, unit="subject")
    table = PrivateTable(DOMAIN, "smokes", budget, insecure_seed=1).fit(frame, owners)
    assert table.model_.count == pytest.approx(1001, abs=30)
    more = PrivateTable(DOMAIN, "smokes", budget, rows_per_subject=4, insecure_seed=1).fit(frame, owners)
    assert more.model_.count == pytest.approx(1004, abs=100)


def test_one_column_besides_the_label_is_enough() -> None:
    table = PrivateTable(DOMAIN.without("age", "town"), "smokes", DP(3.0, 1e-6), insecure_seed=0)
    table.fit(people()[["job", "smokes"]])
    real, rows = people(), table.sample(20_000, random_state=0)
    a, b = (frame.value_counts(["smokes", "job"], normalize=True) for frame in (real, rows))
    assert a.sub(b, fill_value=0).abs().sum() / 2 < 0.03


def test_tiny_data_and_empty_labels_give_rows_all_the_same() -> None:
    frame = people(3).assign(smokes="no")
    rows = PrivateTable(DOMAIN, "smokes", DP(0.1, 1e-6), insecure_seed=0).fit(frame).sample(500, random_state=0)
    assert len(rows) == 500
    assert not rows.isna().any().any()


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    budget, frame = DP(1.0, 1e-6), people(50)
    with pytest.raises(ConfigError, match="categories"):
        PrivateTable(DOMAIN, "age", budget, insecure_seed=0).fit(frame)
    with pytest.raises(ConfigError, match="categories"):
        PrivateTable(DOMAIN, "nothing", budget, insecure_seed=0).fit(frame)
    with pytest.raises(PrivacyError, match="declare"):
        PrivateTable(None, "smokes", budget, insecure_seed=0).fit(frame)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="ledger"):
        PrivateTable(DOMAIN, "smokes", budget).fit(frame)
    with pytest.raises(PrivacyError, match="subject"):
        PrivateTable(DOMAIN, "smokes", DP(1.0, 1e-6, "subject"), insecure_seed=0).fit(frame)
    with pytest.raises(PrivacyError, match="delta"):
        PrivateTable(DOMAIN, "smokes", DP(1.0, 0.01), insecure_seed=0).fit(frame)
    with pytest.raises(DataError, match="two records"):
        PrivateTable(DOMAIN, "smokes", budget, insecure_seed=0).fit(frame[:1])
    with pytest.raises(NotFittedError):
        PrivateTable(DOMAIN, "smokes", budget).sample(3)
    table = PrivateTable(DOMAIN, "smokes", budget, insecure_seed=0).fit(frame)
    for n in (0, -1, 2.5, True, 10**12):
        with pytest.raises(ConfigError, match="whole number"):
            table.sample(n)  # type: ignore[arg-type]
