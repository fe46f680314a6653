"""From the JSON of an audit to pages: its own, the report's, the passport's; and the risk map, which is on none."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import AuditReport, audit
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import ClassGaussian
from locum.recipes import make_audit_page, make_report, write_passport
from locum.recipes.audit import write_risk
from locum.release import load
from locum.types import verdict_text


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, AuditReport]:
    """A folder with a release and its audit; subjects whose names can be recognized."""
    folder = tmp_path_factory.mktemp("audited")
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = (rng.normal(size=(240, 6)) + y[:, None]).astype(np.float32)
    who = np.array([f"Doe{i}" for i in range(240)])
    members, others = (EmbeddingSet(X[s], y[s], subject=who[s]) for s in (slice(120), slice(120, None)))
    ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True).save(folder / "release")
    release = load(folder / "release")
    report = audit(release, members, others, attacks=["nearest distance", "singling out"], random_state=0)
    told = {"audited": "release", "fingerprint": release.fingerprint, **report.to_dict()}
    (folder / "audit.json").write_text(json.dumps(told))
    return folder, report


def test_the_page_of_a_real_audit_is_for_its_owner(audited: tuple[Path, AuditReport], tmp_path: Path) -> None:
    folder, report = audited
    out = tmp_path / "audit.html"
    facts = make_audit_page(folder / "audit.json", out)
    assert facts["verdict"] == report.verdict
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    text = out.read_text()
    assert "INTERNAL" in text
    assert verdict_text(report.verdict).audit in text
    with pytest.raises(ConfigError, match="already exists"):
        make_audit_page(folder / "audit.json", out)
    with pytest.raises(PrivacyError, match="must not leave"):
        make_audit_page(folder / "audit.json", folder / "release" / "audit.html")
    with pytest.raises(ConfigError, match="There is no file"):
        make_audit_page(folder / "none.json", tmp_path / "b.html")


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_a_report_shows_the_audit_of_this_release_only(
    audited: tuple[Path, AuditReport], tmp_path: Path, suffix: str
) -> None:
    folder, report = audited
    out = tmp_path / f"report.{suffix}"
    made = make_report(folder / "release", out, audit=folder / "audit.json", map="pca")
    assert made["audit"]["verdict"] == report.verdict
    assert "singling out" in out.read_text()
    assert "no attack was run" not in made["summary"][2]["text"]
    other = json.loads((folder / "audit.json").read_text()) | {"fingerprint": "0" * 64}
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match="not of this release"):
        make_report(folder / "release", out, audit=tmp_path / "other.json", map="pca", overwrite=True)


def test_a_page_that_leaves_tells_verdicts_and_figures_only_on_request(
    audited: tuple[Path, AuditReport], tmp_path: Path
) -> None:
    folder, _ = audited
    given: dict[str, Any] = {"audit": folder / "audit.json", "share": True, "map": "pca"}
    bare = make_report(folder / "release", tmp_path / "a.html", **given)
    told = make_report(folder / "release", tmp_path / "b.html", include_measured=True, **given)
    assert bare["audit"]["results"][0]["attack"] is None
    assert told["audit"]["results"][0]["attack"] is not None
    for made in (bare, told):
        assert any("verdicts of attacks" in words for words in made["claim"]["not_covered"])
        assert not made["audit"]["classes"]
        assert not any(r["roc"] for r in made["audit"]["results"])
    assert not any("measured figures" in words for words in bare["claim"]["not_covered"])
    assert any("measured figures" in words for words in told["claim"]["not_covered"])
    assert "forest-auc" not in (tmp_path / "a.html").read_text()
    assert "forest-auc" in (tmp_path / "b.html").read_text()


def test_no_passport_and_no_page_holds_the_risk_map(audited: tuple[Path, AuditReport], tmp_path: Path) -> None:
    folder, report = audited
    words, warning = write_risk(report, tmp_path / "risk.csv")
    assert "120" in words
    assert "depends on the data" in warning
    assert "Doe7," in (tmp_path / "risk.csv").read_text()
    assert stat.S_IMODE((tmp_path / "risk.csv").stat().st_mode) == 0o600
    with pytest.raises(PrivacyError, match="must not leave"):
        write_risk(report, folder / "release" / "risk.csv")
    write_passport(folder / "release", audit=folder / "audit.json", include_measured=True, overwrite=True)
    make_audit_page(folder / "audit.json", tmp_path / "page.html")
    files = [*(folder / "release").iterdir(), folder / "audit.json", tmp_path / "page.html"]
    for file in files:
        raw = file.read_bytes()
        assert b"Doe" not in raw, file.name
        assert b"non_members_as_high" not in raw, file.name
        assert b"by_chance" not in raw, file.name


def test_no_map_where_no_attack_scores_records(tmp_path: Path) -> None:
    empty = AuditReport((), (), {}, "internal", ())
    with pytest.raises(ConfigError, match="there is no risk map"):
        write_risk(empty, tmp_path / "risk.csv")
    assert not list(tmp_path.iterdir())
