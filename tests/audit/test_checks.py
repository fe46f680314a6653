"""Faults of the sets are reported, and limit what a verdict may say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet, Estimate
from locum.audit import Problem, check_sets
from locum.audit.checks import shift, with_problems, without_shared
from locum.errors import ConfigError, DataError
from locum.types import AttackResult

RNG = np.random.default_rng


def kinds(problems: list[Problem]) -> list[str]:
    return [p.kind for p in problems]


def test_fair_sets_have_no_problem(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=600, d=8)
    assert check_sets(members, others, RNG(0)) == []


def test_repeats_within_and_between(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=600, d=8)
    X, Y = members.X.copy(), others.X.copy()
    X[1], X[2] = X[0], X[0]
    Y[:3] = X[10:13]
    Y[3] = Y[4]
    members, others = EmbeddingSet(X, members.y), EmbeddingSet(Y, others.y)
    found = {p.kind: p for p in check_sets(members, others, RNG(0))}
    assert (found["repeated records"].count, found["shared records"].count) == (3, 3)
    assert {p.voids for p in found.values()} == {"nothing"}
    kept, rest = without_shared(members, others)
    assert (len(kept), len(rest)) == (597, 597)
    with pytest.raises(DataError, match="600 of 600 non-members equal a member"):
        without_shared(members, members)


def test_zero_has_one_sign(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=50, d=4)
    X, Y = members.X.copy(), others.X.copy()
    X[0], Y[0] = 0.0, -0.0
    kept, _ = without_shared(EmbeddingSet(X, members.y), EmbeddingSet(Y, others.y))
    assert len(kept) == 49


def test_near_duplicates(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=600, d=16)
    for count, voids in ((10, "nothing"), (100, "reassurance")):
        Y = others.X.copy()
        Y[:count] = members.X[:count] * 1.0001
        found = {p.kind: p for p in check_sets(members, EmbeddingSet(Y, others.y), RNG(0))}
        assert (found["near duplicates"].count, found["near duplicates"].voids) == (count, voids)


def test_shared_subjects_are_an_error_and_few_subjects_are_few(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=600, d=4)
    who = np.arange(600)
    with_subjects = EmbeddingSet(members.X, members.y, who)
    with pytest.raises(DataError, match="600 subjects are both"):
        check_sets(with_subjects, EmbeddingSet(others.X, others.y, who), RNG(0))
    # Two records per subject: 300 subjects, whatever the number of records.
    (few,) = check_sets(with_subjects, EmbeddingSet(others.X, others.y, 1000 + who // 2), RNG(0))
    assert (few.kind, few.count, few.voids) == ("too few", 300, "nothing")
    assert kinds(check_sets(members, others, RNG(0), fpr=0.001)) == ["too few"]
    with pytest.raises(ConfigError, match="between 0 and 1"):
        check_sets(members, others, RNG(0), fpr=0.0)
    with pytest.raises(DataError, match="4 features and non-members 2"):
        check_sets(members, EmbeddingSet(others.X[:, :2], others.y), RNG(0))


@pytest.mark.parametrize("how", ["place", "width", "classes"])
def test_another_population_is_noticed(how: str, subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=600, d=8)
    if how == "classes":
        pick = RNG(0).permutation(600)
        others = others.take(np.concatenate([np.flatnonzero(others.y == 0), np.flatnonzero(others.y == 1)[:100]]))
        members = members.take(pick)
    else:
        moved = others.X + 0.5 * others.X.std(axis=0) if how == "place" else 1.5 * others.X
        others = EmbeddingSet(moved, others.y)
    found = {p.kind: p for p in check_sets(members, others, RNG(0))}
    assert found["shift"].voids == "all"
    assert found["shift"].estimate.low > 0.5


def test_one_population_is_left_alone(subjects: Callable[..., Any]) -> None:
    """An exact test at 1 %: three alarms in 40 have a chance below 0.01."""
    p = []
    for seed in range(40):
        members, others, _ = subjects(seed, n=60, d=8)
        p.append(shift(members, others, RNG(seed))[1])
    assert sum(v <= 0.01 for v in p) <= 2


def test_few_records_show_no_shift(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(0, n=6, d=4)
    estimate, p = shift(members, others, RNG(0))
    assert (estimate.low, estimate.high, p) == (0, 1, 1)


def test_what_problems_take_from_a_verdict() -> None:
    high = AttackResult(
        "a", "auc", Estimate(0.9, 0.85, 0.95, 99), Estimate(0.5, 0.4, 0.6, 99), Estimate.exact(0.5), p_value=1e-9
    )
    low = replace(high, attack=Estimate(0.5, 0.46, 0.54, 99), p_value=0.4)
    moved = Problem("shift", "they differ", 9, "all", Estimate(0.6, 0.55, 0.65, 99))
    few = Problem("too few", "few", 9, "reassurance")
    told = Problem("shared records", "one", 1, "nothing")
    assert with_problems(low, [told]) == low
    assert with_problems(low, [few]).verdict == "inconclusive"
    assert with_problems(high, [few]).verdict == "leak"
    # Better than what the shift alone gives: still a leak.
    assert with_problems(high, [moved]).verdict == "leak"
    weak = replace(high, attack=Estimate(0.6, 0.56, 0.64, 99))
    assert with_problems(weak, [moved, few]).verdict == "inconclusive"
    assert with_problems(weak, [moved, few]).inconclusive_because == "they differ; few"
    known = replace(low, inconclusive_because="twins")
    assert with_problems(known, [few]).inconclusive_because == "twins; few"
    # What a share of hits reaches cannot be compared with the classifier's AUC, whatever its baseline.
    share = replace(high, measure="share")
    assert with_problems(share, [moved]).verdict == "inconclusive"
    assert with_problems(replace(share, p_value=0.0), [moved]).verdict == "leak"
    assert moved.to_dict()["estimate"]["value"] == 0.6


def test_the_shared_medical_sets_hold_repeats(real_data: Path) -> None:
    from locum.data import read_splits

    lung = read_splits(real_data / "pneumoniamnist_efflite0.npz")
    _, rest = without_shared(lung["train"], lung["val"])
    assert len(lung["val"]) - len(rest) == 8
    breast = read_splits(real_data / "breastmnist_efflite0.npz")
    found = {p.kind: p for p in check_sets(breast["train"], breast["test"], RNG(0))}
    assert found["shared records"].count == 1
    assert "too few" in found
