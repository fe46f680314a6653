"""Verdicts, and the one JSON form of an attack result."""

from __future__ import annotations

import json
import math
from typing import get_args

import pytest

from locum import Estimate
from locum.audit import doubts_in_words
from locum.errors import ConfigError, DataError
from locum.release.passport import AttackEntry
from locum.types import AttackResult
from locum.types.attack_result import SHAREABLE_ESTIMATES, SHAREABLE_RATES


def result(attack: tuple[float, float, float], **more: object) -> AttackResult:
    return AttackResult("a", "auc", Estimate(*attack, 9), Estimate(0.5, 0.4, 0.6, 9), Estimate.exact(0.5), **more)


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


@pytest.mark.parametrize(
    ("made", "doubt"),
    [
        (result(WIDE, p_value=0.5), "the interval reaches too high"),
        (result((0.5, -math.inf, math.inf)), "there is no interval"),
        (result(WIDE, inconclusive_because="too few"), "too few"),
        (result(NEAR, p_value=0.5), ""),
        (result(HIGH, p_value=0.0, inconclusive_because="too few"), ""),
    ],
)
def test_a_doubt_says_what_is_missing(made: AttackResult, doubt: str) -> None:
    assert doubt in made.doubt
    assert bool(made.doubt) == (made.verdict == "inconclusive")


def test_a_reason_is_said_once_for_all_its_attacks() -> None:
    wide, narrow = result(WIDE, p_value=0.5), result(NEAR, p_value=0.5)
    assert doubts_in_words([wide, narrow, wide]) == f"for a and a, {wide.doubt}"
    assert doubts_in_words([narrow]) == ""


def test_what_non_members_reach_too_is_no_excess() -> None:
    share = Estimate(0.42, 0.38, 0.46, 500)
    control = Estimate(0.45, 0.42, 0.48, 500)
    made = AttackResult("links", "share", share, control, Estimate.exact(0.0), p_value=0.7)
    assert made.verdict == "no excess risk found"


def test_as_json_without_what_was_not_measured() -> None:
    estimates = {"attack", "control", "baseline"}
    assert set(result(NEAR).to_dict()) == {"name", "measure", "verdict", "material", "level"} | estimates
    full = result(
        NEAR,
        p_value=0.5,
        tpr={0.01: Estimate(0.02, 0.01, 0.03, 500)},
        by_class={"benign": Estimate(0.5, 0.4, 0.6, 9)},
        roc=((0.1, 0.2), (1.0, 1.0)),
        notes=("a word",),
    )
    plain = json.loads(json.dumps(full.to_dict()))
    assert AttackResult.from_dict(plain) == full
    assert plain["tpr"]["0.01"]["value"] == 0.02
    assert plain["roc"] == [[0.1, 0.2], [1.0, 1.0]]
    assert "adjusted" not in plain


def test_impossible_results_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"0\.\.1; got 1\.5"):
        result(NEAR, p_value=1.5)
    with pytest.raises(ConfigError, match="needs its reason"):
        result(NEAR, p_value=0.5, voided=True)
    with pytest.raises(ConfigError, match="'auc' or 'share'; got 'rate'"):
        AttackResult("a", "rate", Estimate.exact(0.5), Estimate.exact(0.5), Estimate.exact(0.5))  # type: ignore[arg-type]


FULL = result(
    HIGH,
    p_value=0.2,
    adjusted=0.4,
    tpr={0.01: Estimate(0.123, 0.1, 0.2, 4711), 0.1: Estimate(0.3, 0.2, 0.4, 4711)},
    by_class={"secret class": Estimate(0.99123, 0.9, 1.0, 4711)},
    most_exposed=Estimate(0.9, 0.8, math.inf, 4711),
    roc=((0.1, 0.2),),
    notes=("4711 records were compared",),
    inconclusive_because="shift",
    voided=True,
    material=0.1,
    level=0.05,
)


@pytest.mark.parametrize("made", [FULL, result(NEAR), result(HIGH, p_value=1e-9)])
def test_json_and_back(made: AttackResult) -> None:
    assert AttackResult.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("verdict", "no excess risk found"),
        ("verdict", "fine"),
        ("measure", "rate"),
        ("name", None),
        ("p_value", "0.2"),
        ("p_value", float("nan")),
        ("attack", {"value": 0.5, "low": True, "high": 1, "n": 1}),
        ("roc", [[0.1, 7.0]]),
        ("notes", [1]),
    ],
)
def test_json_that_was_edited_is_refused(key: str, value: object) -> None:
    with pytest.raises((ConfigError, DataError)):
        AttackResult.from_dict(FULL.to_dict() | {key: value})


def test_what_may_leave_is_named_in_one_place() -> None:
    assert FULL.shareable(figures=False) == {"name": "a", "measure": "auc", "verdict": "inconclusive"}
    shared = FULL.shareable(figures=True)
    text = json.dumps(shared)
    for hidden in ("4711", "secret", "adjusted", "p_value", "roc", "0.123", '"n"', "shift"):
        assert hidden not in text
    assert shared["attack"] == {"value": 0.8, "low": 0.7, "high": 0.9}
    assert shared["tpr"] == {"0.01": {"value": 0.12, "low": 0.1, "high": 0.2}}
    # A passport has a place for all of it, and for nothing else.
    assert AttackEntry(**shared).model_dump() == shared
    assert set(AttackEntry.model_fields) == {"name", "measure", "verdict", *SHAREABLE_ESTIMATES, "tpr"}
    assert set(get_args(AttackEntry.model_fields["tpr"].annotation)[0].__args__) == {
        f"{rate:g}" for rate in SHAREABLE_RATES
    }
