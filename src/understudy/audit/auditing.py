"""The audit: every attack that applies, corrected for their number, and answered by a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.audit.attribute_inference import AttributeInference
from understudy.audit.audit_report import AuditReport
from understudy.audit.checks import check_sets, with_problems, without_shared
from understudy.audit.closest_record import ClosestRecord
from understudy.audit.density_ratio import DensityRatio
from understudy.audit.evaluate_scores import evaluate_scores
from understudy.audit.hole import Hole
from understudy.audit.holm import holm
from understudy.audit.linkage import Linkage
from understudy.audit.nearest_distance import NearestDistance
from understudy.audit.policy import Policy, load_policy
from understudy.audit.reidentification import Reidentification
from understudy.audit.sandwich import Sandwich
from understudy.audit.screening import screen
from understudy.audit.singling_out import SinglingOut
from understudy.errors import ConfigError
from understudy.release import Release
from understudy.types import AttackResult, EmbeddingSet

__all__ = ["SAMPLE_ATTACKS", "audit"]

Progress = Callable[[int, int, str], None]
# What a stranger with the release alone can do, in the order in which it is tried.
SAMPLE_ATTACKS: Mapping[str, Callable[[], Any]] = {
    "nearest distance": NearestDistance,
    "closest record": ClosestRecord,
    "density ratio": DensityRatio,
    "record linkage": Linkage,
    "singling out": SinglingOut,
    "attribute inference": AttributeInference,
    "re-identification": Reidentification,
    "hole": Hole,
}


def audit(
    release: Release,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    *,
    attacks: Sequence[Any] | None = None,
    policy: str | Path | Policy = "research-sharing",
    sandwich: Sandwich | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a release with records that it was made from (`members`) and with others of the same population.

    `attacks` are objects of this package, or names from `SAMPLE_ATTACKS`; all of those by default. What does not
    apply to the release is skipped, with its reason. Verdicts are corrected for the number of attacks. What is wrong
    with the two sets makes a result inconclusive instead of reassuring. `random_state` seeds the attackers' coins.
    """
    rules = policy if isinstance(policy, Policy) else load_policy(policy)
    rng = np.random.default_rng(random_state)
    _check_names(attacks or ())
    problems = check_sets(members, non_members, rng)
    # Twins that are left out below show that the population repeats itself, by nobody's fault.
    repeats = sum(problem.count for problem in problems if problem.kind == "shared records")
    chosen = [_made(a, repeats) for a in (SAMPLE_ATTACKS if attacks is None else attacks)]
    inside, outside = without_shared(members, non_members)
    results: list[AttackResult] = []
    skipped: dict[str, str] = {}
    for number, attack in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), attack.name)
        why_not = getattr(attack, "why_not", None)
        if why_not is not None and (reason := why_not(release, inside, outside)):
            skipped[attack.name] = reason
            continue
        results.append(with_problems(_run(attack, release, inside, outside, rng), problems))
    if progress is not None:
        progress(len(chosen), len(chosen), "done")
    corrected = holm(results)
    return AuditReport(
        results=corrected,
        problems=tuple(problems),
        skipped=skipped,
        policy=rules.name,
        findings=rules.findings(corrected, release.claim),
        screening=screen(release, inside, outside, rng),
        sandwich=sandwich,
    )


def _run(
    attack: Any, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
) -> AttackResult:
    if hasattr(attack, "score"):
        scores = attack.score(release, members, non_members, rng)
        return evaluate_scores(attack.name, scores, members, non_members, rng)
    found: AttackResult = attack.run(release, members, non_members, rng)
    return found


def _check_names(attacks: Sequence[Any]) -> None:
    for attack in attacks:
        if isinstance(attack, str) and attack not in SAMPLE_ATTACKS:
            raise ConfigError(f"There is no attack {attack!r}; there are {', '.join(SAMPLE_ATTACKS)}.")


def _made(attack: Any, repeats: int) -> Any:
    if attack == "closest record":
        return ClosestRecord(repeats=repeats)
    return SAMPLE_ATTACKS[attack]() if isinstance(attack, str) else attack
