"""Epsilon from both sides: the proven upper bound, and a lower bound from a run with canaries.

The upper bound holds if the code does what the proof assumes. The lower bound comes from guesses about canaries,
valid whatever the code does, and from exact tests, which take the noise to be normal. A lower bound above the claim
means that the guarantee is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from locum.accounting import Gaussian, PoissonGaussian, QueryPlan, SGDPlan, events_from_json
from locum.audit.epsilon.bounds import LowerBound, plan_guesses
from locum.audit.epsilon.canaries import NetworkKind, check_counts, run_canaries, simulate
from locum.errors import ConfigError, PrivacyError
from locum.generate import CGANGenerator
from locum.generate.table import PrivateTable
from locum.release import Release
from locum.types import DP, EpsilonVerdict, PrivacyClaim, Relation, Unit

# Units are sampled independently: more records only take more time.
_MOST_RECORDS = 5000
_USUAL_RECORDS = 1000
Mechanism = Literal["noisy steps", "noisy sums", "private head", "private table"]


@runtime_checkable
class Planned(Protocol):
    """A generator with a guarantee: it can plan a fit before it sees a record."""

    def plan(self) -> SGDPlan | QueryPlan:
        """What a private fit will do and cost."""
        ...


@dataclass(frozen=True, slots=True)
class EpsilonAudit:
    """The claimed epsilon and the refuted one, at one delta, for one unit and relation.

    "no contradiction found" is no proof: the code may have a fault that these canaries miss. A guarantee that holds,
    with normal noise, is called broken with a probability of at most `lower.error`. The test run reads no record, so
    anyone may see the result.

    Parameters
    ----------
    lower
        What canaries refute.
    upper
        The claim.
    unit
        What is protected: "record" or "subject".
    relation
        Which data sets are neighbors: "add-or-remove" or "replace-one".
    mechanism
        What the run repeated: "noisy steps" (DP-SGD), "noisy sums", "private head" or "private table".
    records
        Number of made-up records besides the canaries.

    Examples
    --------
    >>> from locum.audit import EpsilonAudit, LowerBound
    >>> bound = LowerBound(epsilon=2.5, delta=1e-6, error=0.05, canaries=1000, guesses=100, correct=99)
    >>> EpsilonAudit(bound, 1.0, "record", "add-or-remove", "noisy sums", 1000).verdict
    'broken guarantee'
    """

    lower: LowerBound
    upper: float
    unit: Unit
    relation: Relation
    mechanism: Mechanism
    records: int
    is_test: ClassVar[bool] = True

    @property
    def ok(self) -> bool:
        """Whether the two bounds can both be true."""
        return self.lower.epsilon <= self.upper

    @property
    def verdict(self) -> EpsilonVerdict:
        """The word that a reader may act on."""
        return "no contradiction found" if self.ok else "broken guarantee"

    @property
    def words(self) -> str:
        """The finding in words that a privacy officer can quote."""
        low = self.lower
        by = f"{low.correct} of {low.guesses} guesses right"
        sharpest = max(low.exact, key=lambda test: test.epsilon, default=None)
        if sharpest is not None and sharpest.epsilon >= low.epsilon:
            by += f"; the exact test of {sharpest.name} refutes most"
        refuted = (
            f"{low.canaries} canaries in one run ({self.mechanism}) refute every epsilon below {low.epsilon:.2f} at "
            f"delta {low.delta:g}, with {1 - low.error:.0%} confidence: {by}"
        )
        if self.ok:
            return f"{refuted}. The claim of {self.upper:.2f} is not contradicted; that is no proof of it."
        return f"Broken guarantee: {refuted}, but the claim is {self.upper:.2f}. Nothing made by this code may leave."

    def require(self) -> None:
        """Raise an error if the guarantee is broken."""
        if not self.ok:
            raise PrivacyError(self.words)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "verdict": self.verdict,
            "words": self.words,
            "lower": self.lower.to_dict(),
            "upper": self.upper,
            "unit": self.unit,
            "relation": self.relation,
            "mechanism": self.mechanism,
            "records": self.records,
            "is_test": self.is_test,
        }


def audit_epsilon(
    audited: Planned | SGDPlan | QueryPlan | PrivacyClaim | Release,
    *,
    canaries: int = 1000,
    records: int | None = None,
    claimed: float | None = None,
    seed: int | None = None,
    error: float = 0.05,
) -> EpsilonAudit:
    """Test a guarantee with one run with canaries, which uses the same code, plan and noise as a release.

    Parameters
    ----------
    audited
        A generator with `privacy`, a `PrivateTable`, its plan, a release, or the claim of one. A claim with several
        training runs, or with Laplace noise, is refused: there is no single run to repeat.
    canaries
        More canaries give a tighter bound. 1000 detect missing and halved noise at an epsilon of 1, by exact tests.
    records
        Number of made-up records besides the canaries; by default as many as the budget declares, at most 5000.
    claimed
        The epsilon that was claimed, if it is not the plan's.
    seed
        Choose it before the run and keep the result: with enough seeds any bound can be found.
    error
        Probability, at most, that a guarantee that holds is called broken.

    Returns
    -------
    EpsilonAudit
        Both bounds. No record was read, so it is not private.

    Raises
    ------
    ConfigError
        If there is no plan or claim that a single run repeats.

    Examples
    --------
    >>> from locum import DP
    >>> from locum.audit import audit_epsilon
    >>> from locum.generate import ClassGaussian
    >>> generator = ClassGaussian(privacy=DP(8.0, 1e-5, n_public=2000), classes=[0, 1])
    >>> found = audit_epsilon(generator, seed=0)
    >>> found.verdict, bool(1 < found.lower.epsilon < found.upper <= 8)
    ('no contradiction found', True)
    """
    if claimed is not None and not 0 < claimed < float("inf"):
        raise ConfigError(f"`claimed` must be above 0 and finite; got {claimed!r}.")
    if not 0 < error < 1:
        raise ConfigError(f"`error` must lie between 0 and 1; got {error!r}. 0.05 is usual.")
    # A claim does not say which networks it is about.
    critic, table = isinstance(audited, CGANGenerator), isinstance(audited, PrivateTable)
    if isinstance(audited, Release):
        critic, audited = audited.manifest.generator == "CGANGenerator", audited.claim
    plan = _plan(audited)
    if records is None:
        records = min(plan.privacy.n_public or _USUAL_RECORDS, _MOST_RECORDS)
    check_counts(canaries, records)
    delta = plan.privacy.delta
    # The number of guesses follows from the plan alone, before the run: the choice needs no correction.
    before = simulate(plan, np.random.default_rng(0))
    # Half of the error for guesses, half for the exact tests.
    guesses = plan_guesses(before.scores, before.included, canaries, delta, error / 2)
    network: NetworkKind = "critic" if critic else "cvae"
    run = run_canaries(plan, canaries=canaries, records=records, seed=seed, network=network, table=table)
    if claimed is None:
        dp = audited.dp if isinstance(audited, PrivacyClaim) else None
        claimed = plan.epsilon if dp is None else dp.epsilon
    bound = LowerBound.from_scores(run.scores, run.included, guesses, delta, error / 2)
    share = error / 2 / max(1, len(run.evidence))
    return EpsilonAudit(
        bound.with_tests(tuple(one.test(plan, share) for one in run.evidence)),
        claimed,
        plan.privacy.unit,
        plan.privacy.relation,
        "private table" if table else _mechanism(plan),
        records,
    )


def _mechanism(plan: SGDPlan | QueryPlan) -> Mechanism:
    if isinstance(plan, SGDPlan):
        return "noisy steps"
    return "private head" if plan.sums > 1 else "noisy sums"


def _plan(audited: Planned | SGDPlan | QueryPlan | PrivacyClaim) -> SGDPlan | QueryPlan:
    if isinstance(audited, (SGDPlan, QueryPlan)):
        return audited
    if isinstance(audited, PrivacyClaim):
        return _plan_of_claim(audited)
    if not isinstance(audited, Planned):
        raise ConfigError(
            f"{type(audited).__name__} has no plan. Give a ClassGaussian, CVAEGenerator or CGANGenerator with "
            "`privacy`, its plan, its release, or the claim of one."
        )
    return audited.plan()


def _plan_of_claim(claim: PrivacyClaim) -> SGDPlan | QueryPlan:
    """The plan behind a claim; it lacks clip and batch, on which no guarantee depends."""
    dp = claim.dp
    if dp is None:
        raise ConfigError(f"A claim of kind {claim.kind!r} has no epsilon to audit.")
    relation: Relation = "replace-one" if dp.relation == "replace-one" else "add-or-remove"
    budget, events = DP(dp.epsilon, dp.delta, claim.unit, relation=relation), events_from_json(dp.events)
    steps = [event for event in events if isinstance(event, PoissonGaussian)]
    sums = [event for event in events if isinstance(event, Gaussian)]
    if len(steps) > 1 or len(sums) > 1 or len(steps) + len(sums) < len(events):
        raise ConfigError(
            f"This claim covers {len(events)} events that no single run repeats. Audit the plan of each fit instead."
        )
    if not steps:
        return QueryPlan(budget, 1.0, sums[0].noise_multiplier, sums[0].sums)
    one = steps[0]
    batch = max(1, round(one.rate * _USUAL_RECORDS))
    return SGDPlan(budget, one.rate, batch, one.steps, 1.0, one.noise_multiplier, tuple(sums))
