"""Every attack has one name, and each name gives its attack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.audit import (
    ATTACKS,
    DECODER_ATTACKS,
    DEFAULT_ATTACKS,
    SAMPLE_ATTACKS,
    SHADOW_ATTACKS,
    ClosestRecord,
    LiRA,
    attack_name,
    audit,
    shadow_attacks,
)
from locum.audit.attacks.catalog import make_attack
from locum.errors import ConfigError
from locum.generate import ClassGaussian


def test_each_name_is_the_attack_s_own() -> None:
    for name, entry in ATTACKS.items():
        made = make_attack(name)
        # What is asked about attributes has one result for each of them.
        assert made.name == name, entry
        assert hasattr(made, "score") or hasattr(made, "run")


def test_the_groups_make_up_the_catalog() -> None:
    groups = (SAMPLE_ATTACKS, DECODER_ATTACKS, SHADOW_ATTACKS)
    assert [name for group in groups for name in group] == list(ATTACKS)
    assert set(DECODER_ATTACKS) == {"latent search", "ELBO", "LiRA on sums"}
    assert set(SHADOW_ATTACKS) == {"LiRA", "RMIA"}
    assert set(DEFAULT_ATTACKS) == {*SAMPLE_ATTACKS, "latent search", "LiRA on sums", "LiRA"}


@given(st.sampled_from(list(ATTACKS)), st.sampled_from(["-", "_", " "]), st.booleans())
def test_names_may_be_typed_without_quotes(name: str, gap: str, loud: bool) -> None:
    typed = name.replace(" ", gap)
    assert attack_name(typed.upper() if loud else typed.lower()) == name


@pytest.mark.parametrize("wrong", ["magic", "", "nearest", "lira2"])
def test_a_wrong_name_is_answered_with_all_of_them(wrong: str) -> None:
    with pytest.raises(ConfigError, match="There is no attack") as told:
        make_attack(wrong)
    assert all(name in str(told.value) for name in ATTACKS)
    assert "\n" not in str(told.value)


def test_closest_record_knows_of_twins() -> None:
    assert make_attack("closest-record", repeats=3) == ClosestRecord(repeats=3)


@pytest.mark.parametrize("wrong", [0, 2, 7, -4])
def test_a_wrong_number_of_shadows_is_refused_at_once(wrong: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="even number"):
        shadow_attacks(wrong, 0, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_shadows_are_trained_once_for_both_and_a_second_run_finds_them(
    subjects: Callable[..., Any], tmp_path: Path
) -> None:
    members, others, _ = subjects(0, n=60, d=6)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    told: list[tuple[int, int]] = []

    def attacks() -> tuple[Any, ...]:
        return shadow_attacks(8, 5, tmp_path / "state", progress=lambda done, total: told.append((done, total)))

    first = audit(release, members, others, attacks=attacks(), random_state=0)
    assert [result.name for result in first.results] == ["LiRA", "RMIA"]
    # Only the first of the two begins at nothing.
    assert [step for step in told if step == (0, 8)] == [(0, 8)]
    assert told[-1] == (8, 8)
    told.clear()
    again = audit(release, members, others, attacks=attacks(), random_state=0)
    assert told == [(8, 8), (8, 8)]
    assert [r.attack for r in again.results] == [r.attack for r in first.results]
    # The same attack with its own shadows and the same seed.
    alone = audit(release, members, others, attacks=[LiRA(shadows=8, seed=5)], random_state=0)
    assert alone.results[0].attack.value == first.results[0].attack.value
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def test_attacks_by_name_reach_the_decoder(subjects: Callable[..., Any]) -> None:
    members, others, _ = subjects(1, n=40, d=6)
    release = ClassGaussian(random_state=0).fit(members.X, members.y).release(no_dp=True)
    report = audit(release, members, others, attacks=["latent-search", "elbo"], random_state=0)
    assert [result.name for result in report.results] == ["latent search", "ELBO"]
    assert all(np.isfinite(result.attack.value) for result in report.results)
