"""Scores per group: a planted bad group stands out, small ones are listed without a score, gaps are honest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.errors import ConfigError
from locum.generate import ClassGaussian
from locum.metrics import accuracy, auc_macro, balanced_accuracy, f1
from locum.recipes import evaluate_release
from locum.recipes.evaluate_groups import break_down, check_attributes


def planted(
    rng: np.random.Generator, sizes: dict[str, int], *, per_subject: int = 0, quality: float = 1.5, seeds: int = 3
) -> tuple[EmbeddingSet, np.ndarray, list[np.ndarray]]:
    """Groups of two classes and the probabilities of heads; in the group "bad" they say nothing."""
    value = np.repeat(list(sizes), list(sizes.values()))
    n = len(value)
    y = np.arange(n) % 2
    margin = quality * (2 * y - 1) * (value != "bad") + rng.normal(size=n)
    probas = []
    for _ in range(seeds):
        p = 1 / (1 + np.exp(-2 * (margin + 0.1 * rng.normal(size=n))))
        probas.append(np.stack([1 - p, p], axis=1))
    subject = np.arange(n) // per_subject if per_subject else None
    test = EmbeddingSet(rng.normal(size=(n, 3)), y, subject, {"site": value})
    return test, y, probas


def test_values_are_those_of_the_metrics(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"a": 60, "b": 41})
    found = break_down("site", "release", test, y, probas, np.random.default_rng(0))
    assert [(g.value, g.records, g.subjects, g.reason) for g in found.groups] == [
        ("a", 60, None, ""),
        ("b", 41, None, ""),
    ]
    for group in found.groups:
        here = test.attributes["site"] == group.value
        wanted = {
            "auc": np.mean([auc_macro(y[here], p[here], [0, 1]) for p in probas]),
            "accuracy": np.mean([accuracy(y[here], p[here].argmax(axis=1)) for p in probas]),
            "balanced_accuracy": np.mean([balanced_accuracy(y[here], p[here].argmax(axis=1)) for p in probas]),
            "f1_macro": np.mean([f1(y[here], p[here].argmax(axis=1)) for p in probas]),
        }
        assert {m: e.value for m, e in group.scores.items()} == pytest.approx(wanted)
        assert all(0 <= e.low < e.value < e.high <= 1 for e in group.scores.values())
    for metric, gap in found.gaps.items():
        ends = [g.scores[metric].value for g in found.groups]
        assert gap.difference.value == pytest.approx(max(ends) - min(ends))
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_group_with_shuffled_labels_comes_out_lower(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"a": 150, "bad": 150, "c": 150})
    found = break_down("site", "release", test, y, probas, np.random.default_rng(0))
    scores = {g.value: g.scores["auc"] for g in found.groups}
    assert scores["bad"].high < min(scores["a"].low, scores["c"].low)
    assert scores["bad"].low < 0.5 < scores["bad"].high
    for gap in found.gaps.values():
        assert gap.worst == "bad"
        assert gap.difference.low > 0.1


def test_equal_groups_show_no_gap_beyond_chance(rng: np.random.Generator) -> None:
    """Of ten equal groups the best and the worst differ a lot; the interval allows for their choice."""
    sure = 0
    for _ in range(6):
        # Far from perfect scores: near them an interval that forgets the choice passes too.
        test, y, probas = planted(rng, {f"g{i}": 40 for i in range(10)}, quality=0.5, seeds=2)
        gap = break_down("site", "release", test, y, probas, rng).gaps["auc"].difference
        sure += gap.low > 0
    assert sure <= 1


def test_intervals_cover_what_many_records_give(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"a": 100_000})
    truth = auc_macro(y, probas[0], [0, 1])
    hits = 0
    for _ in range(12):
        test, y, probas = planted(rng, {"a": 60, "b": 60})
        scores = [g.scores["auc"] for g in break_down("site", "release", test, y, probas, rng).groups]
        hits += sum(e.low <= truth <= e.high for e in scores)
    assert hits > 19


def test_records_of_one_subject_are_drawn_together(rng: np.random.Generator) -> None:
    """Ten copies of a record are one observation: the interval must not shrink."""
    test, y, probas = planted(rng, {"a": 40, "b": 40})
    rows = np.repeat(np.arange(80), 10)
    copies = EmbeddingSet(test.X[rows], y[rows], rows, {"site": test.attributes["site"][rows]})
    once = break_down("site", "release", test, y, probas, np.random.default_rng(0))
    told = break_down("site", "release", copies, y[rows], [p[rows] for p in probas], np.random.default_rng(0))
    for a, b in zip(once.groups, told.groups, strict=True):
        assert (b.records, b.subjects) == (400, 40)
        assert b.scores["auc"].value == pytest.approx(a.scores["auc"].value)
        assert b.scores["auc"].low == pytest.approx(a.scores["auc"].low, abs=0.02)


def test_groups_that_cannot_be_scored_say_why(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"few": 19, "lone": 40, "whole": 60})
    y = np.where(test.attributes["site"] == "lone", 1, y)
    found = break_down("site", "release", test, y, probas, rng)
    assert {g.value: g.reason for g in found.groups} == {
        "few": "under 20 records",
        "lone": "one class only",
        "whole": "",
    }
    assert [g.records for g in found.groups] == [19, 40, 60]
    assert [bool(g.scores) for g in found.groups] == [False, False, True]
    assert found.gaps == {}
    test, y, probas = planted(rng, {"few": 60, "whole": 200}, per_subject=5)
    found = break_down("site", "release", test, y, probas, rng)
    assert [(g.subjects, g.reason) for g in found.groups] == [(12, "under 20 subjects"), (40, "")]


def test_no_group_can_be_scored(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"a": 5, "b": 6})
    found = break_down("site", "release", test, y, probas, rng)
    assert all(g.reason for g in found.groups)
    assert found.gaps == {}


def test_one_seed_and_perfect_scores(rng: np.random.Generator) -> None:
    test, y, probas = planted(rng, {"a": 40, "b": 40}, seeds=1)
    found = break_down("site", "release", test, y, probas, rng)
    assert found.groups[0].scores["auc"].to_dict()["low"] is None
    assert found.gaps["auc"].difference.to_dict()["high"] is None
    test, y, probas = planted(rng, {"a": 40, "b": 40}, quality=50)
    found = break_down("site", "release", test, y, probas, rng)
    assert found.groups[0].scores["auc"].value == 1
    # Twenty of twenty right: the exact interval starts at .025 ** (1 / 20).
    assert found.groups[0].scores["auc"].low == pytest.approx(0.025 ** (1 / 20), abs=1e-3)
    assert found.gaps["auc"].difference.low < 0 < found.gaps["auc"].difference.high


def test_wrong_attributes_are_named(rng: np.random.Generator) -> None:
    test, _, _ = planted(rng, {"a": 60})
    with pytest.raises(ConfigError, match="no attribute 'sex': they have site"):
        check_attributes(test, ["site", "sex"])
    with pytest.raises(ConfigError, match="they have none"):
        check_attributes(EmbeddingSet(test.X, test.y), ["sex"])
    many = EmbeddingSet(test.X, test.y, attributes={"age": np.arange(60)})
    with pytest.raises(ConfigError, match=r"'age' has 60 values .* at most 20: put it into bins"):
        check_attributes(many, ["age"])


def test_from_release_to_groups(
    blobs: tuple[np.ndarray, np.ndarray], rng: np.random.Generator, tmp_path: Path
) -> None:
    """The release and real data have groups; shuffled labels of one group pull both down."""
    X, y = blobs
    release = ClassGaussian(random_state=0).fit(X, y).release(no_dp=True).save(tmp_path / "r")
    site = np.array(["a", "bad"])[np.arange(len(y)) % 2]
    labels = y.copy()
    labels[site == "bad"] = rng.permutation(labels[site == "bad"])
    moved = X + 0.1 * rng.normal(size=X.shape)
    write_embeddings(tmp_path / "test.npz", EmbeddingSet(moved, labels, attributes={"site": site}))
    write_embeddings(tmp_path / "train.npz", EmbeddingSet(X, y))
    found = evaluate_release(
        release,
        str(tmp_path / "test.npz"),
        train=str(tmp_path / "train.npz"),
        seeds=2,
        by=["site", "site"],
        ks=(2,),
    )
    assert [g.method for g in found.groups] == ["release (ClassGaussian)", "real data"]
    for part in found.groups:
        gap = part.gaps["balanced_accuracy"]
        assert (gap.best, gap.worst) == ("a", "bad")
        assert gap.difference.low > 0.2
    assert found.to_dict()["groups"][0]["attribute"] == "site"
