"""All that is known about a release, gathered from its folder and from beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from locum.accounting import Ledger
from locum.data import ledger_for, load_sample, read_embeddings, split, write_embeddings
from locum.errors import ConfigError, DataError, ReleaseError
from locum.recipes import (
    audit_data,
    decide_release,
    evaluate_release,
    fit_release,
    ledger_knows,
    make_key_pair,
    read_risk,
    review_release,
    show_cost,
    show_ledger,
)
from locum.release.passport import FIVE_SAFES
from locum.types import DP


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private release, attacked and measured as the studio does it."""
    import numpy as np

    folder = tmp_path_factory.mktemp("review")
    parts = split(load_sample("breast-cancer"), {"train": 0.6, "val": 0.2, "test": 0.2}, rng=np.random.default_rng(0))
    for name, part in parts.items():
        write_embeddings(folder / f"{name}.npz", part)
    release = fit_release(str(folder / "train.npz"), folder / "release", classes_public=True).release
    audit_data(
        release,
        str(folder / "train.npz"),
        str(folder / "val.npz"),
        attacks=["nearest distance"],
        out=folder / "release-audit.json",
        risk=folder / "release-risk.csv",
        seed=0,
    )
    found = evaluate_release(release, str(folder / "test.npz"), seeds=1).to_dict()
    (folder / "release-evaluation.json").write_text(json.dumps(found))
    return folder


def test_findings_beside_the_release_are_found(made: Path) -> None:
    facts = review_release(made / "release")
    assert facts["audit"]["results"][0]["name"] == "nearest distance"
    assert facts["page"]["usefulness"]["records"] == len(read_embeddings(made / "test.npz"))
    assert facts["page"]["strongest"]["name"] == "nearest distance"
    assert facts["outcome"] is None
    assert facts["has_risk"]
    assert not facts["has_head"]
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize("change", ["other", "damaged", "link"])
def test_findings_about_another_release_are_not(made: Path, tmp_path: Path, change: str) -> None:
    import shutil

    shutil.copytree(made / "release", tmp_path / "release")
    findings: dict[str, Any] = json.loads((made / "release-audit.json").read_text())
    file = tmp_path / "release-audit.json"
    if change == "other":
        file.write_text(json.dumps(findings | {"fingerprint": "0" * 64}))
    elif change == "damaged":
        file.write_text(json.dumps(findings)[:-10])
    else:
        file.symlink_to(made / "release-audit.json")
    assert review_release(tmp_path / "release")["audit"] is None


def test_a_damaged_release_is_an_error(made: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(made / "release", tmp_path / "release")
    (tmp_path / "release" / "more.txt").write_text("x")
    with pytest.raises(ReleaseError):
        review_release(tmp_path / "release")


def test_the_risk_map_is_read(made: Path, tmp_path: Path) -> None:
    found = read_risk(made / "release")
    assert len(found["rows"]) == 200 < found["records"]
    assert {"row", "class", "exposed"} <= set(found["rows"][0])
    with pytest.raises(ConfigError, match="no risk map"):
        read_risk(tmp_path / "release")
    (tmp_path / "bad-risk.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="not a risk map"):
        read_risk(tmp_path / "bad")


def test_the_cost_is_held_against_what_is_left(made: Path, tmp_path: Path) -> None:
    spent = show_cost(str(made / "train.npz"), DP(1.0, 1e-6))
    assert "nothing is left" in spent["problem"]
    assert spent["holding"]["name"] == "default"
    fresh = show_cost(str(tmp_path / "scans"), DP(1.0, 1e-6))
    assert fresh["problem"] == ""
    assert fresh["holding"] is None
    assert 0.56 < fresh["limit"] < 0.57
    # Looking opens no ledger.
    assert not (tmp_path / ".locum").exists()
    other = show_cost(str(made / "train.npz"), DP(1.0, 1e-6), "another")
    assert other["holding"] is None


def test_all_that_is_left_may_be_asked_for_and_no_other_unit_or_relation(tmp_path: Path) -> None:
    data, ledger = str(tmp_path / "scans.npz"), Ledger(ledger_for(tmp_path / "scans.npz"))
    ledger.set_budget("default", epsilon=1.0, delta=1e-6, unit="subject")
    assert show_cost(data, DP(1.0, 1e-6, "subject"))["problem"] == ""
    assert "are left" in show_cost(data, DP(1.01, 1e-6, "subject"))["problem"]
    assert "are left" in show_cost(data, DP(1.0, 1.1e-6, "subject"))["problem"]
    for other in (DP(0.5, 1e-6), DP(0.5, 1e-6, "subject", None, "replace-one")):
        found = show_cost(data, other)
        assert "counts by subject and add-or-remove" in found["problem"]
        assert found["holding"]["name"] == "default"
    # Not read, the data may well have subjects.
    assert show_cost(data, DP(0.5, 1e-6), unit_from_data=True)["problem"] == ""


def test_an_attack_after_the_decision_makes_it_outdated(made: Path, tmp_path: Path) -> None:
    import shutil

    pytest.importorskip("cryptography")
    release = Path(shutil.copytree(made / "release", tmp_path / "release"))
    audit = tmp_path / "release-audit.json"
    before = json.loads((made / "release-audit.json").read_text())
    # Noise decides what the attacks found: what is decided on is an audit without a leak, in any case.
    quiet = [result | {"verdict": "inconclusive"} for result in before["results"]]
    before |= {"verdict": "inconclusive", "results": quiet}
    audit.write_text(json.dumps(before))
    assert not review_release(release)["outdated"]
    make_key_pair(tmp_path / "key")
    checks = {name: {"ok": True} for name in FIVE_SAFES}
    given: dict[str, Any] = {"name": "R. Okafor", "reason": "Agreed.", "checklist": checks, "key": tmp_path / "key"}
    decide_release(release, outcome="approved", audit=audit, override="Agreed in the board.", **given)
    assert not review_release(release)["outdated"]
    audit.write_text(json.dumps(before | {"verdict": "leak"}))
    found = review_release(release)
    assert (found["outcome"], found["outdated"]) == ("approved", True)


def test_a_ledger_knows_its_charges_and_no_others(made: Path, tmp_path: Path) -> None:
    ledger = made / ".locum" / "ledger.sqlite"
    tip = show_ledger(ledger)["holdings"][0]["charges"][0]["tip"]
    assert ledger_knows(ledger, tip)
    assert not ledger_knows(ledger, "0" * 64)
    assert not ledger_knows(tmp_path / "nowhere.sqlite", tip)
    (tmp_path / "text.sqlite").write_text("no ledger")
    assert not ledger_knows(tmp_path / "text.sqlite", tip)
