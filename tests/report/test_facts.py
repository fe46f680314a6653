"""The dict behind the page."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.errors import PrivacyError
from locum.release import Release
from locum.release.passport import AuditEntry, DecisionEntry
from locum.report import internal_report, shareable_report, to_json, to_markdown
from locum.report.text import plain

Make = Callable[..., Release]


def real(release: Release, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = np.arange(n) % len(release.classes)
    return rng.normal(size=(n, release.manifest.embedding.dim)).astype(np.float32), y


def test_an_internal_report_holds_all_that_was_given(make: Make, measured: dict[str, Any]) -> None:
    release = make()
    report = internal_report(release, records=real(release), held_out=real(release, 20), measured=measured, map="pca")
    assert report["audience"] == "internal"
    assert report["missing"] == {}
    assert report["records"] == 40
    assert [row["records"] for row in report["classes"]["rows"]] == [14, 13, 13]
    assert sum(row["released"] for row in report["classes"]["rows"]) == pytest.approx(1, abs=1e-3)
    assert [(p["title"], len(p["points"])) for p in report["map"]["panels"]] == [
        ("Real records", 40),
        ("Released vectors", 40),
    ]
    assert [c["title"] for c in report["summary"]] == [
        "What this is",
        "What is claimed",
        "What was measured",
        "May it leave?",
    ]
    assert "88 times out of 100 (AUC 0.877, 0.864 to 0.889)" in report["summary"][2]["text"]
    assert json.loads(to_json(report)) == report


def test_what_is_missing_says_what_to_type(make: Make) -> None:
    report = internal_report(make(), map="pca")
    assert "shows no real point" in report["banner"]
    assert set(report["missing"]) == {"utility", "distances", "membership", "map_real"}
    for gap in report["missing"].values():
        assert gap["type"].startswith("locum report RELEASE --train DATA")
    assert [p["title"] for p in report["map"]["panels"]] == ["Released vectors"]
    held_out_only = internal_report(make(), held_out=real(make()), map="pca")
    assert held_out_only["map"]["panels"][0]["title"] == "Real held-out records"
    assert "map_real" not in held_out_only["missing"]


def test_no_real_vector_can_reach_a_shareable_report() -> None:
    """An audit comes in as a passport holds it, and in no other shape: see the next test."""
    known = {"release", "measured", "audit", "decision", "map", "random_state"}
    assert set(inspect.signature(shareable_report).parameters) == known
    assert typing.get_type_hints(shareable_report)["audit"] == AuditEntry | None
    # Outcome, date and hash; neither name nor reason.
    assert typing.get_type_hints(shareable_report)["decision"] == DecisionEntry | None


def test_the_holders_own_audit_cannot_reach_a_shareable_report(make: Make) -> None:
    whole: Any = {"verdict": "leak", "results": [], "policy": None, "epsilon_audit": None}
    with pytest.raises(PrivacyError, match="only in the form of a passport"):
        shareable_report(make(), audit=whole)


def test_a_shareable_report_is_about_the_release_alone(make: Make, measured: dict[str, Any]) -> None:
    release = make()
    bare, told = shareable_report(release, map="pca"), shareable_report(release, measured=measured, map="pca")
    assert bare["utility"] is bare["membership"] is bare["distances"] is None
    assert bare["claim"]["not_covered"] == list(release.claim.not_covered)
    assert told["claim"]["not_covered"][:-1] == bare["claim"]["not_covered"]
    assert "measured figures" in told["claim"]["not_covered"][-1]
    assert told["map"] == bare["map"]
    assert told["classes"] == bare["classes"]
    assert told["utility"]["rows"][0]["scores"]["auc"] == {"value": 0.88, "low": 0.86, "high": 0.89}
    assert told["distances"] is None


def test_a_table_is_not_drawn_where_its_rows_could_be_counted(make: Make) -> None:
    release = make(rows=True)
    assert shareable_report(release)["map"] is None
    assert "number" in shareable_report(release)["missing"]["map"]["why"]
    assert all("bytes" not in f for f in shareable_report(release)["files"])
    drawn = internal_report(release, records=real(release, 90), map="pca")
    assert [len(p["points"]) for p in drawn["map"]["panels"]] == [90, len(release.tensors["X"])]


def test_thousands_of_classes_stay_readable(make: Make) -> None:
    names = tuple(f"class {i}" for i in range(300))
    release = make(names)
    report = internal_report(release, records=real(release, 900), map="pca")
    assert len(report["classes"]["rows"]) == 56
    assert report["classes"]["left_out"] == 244
    assert len(report["map"]["classes"]) == 56
    assert report["map"]["others"] > 100
    marks = {m for panel in report["map"]["panels"] for _, _, m in panel["points"]}
    assert min(marks) == -1
    assert max(marks) == 55


def test_data_may_lack_a_class(make: Make) -> None:
    release = make()
    X, y = real(release)
    report = internal_report(release, records=(X[y < 2], y[y < 2]), map="pca")
    assert report["classes"]["rows"][2] | {"released": 0} == {
        "name": "cat",
        "released": 0,
        "records": 0,
        "share": 0.0,
    }


def test_a_claim_has_the_shape_that_it_has_everywhere(make: Make) -> None:
    for release in (make(), make(rows=True)):
        report = shareable_report(release)
        assert release.claim.to_dict().items() <= report["claim"].items()
        assert set(report["claim"]) - set(release.claim.to_dict()) == {"title", "sentence"}
    assert (report["claim"]["k"], report["claim"]["unit"]) == (3, "record")


def test_a_claim_is_titled_as_everywhere_else(make: Make) -> None:
    report = shareable_report(make(rows=True))
    assert report["claim"]["title"] == make(rows=True).claim.title == "k-anonymity (k = 3, unit: record)"
    assert any(report["claim"]["title"] in card["text"] for card in report["summary"])


def test_untrusted_text_is_made_plain() -> None:
    assert plain({"a\x1b[2J": ["b\u202ec\nd", 3, None, "\ud800"]}) == {"a [2J": ["b c d", 3, None, ""]}


def test_distances_of_an_evaluation_are_shown_as_multiples_or_not_at_all(
    make: Make, measured: dict[str, Any]
) -> None:
    """As `evaluate` shows them; without a multiple and without records nobody could judge them."""
    release = make()
    assert internal_report(release, measured=measured, map="pca")["utility"]["rows"][0]["distance"] is None
    ratio = {"value": 2.5, "low": 2.4, "high": 2.6, "n": 1237}
    first, *others = measured["rows"]
    told = {
        **measured,
        "rows": [{**first, "distance_ratio": ratio}, *({**o, "distance_ratio": None} for o in others)],
    }
    rows = internal_report(release, measured=told, map="pca")["utility"]["rows"]
    assert rows[0]["distance"] == ratio
    assert all("distance_ratio" not in row for row in rows)
    assert "2.5 ×" in to_markdown(internal_report(release, measured=told, map="pca"))
