"""A private table is paid for before anything is drawn, once; a killed fit goes on without a second payment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from locum.accounting import Ledger
from locum.errors import CheckpointError, PrivacyError
from locum.generate.private import PaidSums
from locum.generate.table import (
    CategoryColumn,
    CountQuery,
    PrivateTable,
    TableDomain,
    TableLearner,
    open_table,
    save_table,
)
from locum.recipes import apply_obfuscator, fit_private_table, sample_table
from locum.release import transcript_hash
from locum.types import DP

DOMAIN = TableDomain(
    (
        CategoryColumn("job", ("cook", "nurse")),
        CategoryColumn("town", ("A", "B", "C")),
        CategoryColumn("smokes", ("no", "yes")),
    )
)
BUDGET = DP(1.0, 1e-6)


def people(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    smokes = rng.random(n) < 0.4
    job = np.where(rng.random(n) < np.where(smokes, 0.8, 0.3), "cook", "nurse")
    return pd.DataFrame({"job": job, "town": rng.choice(["A", "B", "C"], n), "smokes": np.where(smokes, "yes", "no")})


def spent(ledger: Path) -> int:
    return len(Ledger(ledger).holding("default").charges) if ledger.exists() else 0


def test_charge_result_and_release_are_in_the_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    table = PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger).fit(people())
    assert table.claim_.kind == "dp"
    assert table.claim_.dp is not None
    assert table.claim_.dp.epsilon <= 1.0
    saved = save_table(table, tmp_path / "table")
    found = Ledger(ledger)
    charge = found.holding("default").charges[0]
    assert [event["sums"] for event in table.claim_.dp.events] == [3]
    results = found.results(charge)
    assert len([name for name in results if name.startswith("steps ")]) == 3
    assert transcript_hash(saved.transcript) in results.values()
    assert found.releases(charge) == (saved.fingerprint,)


def test_the_charge_is_on_disk_before_anything_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, seen = tmp_path / "ledger.sqlite", []
    honest = CountQuery.sums

    def watched(self: CountQuery, *given: object) -> object:
        seen.append(spent(ledger))
        return honest(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(CountQuery, "sums", watched)
    PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger).fit(people())
    assert seen == [1, 1, 1]


@pytest.mark.parametrize("drawn", [0, 1, 2])
def test_a_killed_fit_goes_on_without_a_second_payment(
    drawn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, checkpoint = tmp_path / "ledger.sqlite", tmp_path / "fit.checkpoint"
    table = PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger, checkpoint=checkpoint)
    honest, calls = CountQuery.sums, []

    def killed(self: CountQuery, *given: object) -> object:
        if len(calls) == drawn:
            raise KeyboardInterrupt
        calls.append(self)
        return honest(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(CountQuery, "sums", killed)
        with pytest.raises(KeyboardInterrupt):
            table.fit(people())
    assert checkpoint.stat().st_mode & 0o777 == 0o600
    assert spent(ledger) == 1
    # Other records are refused: what was drawn is not about them.
    with pytest.raises(CheckpointError, match="other data"):
        table.fit(people(300))
    calls.clear()
    again: list[CountQuery] = []

    def counted(self: CountQuery, *given: object) -> object:
        again.append(self)
        return honest(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(CountQuery, "sums", counted)
        table.fit(people())
    assert len(again) == 3 - drawn
    assert spent(ledger) == 1
    table.remove_checkpoint()
    assert not checkpoint.exists()


def test_a_second_fit_is_charged_and_a_third_is_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    with Ledger(ledger) as opened:
        opened.open_for(DP(2.5, 1e-5), "default")
    for count in (1, 2):
        PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger).fit(people())
        assert spent(ledger) == count
    with pytest.raises(PrivacyError, match="does not allow"):
        PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger).fit(people())
    assert spent(ledger) == 2


def test_an_insecure_seed_pays_nothing_and_claims_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    table = PrivateTable(DOMAIN, "smokes", BUDGET, ledger=ledger, insecure_seed=0).fit(people())
    assert not ledger.exists()
    assert table.claim_.kind == "none"
    assert table.claim_.test
    saved = save_table(table, tmp_path / "table")
    assert saved.claim.test
    summary = sample_table(tmp_path / "table", tmp_path / "rows.csv", n=10)
    assert summary.claim.kind == "none"


def test_a_draw_that_is_not_paid_for_is_refused(tmp_path: Path) -> None:
    paid = PaidSums(PrivateTable(DOMAIN, "smokes", BUDGET).plan(), None, "x", "y", insecure_seed=0)
    query = CountQuery(((0,),), (np.arange(2),), (1.0,))
    for share in (0.3, 0.2, 0.5):
        paid.draw(lambda: query.sums(np.zeros((1, 1), np.int64), np.ones(1, np.int64)), share)
    with pytest.raises(PrivacyError, match="not paid for"):
        paid.draw(lambda: query.sums(np.zeros((1, 1), np.int64), np.ones(1, np.int64)), 0.01)


def test_only_sampled_rows_carry_the_guarantee(tmp_path: Path) -> None:
    data, folder = tmp_path / "people.csv", tmp_path / "table"
    people().to_csv(data, index=False)
    fit_private_table(str(data), folder, utility="smokes", privacy=BUDGET, domain_public=True)
    sampled = sample_table(folder, tmp_path / "rows.csv", n=50, seed=0)
    applied = apply_obfuscator(folder, str(data), tmp_path / "applied.csv")
    claims = [json.loads(Path(file).read_text())["claim"] for file in (sampled.claim_file, applied.claim_file)]
    assert [claim["kind"] for claim in claims] == ["dp", "none"]
    assert claims[0]["assumptions"][0].startswith("given that these categories and ranges are public")
    assert any("true label" in line for line in claims[1]["not_covered"])
    assert any("`locum obfuscate sample`" in line for line in claims[1]["not_covered"])
    released = pd.read_csv(tmp_path / "applied.csv")
    assert sorted(released["smokes"]) == sorted(people()["smokes"])
    assert open_table(folder).claim.dp is not None


def test_what_leaves_follows_from_the_noisy_counts_alone(tmp_path: Path) -> None:
    """The same noisy counts give the same model, whatever the records were."""
    table = PrivateTable(DOMAIN, "smokes", BUDGET, ledger=tmp_path / "ledger.sqlite").fit(people())
    learner, rest = TableLearner(DOMAIN, "smokes", table.plan().noise_multiplier), table.transcript_.astype(float)
    while not learner.done:
        size = learner.query.size
        learner.take(rest[:size])
        rest = rest[size:]
    assert not len(rest)
    assert learner.model().sample(100, random_state=0).equals(table.sample(100, random_state=0))
