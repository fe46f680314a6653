"""The audit: every attack that applies, corrected for their number, and answered by a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from locum.audit.attacks.base import Scores
from locum.audit.attacks.catalogue import DEFAULT_ATTACKS, attack_name, make_attack
from locum.audit.checks import check_sets, not_shared, with_problems
from locum.audit.epsilon.epsilon_audit import EpsilonAudit
from locum.audit.policy import Policy, load_policy
from locum.audit.report import AuditReport
from locum.audit.risk import risk_map
from locum.audit.screening import screen
from locum.audit.statistics import evaluate_scores, holm
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet

Progress = Callable[[int, int, str], None]


def audit(
    release: Release,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    *,
    attacks: Sequence[Any] | None = None,
    policy: str | Path | Policy = "research-sharing",
    epsilon_audit: EpsilonAudit | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a release with records that it was made from (`members`) and with others of the same population.

    `attacks` are objects of this package, or names from its catalogue (`ATTACKS`); by default all that train nothing
    of their own (`DEFAULT_ATTACKS`). What does not apply to the release is skipped, with its reason. Verdicts are
    corrected for the number of attacks. What is wrong with the two sets makes a result inconclusive instead of
    reassuring. `random_state` seeds the attackers' coins.
    """
    rules = policy if isinstance(policy, Policy) else load_policy(policy)
    rng = np.random.default_rng(random_state)
    # A wrong name is told before any work.
    asked = [attack_name(a) if isinstance(a, str) else a for a in (DEFAULT_ATTACKS if attacks is None else attacks)]
    problems = check_sets(members, non_members, rng)
    # Twins that are left out below show that the population repeats itself, by nobody's fault.
    repeats = sum(problem.count for problem in problems if problem.kind == "shared records")
    chosen = [make_attack(a, repeats=repeats) if isinstance(a, str) else a for a in asked]
    kept, others = not_shared(members, non_members)
    inside, outside = members.take(kept), non_members.take(others)
    results: list[AttackResult] = []
    scores: list[tuple[str, Scores]] = []
    skipped: dict[str, str] = {}
    for number, attack in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), attack.name)
        why_not = getattr(attack, "why_not", None)
        if why_not is not None and (reason := why_not(release, inside, outside)):
            skipped[attack.name] = reason
            continue
        result, told = _run(attack, release, inside, outside, rng)
        results.append(with_problems(result, problems))
        if told is not None:
            scores.append((attack.name, told))
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
        epsilon_audit=epsilon_audit,
        risk=risk_map(
            scores, inside, outside, rng, rows=kept, doubts=[p.words for p in problems if p.voids != "nothing"]
        ),
    )


def _run(
    attack: Any, release: Release, members: EmbeddingSet, non_members: EmbeddingSet, rng: np.random.Generator
) -> tuple[AttackResult, Scores | None]:
    """The result and, where an attack scores each record, the scores behind it."""
    if hasattr(attack, "score"):
        scores = attack.score(release, members, non_members, rng)
        return evaluate_scores(attack.name, scores, members, non_members, rng), scores
    return attack.run(release, members, non_members, rng), None
