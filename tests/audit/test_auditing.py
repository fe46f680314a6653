"""The audit as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum.audit import NearestDistance, audit
from locum.errors import ConfigError, DataError

People = Callable[..., Any]


def test_a_copy_is_a_leak_and_may_not_leave(subjects: People, rows: Callable[..., Any]) -> None:
    members, others, _ = subjects(0)
    report = audit(rows(members.X, members.y), members, others, random_state=0)
    assert report.verdict == "leak"
    assert not report.may_leave
    told = report.to_dict()
    assert told["verdict"] == "leak"
    by_name = {r["attack"]: r for r in told["results"]}
    assert by_name["nearest distance"]["verdict"] == "leak"
    assert by_name["closest record"]["verdict"] == "leak"
    assert set(by_name["nearest distance"]["estimates"]) == {"attack", "control", "baseline"}


def test_strangers_are_no_leak(subjects: People, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(1, n=500)
    report = audit(rows(non_members.X, non_members.y), members, others, random_state=0, policy="internal")
    assert "leak" not in {r.verdict for r in report.results}
    assert report.verdict in ("no excess risk found", "inconclusive")
    assert all(r.adjusted is not None for r in report.results)
    assert report.findings[0].met


def test_what_does_not_apply_is_skipped_with_its_reason(subjects: People, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(2)
    report = audit(rows(non_members.X, non_members.y), members, others, random_state=0)
    assert {"re-identification", "hole"} <= set(report.skipped)
    assert all(report.skipped.values())


def test_attacks_can_be_picked(subjects: People, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(3)
    told: list[str] = []
    report = audit(
        rows(non_members.X, non_members.y),
        members,
        others,
        attacks=["nearest distance", NearestDistance(samples=50)],
        random_state=0,
        progress=lambda done, total, name: told.append(f"{done}/{total} {name}"),
    )
    assert [r.name for r in report.results] == ["nearest distance"] * 2
    assert told[-1] == "2/2 done"
    with pytest.raises(ConfigError, match="There is no attack 'magic'"):
        audit(rows(non_members.X, non_members.y), members, others, attacks=["magic"])


def test_other_people_are_needed(subjects: People, rows: Callable[..., Any]) -> None:
    members, _, non_members = subjects(4)
    with pytest.raises(DataError, match="equal a member"):
        audit(rows(non_members.X, non_members.y), members, members)


def test_another_population_does_not_reassure(subjects: People, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(5, n=400)
    moved = others.__class__(others.X + np.float32(2), others.y, info=others.info)
    report = audit(rows(non_members.X, non_members.y), members, moved, random_state=0)
    assert report.verdict == "inconclusive"
    assert any(p.kind == "shift" for p in report.problems)


def test_attacks_with_shadows_and_on_decoders_are_asked_as_the_others_are(
    subjects: People, rows: Callable[..., Any]
) -> None:
    from locum.audit import RMIA, EncoderELBO, LatentSearch, LiRA
    from locum.generate import ClassGaussian

    members, others, non_members = subjects(6, n=40)
    attacks = [LiRA(shadows=8), RMIA(shadows=8), LatentSearch(), EncoderELBO()]
    table = audit(rows(non_members.X, non_members.y), members, others, attacks=attacks, random_state=0)
    assert set(table.skipped) == {attack.name for attack in attacks}
    decoder = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release()
    found = audit(decoder, members, others, attacks=attacks, random_state=0)
    assert [r.name for r in found.results] == [attack.name for attack in attacks]
