"""The audit: run every attack that applies, correct for their number, and check a policy."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from locum.audit.attacks.base import Attack, ScoreAttack
from locum.audit.attacks.catalog import ATTACKS, DEFAULT_ATTACKS, DEFAULT_MINUTES, attack_name, make_attack
from locum.audit.attacks.closest_record import ClosestRecord
from locum.audit.attacks.density_ratio import DensityRatio
from locum.audit.checks import check_sets, not_shared, with_problems
from locum.audit.epsilon.epsilon_audit import EpsilonAudit
from locum.audit.limit import ProvenLimit, with_limit
from locum.audit.policy import Finding, Policy, load_policy
from locum.audit.report import AuditReport
from locum.audit.risk import risk_map
from locum.audit.screening import screen
from locum.audit.statistics import COARSE_FPRS, Scores, evaluate_scores, holm, needed_for, rates_of
from locum.audit.view import LEAST_NON_MEMBERS
from locum.errors import NotApplicableError
from locum.release import Release
from locum.types import AttackResult, EmbeddingSet, Progress

_log = logging.getLogger(__name__)


def undecidable(
    policy: Policy, members: EmbeddingSet, non_members: EmbeddingSet, *, auc: float, tpr: float
) -> tuple[str, ...]:
    """Why no audit of a private release with these records can meet a policy, whatever the attacks find.

    It is known before the release is made and paid for. Records that are enough here can still be too few for a clear
    result.

    Parameters
    ----------
    policy
        What must hold.
    members, non_members
        The records that will be used, and the others.
    auc, tpr
        What will be proven of all releases together: the highest AUC, and the highest share of members that are found
        at 1 % false alarms.

    Returns
    -------
    tuple of str
        The reasons; empty if the attacks decide. They depend on records: do not share them.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import load_policy, undecidable
    >>> few = EmbeddingSet(np.eye(30, 4), np.arange(30) % 2)
    >>> undecidable(load_policy("research-sharing"), few, few, auc=0.57, tpr=0.02)
    ('closest record: it needs at least 40 non-members; there are 30',)
    """
    inside, outside = (
        len(data) if data.subject is None else len(np.unique(data.subject)) for data in (members, non_members)
    )
    if inside < 2 or outside < LEAST_NON_MEMBERS:
        return (
            f"an attack needs 2 members and {LEAST_NON_MEMBERS} non-members, each from a different subject; there "
            f"are {inside} and {outside}",
        )
    out = []
    for name in () if policy.attacks is None else policy.attacks.needed:
        attack = ATTACKS[name].make() if name in DEFAULT_ATTACKS else None
        if attack is None:
            out.append(f"{name}: it is not among the attacks that are run")
        elif isinstance(attack, ClosestRecord | DensityRatio) and (reason := attack.too_few(non_members)):
            out.append(f"{name}: {reason}")
    pairs = ((auc, policy.auc), (tpr, policy.tpr_at_1_percent))
    proven = all(rule is None or value <= rule.at_most for value, rule in pairs)
    if policy.tpr_at_1_percent is not None and not proven and not rates_of(outside):
        least = needed_for(max(COARSE_FPRS))
        out.append(f"the share of members that are found takes {least} non-members to measure; there are {outside}")
    return tuple(out)


def audit(
    release: Release,
    members: EmbeddingSet,
    non_members: EmbeddingSet,
    *,
    attacks: Sequence[Attack | str] | None = None,
    policy: str | Path | Policy = "research-sharing",
    required: Collection[str] | None = None,
    epsilon_audit: EpsilonAudit | None = None,
    limit: ProvenLimit | None = None,
    minutes: float | None = None,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a release, using the records that it was made from and others of the same population.

    An attack that does not apply to the release is skipped, with the reason; if it was asked for, the policy is not
    met. What the release claims never decides which attacks are run. Verdicts are corrected for the number of
    attacks. Faults of the two sets make a result inconclusive instead of reassuring.

    Parameters
    ----------
    release
        The release to attack.
    members
        The records that it was made from.
    non_members
        Records of the same population that were not used; they share no subject with the members. A result that can
        reassure needs 500 or more, one per subject.
    attacks
        Objects with the `Attack` protocol, or names from the catalog (`ATTACKS`). None: all quick ones, and LiRA with
        a limit on its time (`DEFAULT_ATTACKS`).
    policy
        Name of a policy that comes with Locum, a TOML file, or a `Policy`.
    required
        Names of the attacks without which the policy is not met. None: all of `attacks` if they are given, else none.
    epsilon_audit
        The test of a claimed epsilon, from `audit_epsilon`: a broken guarantee makes the verdict a leak. None: there
        was none.
    limit
        What was proven about the release, from `proven_limit`: an attack that stays below it is no leak, and it takes
        the place of records that are too few. None: nothing, whatever the release claims.
    minutes
        How long each attack with shadows may take; fewer are trained if need be. None: 5 minutes if no attacks are
        named, otherwise as long as it takes.
    random_state
        Seeds the attacks; None: the operating system's entropy.
    progress
        Called with (attacks done, total, name of the next attack); None: nothing is shown.

    Returns
    -------
    AuditReport
        Private: it depends on the records.

    Raises
    ------
    DataError
        If the sets cannot be compared, for example because they share subjects.
    ConfigError
        If there is no such attack or policy.

    Examples
    --------
    >>> import numpy as np
    >>> from locum import EmbeddingSet
    >>> from locum.audit import audit
    >>> from locum.generate import ClassGaussian
    >>> rng = np.random.default_rng(0)
    >>> members, others = (EmbeddingSet(rng.normal(size=(50, 4)), np.arange(50) % 2) for _ in range(2))
    >>> release = ClassGaussian().fit(members.X, members.y).release(no_dp=True)
    >>> found = audit(release, members, others, attacks=["nearest distance"], policy="internal", random_state=0)
    >>> found.verdict, [problem.kind for problem in found.problems]
    ('inconclusive', ['too few'])
    """
    rules = policy if isinstance(policy, Policy) else load_policy(policy)
    rng = np.random.default_rng(random_state)
    # Report a wrong name before any work.
    asked = [attack_name(a) if isinstance(a, str) else a for a in (DEFAULT_ATTACKS if attacks is None else attacks)]
    given = () if attacks is None else (a if isinstance(a, str) else a.name for a in asked)
    must = set(given if required is None else map(attack_name, required))
    problems = check_sets(members, non_members, rng)
    # Shared records are left out below; they show that the population repeats itself.
    repeats = sum(problem.count for problem in problems if problem.kind == "shared records")
    if attacks is None and minutes is None:
        minutes = DEFAULT_MINUTES
    chosen = [make_attack(a, repeats=repeats, minutes=minutes) if isinstance(a, str) else a for a in asked]
    kept, others = not_shared(members, non_members)
    inside, outside = members.take(kept), non_members.take(others)
    results: list[AttackResult] = []
    scores: list[tuple[str, Scores]] = []
    skipped: dict[str, str] = {}
    for number, attack in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), attack.name)
        try:
            if isinstance(attack, ScoreAttack):
                found = attack.score(release, inside, outside, rng)
                scores.append((attack.name, found))
                result = evaluate_scores(attack.name, found, inside, outside, rng)
            else:
                result = attack.run(release, inside, outside, rng)
        except NotApplicableError as error:
            skipped[attack.name] = error.reason
            _log.info("attack %s does not apply", attack.name)
        else:
            results.append(with_problems(result, problems))
            _log.info("attack %s: %s", attack.name, results[-1].verdict)
    if progress is not None:
        progress(len(chosen), len(chosen), "done")
    corrected = tuple(with_limit(result, limit) for result in holm(results))
    decoder = release.manifest.kind != "data"
    by_subject = members.subject is not None
    return AuditReport(
        results=corrected,
        problems=tuple(problems),
        skipped=skipped,
        policy=rules.name,
        findings=(
            *rules.findings(corrected, release.claim, decoder=decoder, limit=limit, by_subject=by_subject),
            *_missing(must, skipped),
        ),
        limit=limit,
        missing=rules.lacking(corrected, release.claim, decoder=decoder),
        screening=screen(release, inside, outside, rng),
        epsilon_audit=epsilon_audit,
        risk=risk_map(
            scores, inside, outside, rng, rows=kept, doubts=[p.words for p in problems if p.voids != "nothing"]
        ),
    )


def _missing(must: Collection[str], skipped: Mapping[str, str]) -> list[Finding]:
    """A finding that is not met, if an attack that was asked for was not run."""
    names = [name for name in skipped if name in must]
    if not names:
        return []
    reason = "An attack that was asked for and not run leaves open what it would have found."
    return [Finding("every attack that was asked for was run", False, f"not run: {', '.join(names)}", reason)]
