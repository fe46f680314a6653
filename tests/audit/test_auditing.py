"""The audit from end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet, Release
from locum.audit import NearestDistance, audit
from locum.errors import ConfigError, DataError, NotApplicableError
from locum.types import AttackResult, Estimate

Population = Callable[..., Any]


def test_a_copy_is_a_leak_and_may_not_leave(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, _ = subjects(0)
    report = audit(rows(members.X, members.y), members, others, random_state=0)
    assert report.verdict == "leak"
    assert not report.may_leave
    told = report.to_dict()
    assert told["verdict"] == "leak"
    by_name = {r["name"]: r for r in told["results"]}
    assert by_name["nearest distance"]["verdict"] == "leak"
    assert by_name["closest record"]["verdict"] == "leak"
    assert {"attack", "control", "baseline"} < set(by_name["nearest distance"])
    assert tuple(AttackResult.from_dict(r) for r in told["results"]) == report.results


def test_fresh_records_are_no_leak(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(1, n=500)
    report = audit(rows(non_members.X, non_members.y), members, others, random_state=0, policy="internal")
    assert "leak" not in {r.verdict for r in report.results}
    assert report.verdict in ("no excess risk found", "inconclusive")
    assert all(r.adjusted is not None for r in report.results)
    assert report.findings[0].met


def test_what_does_not_apply_is_skipped_with_its_reason(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(2)
    report = audit(rows(non_members.X, non_members.y), members, others, random_state=0)
    assert {"re-identification", "hole"} <= set(report.skipped)
    assert all(report.skipped.values())


def test_attacks_can_be_picked(subjects: Population, rows: Callable[..., Any]) -> None:
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


def test_other_records_are_needed(subjects: Population, rows: Callable[..., Any]) -> None:
    members, _, non_members = subjects(4)
    with pytest.raises(DataError, match="equal a member"):
        audit(rows(non_members.X, non_members.y), members, members)


def test_another_population_does_not_reassure(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, non_members = subjects(5, n=400)
    moved = others.__class__(others.X + np.float32(2), others.y, info=others.info)
    report = audit(rows(non_members.X, non_members.y), members, moved, random_state=0)
    assert report.verdict == "inconclusive"
    assert any(p.kind == "shift" for p in report.problems)


def test_attacks_with_shadows_and_on_decoders_run_like_the_others(
    subjects: Population, rows: Callable[..., Any]
) -> None:
    from locum.audit import RMIA, EncoderELBO, LatentSearch, LiRA
    from locum.generate import ClassGaussian

    members, others, non_members = subjects(6, n=40)
    attacks = [LiRA(shadows=8), RMIA(shadows=8), LatentSearch(), EncoderELBO()]
    table = audit(rows(non_members.X, non_members.y), members, others, attacks=attacks, random_state=0)
    assert set(table.skipped) == {attack.name for attack in attacks}
    decoder = ClassGaussian(random_state=0).fit(non_members.X, non_members.y).release(no_dp=True)
    found = audit(decoder, members, others, attacks=attacks, random_state=0)
    assert [r.name for r in found.results] == [attack.name for attack in attacks]


@dataclass(frozen=True)
class CountCopies:
    """An attack that knows nothing of this package but the protocol."""

    name: str = "copies"
    most: int = 10_000

    def run(
        self, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
    ) -> AttackResult:
        if len(members) > self.most:
            raise NotApplicableError(self.name, "there are too many members")
        released = {row.tobytes() for row in release.sample(random_state=rng)[0]}
        hits, others = (sum(row.tobytes() in released for row in data.X) for data in (members, non_members))
        return AttackResult(
            name=self.name,
            measure="share",
            attack=Estimate.exact(hits / len(members), len(members)),
            control=Estimate.exact(others / len(non_members), len(non_members)),
            baseline=Estimate.exact(0.0),
        )


def test_any_object_with_the_protocol_is_an_attack(subjects: Population, rows: Callable[..., Any]) -> None:
    members, others, _ = subjects(7)
    attacks = ["nearest distance", CountCopies(), CountCopies("few copies", most=10)]
    report = audit(rows(members.X, members.y), members, others, attacks=attacks, random_state=0)
    assert [r.name for r in report.results] == ["nearest distance", "copies"]
    assert report.results[1].verdict == "leak"
    assert report.skipped == {"few copies": "there are too many members"}
    # Only attacks that score records say which of them are exposed.
    assert report.risk is not None
    assert report.risk.attacks == ("nearest distance",)
