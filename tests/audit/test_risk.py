"""The risk map names exposed records, none by chance, and never leaves."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum import EmbeddingSet
from locum.audit import RiskMap, Scores, audit
from locum.audit.risk import risk_map
from locum.errors import ConfigError, PrivacyError

Population = Callable[..., Any]


def some(n: int, subject: Any = None, y: Any = None) -> EmbeddingSet:
    codes = np.zeros(n, dtype=np.int64) if y is None else np.asarray(y)
    return EmbeddingSet(np.zeros((n, 1), np.float32), codes, subject=subject)


def mapped(*scores: tuple[Any, Any], **more: Any) -> RiskMap:
    named = [(f"attack {i}", Scores(np.asarray(a, float), np.asarray(b, float))) for i, (a, b) in enumerate(scores)]
    members = more.pop("members", some(len(scores[0][0])))
    found = risk_map(named, members, some(len(scores[0][1])), np.random.default_rng(0), **more)
    assert found is not None
    return found


def naive_p_values(scores: list[tuple[Any, Any]]) -> list[float]:
    """By hand: places by counting, the best place first, then their sum, then the share of non-members as good."""

    def place(value: float, outside: Any, own: int) -> int:
        return sum(other >= value for other in outside) + own

    m = len(scores[0][1])
    non_members = [[place(b[j], b, 0) for _, b in scores] for j in range(m)]
    out = []
    for i in range(len(scores[0][0])):
        mine = [place(a[i], b, 1) for a, b in scores]
        out.append((1 + sum((min(o), sum(o)) <= (min(mine), sum(mine)) for o in non_members)) / (m + 1))
    return out


@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_p_values_are_those_of_a_naive_count(seed: int, attacks: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = [(rng.normal(size=7), rng.normal(size=9)) for _ in range(attacks)]
    if ties:
        scores = [(a.round(), b.round()) for a, b in scores]
    found = {r.row: r.p_value for r in mapped(*scores).records}
    np.testing.assert_allclose([found[i] for i in range(7)], naive_p_values(scores))


def test_where_nothing_leaks_a_small_p_value_is_as_rare_as_it_says() -> None:
    """Choosing the best of five attacks must be paid for: without that, five times as many would be small."""
    rng = np.random.default_rng(3)
    small = [
        np.mean([r.p_value <= 0.1 for r in mapped(*[rng.normal(size=(2, 60)) for _ in range(5)]).records])
        for _ in range(100)
    ]
    assert 0.03 < np.mean(small) <= 0.11


def test_non_members_that_score_as_high_expose_nobody() -> None:
    rng = np.random.default_rng(0)
    found = mapped(*[(rng.normal(size=200), rng.normal(size=200)) for _ in range(3)])
    assert len(found.exposed) <= 2
    assert "not an all-clear" in found.sentence() or found.exposed


def test_a_few_exposed_members_are_named_first_with_their_attack() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 300)), rng.normal(size=(2, 300))
    first[0, [5, 7, 9]] += [20, 30, 40]
    rows = np.arange(300) + 1000
    found = mapped(tuple(second), tuple(first), rows=rows)
    assert [r.row for r in found.records[:3]] == [1009, 1007, 1005]
    top = found.records[0]
    assert top.seen_by == ("attack 1",)
    assert top.non_members_as_high == 0
    assert all(a.by_chance <= b.by_chance for a, b in zip(found.records, found.records[1:], strict=False))


@pytest.mark.parametrize(
    ("members", "hit", "words"),
    [
        (some(400), range(60), "noise"),
        (some(400), [3, 4, 5, 6], "leave this record out"),
        (some(400, subject=[f"p{i // 2}" for i in range(400)]), [6, 7, 8, 9], "per subject"),
        (some(400, y=[1] * 20 + [0] * 380), [3, 4, 5, 6], "this class"),
    ],
)
def test_advice_follows_who_is_exposed(members: EmbeddingSet, hit: Any, words: str) -> None:
    rng = np.random.default_rng(2)
    inside, outside = rng.uniform(size=400) - 1, rng.uniform(size=20_000)
    inside[list(hit)] = 5
    found = mapped((inside, outside), members=members)
    assert {r.row for r in found.exposed} == set(hit)
    assert all(words in r.advice for r in found.exposed)
    assert not any(r.advice for r in found.records if not r.exposed)
    assert "depends on the data" in found.warning


def test_infinite_scores_have_a_rank_too() -> None:
    found = mapped(([np.inf, 0.0, -np.inf], [0.5, -np.inf, np.inf, 1.0]))
    assert [r.row for r in found.records] == [0, 1, 2]
    assert risk_map([], some(2), some(4), np.random.default_rng(0)) is None


def test_one_record_per_non_member_counts() -> None:
    scores = Scores(np.array([1.0, 2.0]), np.arange(6.0))
    others = some(6, subject=["a", "a", "a", "b", "c", "d"])
    found = risk_map([("x", scores)], some(2), others, np.random.default_rng(0))
    assert found is not None
    assert found.non_members == 4


def test_an_audit_keeps_its_map_out_of_all_that_is_told(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, _ = subjects(0)
    named = EmbeddingSet(members.X, members.y, subject=[f"Jane Doe {i}" for i in range(len(members))])
    non_members = EmbeddingSet(others.X, others.y, subject=[f"John Roe {i}" for i in range(len(others))])
    attacks = ["nearest distance", "density ratio", "closest record"]
    report = audit(rows(members.X, members.y), named, non_members, attacks=attacks, random_state=0)
    assert report.risk is not None
    assert len(report.risk.exposed) == len(members)
    assert report.risk.exposed[0].subject.startswith("Jane Doe")
    told = json.dumps(report.to_dict()) + repr(report) + repr(report.risk)
    assert "Jane" not in told
    assert "John" not in told
    assert "risk" not in report.to_dict()
    without = audit(rows(members.X, members.y), named, non_members, attacks=["singling out"], random_state=0)
    assert without.risk is None


def test_rows_are_those_of_the_members_as_given(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, _ = subjects(1)
    # Row 0 is a non-member too, and is left out of all attacks.
    shared = EmbeddingSet(np.concatenate([members.X[:1], others.X]), np.concatenate([members.y[:1], others.y]))
    report = audit(rows(members.X, members.y), members, shared, attacks=["nearest distance"], random_state=0)
    assert report.risk is not None
    assert {r.row for r in report.risk.records} == set(range(1, len(members)))


def test_the_file_is_for_its_owner_alone_and_never_in_a_release(
    subjects: Population, rows: Callable[..., Any], tmp_path: Path
) -> None:
    members, _, _ = subjects(0, n=20)
    release = tmp_path / "release"
    rows(members.X, members.y).save(release)
    found = mapped(([3.0, 0.0], [1.0, 2.0, 0.5, 0.1]))
    with pytest.raises(PrivacyError, match="must not leave"):
        found.save(release / "risk.csv")
    (release / "deep").mkdir()
    (tmp_path / "link").symlink_to(release / "deep")
    with pytest.raises(PrivacyError, match="must not leave"):
        found.save(tmp_path / "link" / "risk.csv")
    assert not list(release.rglob("risk*"))
    path = tmp_path / "risk.csv"
    found.save(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with path.open() as stream:
        table = list(csv.DictReader(stream))
    assert [row["row"] for row in table] == ["0", "1"]
    assert table[0]["class"] == "0"
    with pytest.raises(ConfigError, match="already exists"):
        found.save(path)
    found.save(path, overwrite=True)
    with pytest.raises(ConfigError, match="its folder does not exist"):
        found.save(tmp_path / "nowhere" / "risk.csv")
