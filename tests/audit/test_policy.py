"""What must hold before a release may leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from locum.audit import POLICIES, AttributeInference, Policy, load_policy
from locum.errors import ConfigError
from locum.release import Release
from locum.types import AttackResult, DPClaim, EmbeddingSet, Estimate, PrivacyClaim

NONE = PrivacyClaim("none", ("everything",))


def result(name: str, value: float, *, p: float = 0.5, tpr: float | None = None) -> AttackResult:
    narrow = Estimate(value, value - 0.01, value + 0.01, 1000)
    return AttackResult(
        name=name,
        measure="auc",
        attack=narrow,
        control=Estimate(0.5, 0.48, 0.52, 500),
        baseline=Estimate.exact(0.5),
        p_value=p,
        tpr={} if tpr is None else {0.01: Estimate(tpr, tpr, tpr + 0.005, 1000)},
    )


def dp(epsilon: float) -> PrivacyClaim:
    event = {"event": "gaussian", "noise_multiplier": 3.0}
    return PrivacyClaim("dp", ("x",), dp=DPClaim(epsilon, 1e-5, "add-or-remove", (event,), "0" * 64))


def fine(policy: Policy) -> list[AttackResult]:
    names = () if policy.attacks is None else policy.attacks.needed
    return [result(name, 0.505, tpr=0.01) for name in names]


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_lets_a_harmless_release_go_and_holds_a_leak(name: str) -> None:
    policy = load_policy(name)
    claim = dp(1.0)
    assert all(f.met for f in policy.findings(fine(policy), claim))
    leaking = [*fine(policy), result("other", 0.9, p=1e-9, tpr=0.01)]
    assert not policy.findings(leaking, claim)[0].met
    assert policy.findings(leaking, claim)[0].found == "other"


def test_every_threshold_has_its_reason() -> None:
    for name in POLICIES:
        for finding in load_policy(name).findings(fine(load_policy(name)), dp(1.0)):
            assert len(finding.reason) > 10


def failed(policy: Policy, results: list[AttackResult], claim: PrivacyClaim | None) -> list[str]:
    return [f.rule for f in policy.findings(results, claim) if not f.met]


def test_public_asks_for_a_proof() -> None:
    policy = load_policy("public")
    assert failed(policy, fine(policy), NONE) == ["the claim is of kind dp"]
    assert failed(policy, fine(policy), None) == ["the claim is of kind dp"]
    assert failed(policy, fine(policy), dp(5.0)) == ["epsilon is at most 4"]


def test_a_policy_that_accepts_every_claim_says_so() -> None:
    rules = [f.rule for f in load_policy("internal").findings(fine(load_policy("internal")), NONE)]
    assert "any claim is allowed, including none" in rules


def test_limits_hold_for_the_upper_ends() -> None:
    policy = load_policy("public")
    good = fine(policy)
    near = result(good[0].name, 0.545, tpr=0.01)
    assert "no attacker's AUC can be above 0.55" in failed(policy, [near, *good[1:]], dp(1.0))
    inside = result(good[0].name, 0.539, tpr=0.01)
    assert failed(policy, [inside, *good[1:]], dp(1.0)) == []
    many = result(good[0].name, 0.505, tpr=0.028)
    assert failed(policy, [many, *good[1:]], dp(1.0)) == ["at 1% false alarms, at most 3% of members are found"]


def test_a_refusal_names_the_figure_that_failed() -> None:
    """The value itself can be below the limit: the upper end of its interval decides."""
    policy = load_policy("public")
    good = fine(policy)

    def told(first: AttackResult, about: str) -> str:
        (rule,) = (f for f in policy.findings([first, *good[1:]], dp(1.0)) if about in f.rule and not f.met)
        return rule.found

    name = good[0].name
    assert told(result(name, 0.545, tpr=0.01), "AUC").endswith("the upper end of the interval, 0.555, is above 0.55")
    assert told(result(name, 0.505, tpr=0.028), "false alarms").endswith("is above 0.03")
    barely = replace(good[0], attack=Estimate(0.54, 0.53, 0.55002, 400))
    assert told(barely, "AUC").endswith("0.55002, is above 0.55")
    assert all("upper end" not in f.found for f in policy.findings(good, dp(1.0)))


def test_what_was_not_tested_is_not_met() -> None:
    policy = load_policy("public")
    assert len(failed(policy, fine(policy)[1:], dp(1.0))) == 1
    unmeasured = [result(name, 0.505) for name in policy.attacks.needed]  # type: ignore[union-attr]
    assert [f.found for f in policy.findings(unmeasured, dp(1.0)) if not f.met] == [
        "too few non-members to tell: 1 % takes 500 non-members"
    ]


def test_fewer_records_are_asked_about_a_coarser_rate() -> None:
    """5 % of members at 1 % false alarms is five times as many: 387 non-members can show that at 2 %."""
    policy = load_policy("research-sharing")
    coarse = [replace(r, tpr={0.02: Estimate(0.06, 0.04, 0.09, 400)}) for r in fine(policy)]
    (rule,) = (f for f in policy.findings(coarse, NONE) if "false alarms" in f.rule)
    assert (rule.met, rule.rule) == (True, "at 2% false alarms, at most 10% of members are found")
    assert rule.found.endswith("1 % takes 500 non-members")
    many = [replace(r, tpr={0.02: Estimate(0.06, 0.04, 0.11, 400)}) for r in fine(policy)]
    assert [f.met for f in policy.findings(many, NONE) if "false alarms" in f.rule] == [False]


def test_doubts_are_counted() -> None:
    policy = load_policy("research-sharing")
    wide = AttackResult(
        "wide", "auc", Estimate(0.5, 0.42, 0.59, 20), Estimate(0.5, 0.4, 0.6, 10), Estimate.exact(0.5)
    )
    assert wide.verdict == "inconclusive"
    assert failed(policy, [*fine(policy), wide], NONE) == []
    twice = [*fine(policy), wide, wide]
    assert failed(policy, twice, NONE) == ["the number of inconclusive attacks is at most 1"]
    (found,) = [f.found for f in policy.findings(twice, NONE) if not f.met]
    assert found.startswith("for wide and wide, the interval reaches too high to show no excess risk")


def balanced(seed: int, first: int, second: int) -> EmbeddingSet:
    """Two classes, far apart, with so many records."""
    y = np.repeat([0, 1], [first, second])
    X = np.random.default_rng(seed).normal(size=(len(y), 4)) + 8 * y[:, None]
    return EmbeddingSet(X.astype(np.float32), y)


@pytest.mark.parametrize("counts", [(200, 200), (201, 199)])
def test_a_limit_on_auc_is_not_for_shares(counts: tuple[int, int], rows: Callable[..., Release]) -> None:
    members, others, released = (balanced(seed, *counts) for seed in range(3))
    rng = np.random.default_rng(0)
    inferred = AttributeInference().run(rows(released.X, released.y), members, others, rng)
    # The population tells the class of anybody: a high share, and no excess.
    assert inferred.attack.value > 0.9
    assert inferred.verdict == "no excess risk found"
    policy = load_policy("public")
    assert failed(policy, [*fine(policy), inferred], dp(1.0)) == []


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[auc]\nat_most = 0.52\nreason = "we are very careful"\n')
    policy = load_policy(file)
    assert failed(policy, [result("a", 0.53)], None) == ["no attacker's AUC can be above 0.52"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not valid TOML"),
        ('name = "x"\n[auc]\nat_most = 0.5\n', "auc.reason"),
        ('name = "x"\n[auc]\nat_most = -1\nreason = "we are careful"\n', "auc.at_most"),
        ('name = "x"\ncolour = "red"\n', "colour"),
    ],
)
def test_a_wrong_policy_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_policy(file)


def test_a_missing_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are public"):
        load_policy("strict")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy("nowhere.toml")
