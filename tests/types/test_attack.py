"""What a verdict follows from."""

from __future__ import annotations

import json

import pytest

from locum import Estimate
from locum.errors import ConfigError
from locum.types import AttackResult


def result(attack: tuple[float, float, float], **more: object) -> AttackResult:
    return AttackResult("a", Estimate(*attack, 9), Estimate(0.5, 0.4, 0.6, 9), Estimate.exact(0.5), **more)


HIGH, NEAR, WIDE = (0.8, 0.7, 0.9), (0.51, 0.48, 0.54), (0.5, 0.3, 0.7)


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (result(NEAR, p_value=0.001), "leak"),
        (result(NEAR, p_value=0.001, adjusted=0.02), "no excess risk found"),
        (result(HIGH, p_value=0.001, adjusted=0.02), "inconclusive"),
        (result(NEAR, p_value=0.02, level=0.05), "leak"),
        (result(WIDE, p_value=0.5), "inconclusive"),
        (result(NEAR, p_value=0.5, inconclusive_because="too few"), "inconclusive"),
        (result(HIGH, p_value=0.0, inconclusive_because="too few"), "leak"),
        (result(HIGH, p_value=0.0, inconclusive_because="shift", voided=True), "inconclusive"),
        (result(HIGH), "leak"),
        (result(NEAR, inconclusive_because="too few"), "inconclusive"),
    ],
)
def test_verdicts(made: AttackResult, verdict: str) -> None:
    assert made.verdict == verdict


def test_what_strangers_reach_too_is_no_excess() -> None:
    share = Estimate(0.42, 0.38, 0.46, 500)
    control = Estimate(0.45, 0.42, 0.48, 500)
    made = AttackResult("links", share, control, Estimate.exact(0.0), p_value=0.7)
    assert made.verdict == "no excess risk found"


def test_as_json_without_what_was_not_measured() -> None:
    assert set(result(NEAR).to_dict()) == {"attack_name", "verdict", "attack", "control", "baseline"}
    full = result(
        NEAR,
        p_value=0.5,
        tpr={0.01: Estimate(0.02, 0.01, 0.03, 500)},
        by_class={"benign": Estimate(0.5, 0.4, 0.6, 9)},
        roc=((0.1, 0.2), (1.0, 1.0)),
        notes=("a word",),
    )
    plain = json.loads(json.dumps(full.to_dict()))
    assert plain["tpr"]["0.01"]["value"] == 0.02
    assert plain["roc"] == [[0.1, 0.2], [1.0, 1.0]]
    assert "adjusted" not in plain


def test_impossible_results_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.\.1; got 1\.5"):
        result(NEAR, p_value=1.5)
    with pytest.raises(ConfigError, match="needs its reason"):
        result(NEAR, p_value=0.5, voided=True)
