"""A proven limit decides only where a ledger shows it, and then it stands for records that are too few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Charge, Gaussian, Ledger, attack_limit, events_from_json, events_to_json, pair_limits
from locum.audit import load_policy, proven_limit
from locum.audit.limit import with_limit
from locum.errors import ConfigError, PrivacyError
from locum.mechanisms import discrete_gaussian
from locum.recipes import audit_data, fit_release
from locum.release import load
from locum.types import DP, AttackResult, DPClaim, Estimate, PrivacyClaim


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """400 members, 387 non-members, and a release that a ledger paid for."""
    folder = tmp_path_factory.mktemp("paid")
    rng = np.random.default_rng(0)
    for name, n in (("members", 400), ("others", 387)):
        y = np.arange(n) % 2
        np.savez(folder / f"{name}.npz", X=(rng.normal(size=(n, 16)) + y[:, None]).astype(np.float32), y=y)
    files = {name: str(folder / f"{name}.npz") for name in ("members", "others")}
    budget = DP(1.0, 1e-6, n_public=400)
    options = {"privacy": budget, "classes": ["0", "1"], "ledger": folder / "ledger.sqlite"}
    with pytest.MonkeyPatch.context() as patch:
        # What attacks find depends on the noise: a seed makes the test repeatable, and the payment is real.
        patch.setattr(
            discrete_gaussian, "discrete_gaussian", lambda std, n: np.rint(rng.normal(0, std, n)).astype(np.int64)
        )
        fit_release(files["members"], folder / "release", non_members=files["others"], **options)
    return {**files, "release": folder / "release", "ledger": folder / "ledger.sqlite", "folder": folder}


def audited(paid: dict[str, Any], **options: Any) -> Any:
    return audit_data(paid["release"], paid["members"], paid["others"], seed=0, **options).report


def test_few_records_are_no_refusal_where_a_ledger_shows_the_limit(paid: dict[str, Any]) -> None:
    lines = load(paid["release"]).claim.assumptions
    asked = ["nearest distance", "closest record", "density ratio", "likelihood ratio", "LiRA on sums", "LiRA"]
    alone = audited(paid, attacks=asked, shadows=16)
    assert not alone.may_leave
    assert "the number of inconclusive attacks is at most 1" in [f.rule for f in alone.findings if not f.met]
    report = audited(paid, attacks=asked, shadows=16, ledger=paid["ledger"], accept=lines)
    assert report.limit.auc == attack_limit(events_from_json(load(paid["release"]).claim.dp.events))
    assert report.outcome == "within the proven limit (0.567)"
    assert report.limit.sentence.endswith(
        "above 0.567, even knowing all other records; it is the only release charged to this ledger so far."
    )
    assert report.may_leave, [f for f in report.findings if not f.met]
    assert [r.name for r in report.results] == [r.name for r in alone.results]


def test_the_limit_of_a_claim_alone_decides_nothing(paid: dict[str, Any], tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    Ledger(other).set_budget("default", epsilon=9.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="does not have the charge"):
        audited(paid, ledger=other)
    assert audited(paid, attacks=["LiRA on sums"]).limit is None
    with pytest.raises(ConfigError, match="add --ledger"):
        audited(paid, accept=["anything"])
    with pytest.raises(ConfigError, match="Leave it out"):
        audit_data(None, paid["members"], paid["others"], synthetic=paid["members"], ledger=other)


def dp_claim(noise: float, *assumptions: str, unit: str = "record") -> PrivacyClaim:
    dp = DPClaim(1.0, 1e-6, "add-or-remove", tuple(events_to_json([Gaussian(noise)])), "0" * 64)
    return PrivacyClaim("dp", ("x",), dp=dp, assumptions=assumptions, unit=unit)  # type: ignore[arg-type]


def charge(epsilon: float) -> Charge:
    return Charge("1", "scans", epsilon, 1e-6, (Gaussian(4.0),), "means", tip="")


def found(value: float, half: float = 0.02, p: float = 1e-9) -> AttackResult:
    fair = Estimate(0.5, 0.45, 0.55, 300)
    return AttackResult(
        "a", "auc", Estimate(value, value - half, value + half, 500), fair, Estimate.exact(0.5), p_value=p
    )


def test_an_attack_below_its_limit_is_no_leak_and_one_above_it_is() -> None:
    limit = proven_limit(dp_claim(4.22), [charge(1.0)])
    below, above = with_limit(found(0.57), limit), with_limit(found(0.62), limit)
    assert (found(0.57).verdict, below.verdict) == ("leak", "within the proven limit")
    assert AttackResult.from_dict(below.to_dict()) == below
    assert with_limit(found(0.57), replace(limit, open_assumptions=("x",))).verdict == "leak"
    assert (above.verdict, limit.exceeded_by(above)) == ("leak", True)
    policy = load_policy("research-sharing")
    rule = "every attack stays within the proven limit (0.567)"
    held, broken = ({f.rule: f for f in policy.findings([r], dp_claim(4.22), limit=limit)} for r in (below, above))
    assert held[rule].met
    assert held["no attacker's AUC can be above 0.6"].met
    assert held["no attacker's AUC can be above 0.6"].proven
    # Rounded up, as in the rule above.
    assert held["no attacker's AUC can be above 0.6"].found.startswith("proven limit, one release charged: 0.567; ")
    assert held["the number of inconclusive attacks is at most 1"].met
    assert not broken[rule].met
    assert not broken["no attack found a leak"].met


def test_conditions_of_a_proof() -> None:
    """Subjects where they are known, every assumption by name, and all releases together."""
    policy, quiet = load_policy("research-sharing"), found(0.52, p=0.5)

    def unmet(claim: PrivacyClaim, charges: list[Charge], **options: Any) -> set[str]:
        limit = proven_limit(claim, charges, accepted=options.pop("accepted", ()))
        rules = policy.findings([quiet], claim, limit=limit, **options)
        return {f.rule.split(" ")[0] + " " + f.rule.split(" ")[1] for f in rules if not f.met} - {"run: nearest"}

    one = [charge(1.0)]
    assert unmet(dp_claim(4.22), one) == set()
    assert unmet(dp_claim(4.22), one, by_subject=True) == {"every attack", "at 1%"}
    assert unmet(dp_claim(4.22, unit="subject"), one, by_subject=True) == set()
    assumed = dp_claim(4.22, "batch invariance: gradients do not depend on the batch")
    assert unmet(assumed, one) == {"every attack", "at 1%"}
    assert unmet(assumed, one, accepted=["Batch invariance"]) == set()
    with pytest.raises(ConfigError, match="it makes: batch invariance"):
        proven_limit(assumed, one, accepted=["something else"])
    # Two charges are added up as the ledger adds them: valid whatever the second was chosen after.
    both = proven_limit(dp_claim(4.22), [charge(1.0), charge(1.0)])
    assert both.joint_auc == pair_limits(2.0, 2e-6, 0.01)[0] > both.auc
    assert unmet(dp_claim(4.22), [charge(1.0), charge(1.0)]) == {"at 1%"}


def test_each_rule_has_its_own_proof() -> None:
    """What is proven of false alarms counts, also where the AUC of the policy is lower than the proven one."""
    policy, limit = load_policy("public"), proven_limit(dp_claim(4.22), [charge(1.0)])
    assert limit.joint_auc > 0.55
    assert limit.joint_tpr <= 0.03
    quiet = found(0.51, p=0.5)
    rules = {f.rule: f for f in policy.findings([quiet], dp_claim(4.22), limit=limit)}
    rate = rules["at 1% false alarms, at most 3% of members are found"]
    assert rate.met
    assert rate.found.startswith("proven limit: 0.0")
    assert rules["no attacker's AUC can be above 0.55"].found.startswith("a: ")
    assert not any(f.proven for f in rules.values())
