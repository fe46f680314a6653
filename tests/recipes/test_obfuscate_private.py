"""Private tables through the program's own path: options, refusals in one sentence, units and claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from locum.accounting import Ledger
from locum.data import ledger_for
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.generate.table import TableDomain, open_table
from locum.recipes import (
    apply_obfuscator,
    draft_domain,
    fit_private_table,
    fit_release,
    measure_trade_off,
    sample_table,
)
from locum.types import DP

BUDGET = DP(1.0, 1e-6)


def people(n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    smokes = rng.random(n) < 0.4
    job = np.where(rng.random(n) < np.where(smokes, 0.8, 0.3), "cook", "nurse")
    age = rng.integers(20, 70, n)
    return pd.DataFrame({"job": job, "age": age, "smokes": np.where(smokes, "yes", "no"), "visit": np.arange(n) % 90})


@pytest.fixture
def data(tmp_path: Path) -> str:
    people().to_csv(tmp_path / "people.csv", index=False)
    return str(tmp_path / "people.csv")


def fit(data: str, out: Path, **given: Any) -> Any:
    return fit_private_table(data, out, **{"utility": "smokes", "privacy": BUDGET, "domain_public": True} | given)


def test_a_declared_domain_leaves_out_what_it_does_not_name(data: str, tmp_path: Path) -> None:
    columns = {"age": {"low": 0, "high": 120, "whole": True}, "smokes": {"values": ["no", "yes"]}}
    (tmp_path / "domain.json").write_text(json.dumps({"columns": columns}))
    summary = fit(data, tmp_path / "table", domain=tmp_path / "domain.json", domain_public=False)
    assert summary.columns == ("age",)
    assert set(summary.left_out) == {"job", "visit"}
    assert summary.claim.assumptions == ()
    assert json.dumps(summary.to_dict())


def test_the_subject_is_the_unit_wherever_it_is_known(tmp_path: Path) -> None:
    frame = people()
    frame["patient"] = np.arange(len(frame)) // 3
    frame.to_csv(tmp_path / "visits.csv", index=False)
    data = str(tmp_path / "visits.csv")
    summary = fit(data, tmp_path / "table")
    assert summary.claim.unit == "subject"
    assert "patient" in summary.left_out
    assert open_table(tmp_path / "table").model.count == pytest.approx(200, abs=60)
    ledger = {"holding": "other"}
    named = fit(data, tmp_path / "named", subject="visit", drop=["patient"], **ledger)
    assert named.claim.unit == "subject"
    with pytest.raises(ConfigError, match="leave one out"):
        fit(data, tmp_path / "both", subject="visit", unit="record", **ledger)
    # A subject that is dropped is not released, and stays the unit.
    with pytest.raises(PrivacyError, match="The budget of 'other'"):
        fit(data, tmp_path / "none", drop=["patient"], **ledger)
    frame.drop(columns="patient").to_csv(tmp_path / "nobody.csv", index=False)
    with pytest.raises(ConfigError, match="--subject COLUMN"):
        fit(str(tmp_path / "nobody.csv"), tmp_path / "none", unit="subject", **ledger)
    # A name that nobody declared is not guessed away: all records of a person would count as one person each.
    numbered = str(tmp_path / "numbered.csv")
    frame.rename(columns={"patient": "patient_nbr"}).to_csv(numbered, index=False)
    with pytest.raises(PrivacyError, match="--subject patient_nbr"):
        fit(numbered, tmp_path / "none", **ledger)
    each = fit(numbered, tmp_path / "each", unit="record", drop=["patient_nbr"], holding="third")
    assert each.claim.unit == "record"
    drafted = draft_domain(numbered, tmp_path / "domain.json", utility="job", holding="fourth")
    assert "patient_nbr" not in drafted.read_text()


def test_one_odd_cell_changes_no_other_record(tmp_path: Path) -> None:
    """A column is text as soon as one cell is: what other records count as must not follow from that."""
    rows = people(200)
    rows["code"] = ["01", "1"] * 100
    columns = {
        "code": {"values": ["01", "1"], "other": "rest"},
        "age": {"low": 0, "high": 120, "whole": True},
        "smokes": {"values": ["no", "yes"]},
    }
    (tmp_path / "domain.json").write_text(json.dumps({"columns": columns}))
    odd = pd.concat([rows.assign(age=rows["age"].astype(str)), rows.iloc[:1].assign(code="odd", age="33.0")])
    domain, found = TableDomain.from_file(tmp_path / "domain.json"), []
    for name, frame in (("plain", rows), ("odd", odd)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        from locum.data import read_text_frame

        found.append(domain.codes(read_text_frame(tmp_path / f"{name}.csv")[list(domain.names)]))
    assert np.array_equal(found[0], found[1][: len(rows)])


def test_what_is_public_is_declared_or_confirmed(data: str, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="declare them"):
        fit(data, tmp_path / "table", domain_public=False)
    asked: list[str] = []

    def refuse(shown: Any) -> bool:
        asked.extend(shown)
        return False

    with pytest.raises(PrivacyError, match="nothing was spent"):
        fit(data, tmp_path / "table", domain_public=False, confirm_domain=refuse)
    assert "job: cook, nurse" in asked
    assert "age: whole numbers from 20 to 69" in asked
    assert not ledger_for(data).exists()
    rare = people()
    rare.loc[0, "job"] = "astronaut"
    rare.to_csv(data, index=False)
    with pytest.raises(PrivacyError, match="fewer than 20") as caught:
        fit(data, tmp_path / "table")
    assert "astronaut" not in str(caught.value)
    many = people().assign(job=[f"j{i % 60}" for i in range(600)])
    many.to_csv(data, index=False)
    with pytest.raises(PrivacyError, match="more than 50"):
        fit(data, tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_draft_is_private_noted_and_can_be_declared(data: str, tmp_path: Path) -> None:
    file = draft_domain(data, tmp_path / "domain.json", utility="smokes", drop=["visit"])
    assert file.stat().st_mode & 0o777 == 0o600
    facts = json.loads(file.read_text())["columns"]
    assert facts["age"] == {"low": 20, "high": 69, "whole": True}
    assert Ledger(ledger_for(data)).looks() == 1
    summary = fit(data, tmp_path / "table", domain=file, domain_public=False)
    assert any("previews" in line for line in summary.claim.not_covered)
    with pytest.raises(ConfigError, match="no column"):
        draft_domain(data, tmp_path / "more.json", utility="nothing")


def test_a_lost_ledger_is_noticed(data: str, tmp_path: Path) -> None:
    fit(data, tmp_path / "table")
    ledger_for(data).unlink()
    with pytest.raises(PrivacyError, match="would be forgotten"):
        fit(data, tmp_path / "again")
    numbers = people()[["age", "visit", "smokes"]].rename(columns={"smokes": "label"})
    numbers.to_csv(tmp_path / "vectors.csv", index=False)
    with pytest.raises(PrivacyError, match="would be forgotten"):
        fit_release(str(tmp_path / "vectors.csv"), tmp_path / "release", classes=["no", "yes"])


def test_refusals_before_anything_is_paid(data: str, tmp_path: Path) -> None:
    out = tmp_path / "table"
    for given, kind in (
        ({"utility": "nothing"}, ConfigError),
        ({"utility": "visit", "domain": tmp_path / "none.json", "domain_public": False}, LocumError),
        ({"domain": tmp_path / "d.json"}, ConfigError),
        ({"drop": ["nothing"]}, ConfigError),
        ({"privacy": DP(1.0, 0.01)}, PrivacyError),
    ):
        with pytest.raises(kind) as caught:
            fit(data, out, **given)
        assert "\n" not in str(caught.value)
    assert not out.exists()
    assert not ledger_for(data).exists() or not Ledger(ledger_for(data)).holding("default").charges


def test_a_table_takes_no_knobs(data: str, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    fit(data, folder)
    with pytest.raises(ConfigError, match="leave out"):
        apply_obfuscator(folder, data, tmp_path / "out.csv", noise=1.0)
    with pytest.raises(ConfigError, match="no knobs"):
        measure_trade_off(folder, data, tmp_path / "found", private="job", noises=[1.0])
    pd.DataFrame({"job": ["cook"], "age": [3]}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(DataError, match="no column"):
        apply_obfuscator(folder, str(tmp_path / "other.csv"), tmp_path / "out.csv")
    one = apply_obfuscator(folder, data, tmp_path / "kept.csv", keep_order=True, seed=0)
    assert pd.read_csv(tmp_path / "kept.csv")["smokes"].tolist() == people()["smokes"].tolist()
    assert any("order of the data" in line for line in one.claim.not_covered)
    sample_table(folder, tmp_path / "rows.parquet", n=7)
    assert len(pd.read_parquet(tmp_path / "rows.parquet")) == 7
    with pytest.raises(ConfigError):
        sample_table(folder, tmp_path / "rows.parquet", n=7)
