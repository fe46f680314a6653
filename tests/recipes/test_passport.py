"""A passport from the recipe: what it takes from files that hold more, and what it does not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Gaussian, epsilon_of, events_to_json
from locum.errors import ConfigError, DataError, IntegrityError, PrivacyError
from locum.generate import ClassGaussian, KSame
from locum.recipes import verify_release, write_passport
from locum.release import Release, load
from locum.release.passport.schema import MEASURED, TOLD_VERDICTS
from locum.types import AttackResult, DPClaim, Estimate, PrivacyClaim

EVENTS = (Gaussian(4.0),)
LEAK = AttackResult(
    "a", "auc", Estimate(0.9, 0.8, 1.0, 9), Estimate.exact(0.5), Estimate.exact(0.5), p_value=0.0
).to_dict()


def guaranteed(release: Release, factor: float = 1.0) -> Release:
    """The same with a guarantee, whose epsilon is its cost times `factor`."""
    epsilon = factor * epsilon_of(EVENTS, 1e-5)
    dp = DPClaim(epsilon, 1e-5, "add-or-remove", tuple(events_to_json(EVENTS)), "0" * 64)
    claim = PrivacyClaim(kind="dp", not_covered=("the rest",), dp=dp)
    return Release(release.manifest.model_copy(update={"claim": claim}), release.tensors)


@pytest.fixture
def release(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    return ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "release")


@pytest.fixture
def audit(release: Path, tmp_path: Path) -> Path:
    """What an audit writes, with exact counts, a class and a note that must not leave."""
    results = [
        AttackResult(
            name="density ratio",
            measure="auc",
            attack=Estimate(0.87654, 0.80123, 0.93123, 4711),
            control=Estimate(0.51234, 0.45, 0.57, 4711),
            baseline=Estimate.exact(0.5),
            p_value=1e-9,
            tpr={0.01: Estimate(0.23456, 0.2, 0.3, 4711)},
            by_class={"secret class": Estimate(0.99123, 0.9, 1.0, 4711)},
            notes=("4711 records were compared",),
        ).to_dict(),
        AttackResult(
            "nearest distance", "auc", Estimate(0.5, 0.48, 0.52, 9), Estimate.exact(0.5), Estimate.exact(0.5)
        ).to_dict(),
    ]
    finding = {"rule": "no AUC above 0.6", "met": False, "found": "density ratio: 0.876 of 4711", "reason": "because"}
    told = {
        "audited": "patients/release",
        "fingerprint": load(release).fingerprint,
        "verdict": "leak",
        "may_leave": False,
        "policy": {"name": "public", "findings": [finding]},
        "results": results,
        "epsilon_audit": None,
    }
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(told))
    return path


def everything(folder: Path) -> str:
    return "".join(
        (folder / name).read_text() for name in ("passport.json", "passport.html", "passport.md", "croissant.json")
    )


def test_decoder_card_and_manifest_stay_as_they_were(release: Path) -> None:
    before = {file.name: file.read_bytes() for file in release.iterdir()}
    summary = write_passport(release)
    assert set(summary.files) == {"passport.json", "passport.html", "passport.md", "croissant.json"}
    assert {name: (release / name).read_bytes() for name in before} == before
    found = verify_release(release)
    assert found.passport == summary.sha256
    assert "what this version would write" in found.checks[-1]
    assert load(release).sample(3, random_state=0)[0].shape == (3, 8)
    # Saving what was loaded gives the three files alone: passport files belong to a folder, not to the numbers.
    again = load(release).save(release.with_name("again"))
    assert {file.name for file in again.iterdir()} == set(before)


def test_figures_need_to_be_asked_for(release: Path, audit: Path) -> None:
    told = write_passport(release, audit=audit)
    assert told.passport.audit is not None
    assert told.passport.audit.verdict == "leak"
    assert [r.name for r in told.passport.audit.results] == ["density ratio", "nearest distance"]
    assert TOLD_VERDICTS in told.claim.not_covered
    assert MEASURED not in told.claim.not_covered
    assert told.passport.audit.policy is not None
    assert not told.passport.audit.policy.met
    assert [rule.rule for rule in told.passport.audit.policy.rules] == ["no AUC above 0.6"]
    assert "NOT MET" in (release / "passport.md").read_text()
    assert "0.87" not in everything(release)
    told = write_passport(release, audit=audit, include_measured=True, overwrite=True)
    assert MEASURED in told.claim.not_covered
    assert told.passport.audit is not None
    attacked = told.passport.audit.results[0].model_dump(exclude_none=True)
    assert attacked["attack"] == {"value": 0.88, "low": 0.8, "high": 0.94}
    assert set(attacked) == {"name", "measure", "verdict", "attack", "control", "baseline", "tpr"}
    assert set(attacked["tpr"]) == {"0.01"}
    text = everything(release)
    assert "0.88" in text
    assert all(word not in text for word in ("4711", "secret class", "0.876", "were compared", "patients/"))
    verify_release(release)


def test_a_broken_guarantee_is_in_the_passport(release: Path, audit: Path) -> None:
    data = json.loads(audit.read_text())
    data["epsilon_audit"] = {
        "verdict": "broken guarantee",
        "upper": 1.0,
        "lower": {"epsilon": 1.5, "delta": 1e-5, "confidence": 0.95, "canaries": 1000},
    }
    audit.write_text(json.dumps(data))
    told = write_passport(release, audit=audit, include_measured=True).passport.audit
    assert told is not None
    assert told.results[0].name == "density ratio"
    assert told.results[0].attack is not None
    assert told.results[0].attack.value == 0.88
    assert told.epsilon_audit is not None
    assert "1,000 canaries refute every epsilon below 1.50" in (release / "passport.html").read_text()
    verify_release(release)


def test_an_evaluation_is_rounded_too(release: Path, tmp_path: Path) -> None:
    score = {"value": 0.91234, "low": 0.85678, "high": None, "n": 1234}
    data = {"head": "linear", "seeds": 1, "test_records": 1234, "membership": None}
    data["rows"] = [{"method": "release (ClassGaussian)", "rows": 1234, "scores": {"auc": score}, "distance": None}]
    (tmp_path / "e.json").write_text(json.dumps(data))
    told = write_passport(release, evaluation=tmp_path / "e.json", include_measured=True)
    assert told.passport.utility is not None
    assert told.passport.utility.rows[0].scores["auc"].model_dump() == {"value": 0.91, "low": 0.85, "high": None}
    assert "1234" not in everything(release)
    assert MEASURED in told.claim.not_covered
    (tmp_path / "e.json").write_text(json.dumps({**data, "fingerprint": "0" * 64}))
    with pytest.raises(DataError, match="another release"):
        write_passport(release, evaluation=tmp_path / "e.json", include_measured=True, overwrite=True)


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": None},
        {"fingerprint": "0" * 64},
        {"verdict": "fine"},
        {"may_leave": True},
        {"policy": {"name": "public"}},
        {"epsilon_audit": {"verdict": "no contradiction found"}},
        {"results": []},
        {"results": [7]},
        {"results": [{**LEAK, "verdict": "fine"}]},
        {"results": [{**LEAK, "verdict": "no excess risk found"}]},
        {"results": [{**LEAK, "measure": "rate"}]},
        {"results": [{**LEAK, "name": "a\n"}]},
        {"results": [{**LEAK, "attack": {"value": 1}}]},
        {"results": [{**LEAK, "attack": {"value": "x", "low": 0, "high": 1, "n": 1}}]},
        {"results": [{**LEAK, "tpr": [1]}]},
        {"results": [{k: v for k, v in LEAK.items() if k != "name"}]},
    ],
)
def test_an_audit_that_cannot_be_trusted_is_refused(release: Path, audit: Path, change: dict[str, Any]) -> None:
    before = sorted(file.name for file in release.iterdir())
    audit.write_text(json.dumps({**json.loads(audit.read_text()), **change}))
    with pytest.raises(DataError) as told:
        write_passport(release, audit=audit, include_measured=True)
    assert "\n" not in str(told.value)
    assert sorted(file.name for file in release.iterdir()) == before


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"fingerprint": 1e999}', "[" * 100_000])
def test_a_file_that_is_no_audit_is_refused(release: Path, audit: Path, text: str) -> None:
    audit.write_text(text)
    with pytest.raises(DataError):
        write_passport(release, audit=audit)
    with pytest.raises(ConfigError, match="no file"):
        write_passport(release, audit=audit.with_name("none.json"))


def test_wrong_use(release: Path, audit: Path) -> None:
    with pytest.raises(ConfigError, match="--audit FILE or --evaluation FILE"):
        write_passport(release, include_measured=True)
    with pytest.raises(ConfigError, match="Add --include-measured"):
        write_passport(release, evaluation=audit)
    write_passport(release)
    with pytest.raises(ConfigError, match="--force"):
        write_passport(release)


def test_damaged_passport_files_can_be_replaced(release: Path) -> None:
    write_passport(release)
    (release / "passport.html").unlink()
    with pytest.raises(IntegrityError, match="missing"):
        load(release)
    write_passport(release, overwrite=True)
    verify_release(release)


def test_a_guarantee_has_a_registry_record_and_a_lie_gets_no_passport(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    plain = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    honest = guaranteed(plain).save(tmp_path / "honest")
    assert "dp-registry.json" in write_passport(honest).files
    assert "the claimed epsilon covers what its events cost" in verify_release(honest).checks
    liar = guaranteed(plain, 0.5).save(tmp_path / "liar")
    with pytest.raises(PrivacyError, match="but composing its events costs"):
        write_passport(liar)
    assert len(list(liar.iterdir())) == 3
    # Nor can the passport of the honest one be lent to it.
    for name in ("passport.json", "passport.html", "passport.md", "croissant.json", "dp-registry.json"):
        (liar / name).write_bytes((honest / name).read_bytes())
    with pytest.raises(IntegrityError, match="another release"):
        verify_release(liar)


def test_a_table_of_rows_gets_a_passport_without_their_number(
    blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    folder = KSame(k=3, random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "rows")
    write_passport(folder)
    verify_release(folder)
    # Hashes may hold any digits.
    assert not [word for word in everything(folder).replace('"', " ").replace(",", " ").split() if word == "210"]
    assert "at least 3 records" in (folder / "passport.md").read_text()
