"""Epsilon from both sides: what was proven, and what canaries refute in a run of their own.

The proof gives an upper bound that holds if the code does what the proof is about. Canaries give a lower bound that
holds whatever the code does. A lower bound above the claim means that the promise is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from locum.accounting import Gaussian, PoissonGaussian, QueryPlan, SGDPlan, events_from_json
from locum.audit.epsilon.bounds import LowerBound, plan_guesses
from locum.audit.epsilon.canaries import NetworkKind, check_counts, run_canaries, simulate
from locum.errors import ConfigError, PrivacyError
from locum.generate import CGANGenerator
from locum.release import Release
from locum.types import DP, PrivacyClaim, Relation, Unit

EpsilonVerdict = Literal["broken promise", "no contradiction found"]

# Each unit has a coin of its own: more records change nothing but the time it takes.
_MOST_RECORDS = 5000
_USUAL_RECORDS = 1000


class Planned(Protocol):
    """A generator with a promise: it can say what it will do before it sees a record."""

    def plan(self) -> SGDPlan | QueryPlan:
        """What a private fit will do and cost."""
        ...


@dataclass(frozen=True, slots=True)
class EpsilonAudit:
    """The proven epsilon (`upper`) and the refuted one (`lower`), at one delta, for one unit and relation.

    "no contradiction found" is no proof: the gap between the two may hold a fault that these canaries miss. An honest
    promise is called broken with a chance of at most `lower.error`. It rests on a test run that read no record, so
    that it may be shown to anybody.
    """

    lower: LowerBound
    upper: float
    unit: Unit
    relation: Relation
    mechanism: Literal["noisy steps", "noisy sums"]
    records: int
    is_test: ClassVar[bool] = True

    @property
    def ok(self) -> bool:
        """Whether the two bounds can both be true."""
        return self.lower.epsilon <= self.upper

    @property
    def verdict(self) -> EpsilonVerdict:
        """The word that a reader may act on."""
        return "no contradiction found" if self.ok else "broken promise"

    @property
    def words(self) -> str:
        """The finding in words that a privacy officer can quote."""
        low = self.lower
        seen = (
            f"{low.canaries} canaries in one run ({self.mechanism}) refute every epsilon below {low.epsilon:.2f} at "
            f"delta {low.delta:g}, with {1 - low.error:.0%} confidence: {low.correct} of {low.guesses} guesses right"
        )
        if self.ok:
            return f"{seen}. The claim of {self.upper:.2f} is not contradicted; that is no proof of it."
        return f"Broken promise: {seen}, yet the claim is {self.upper:.2f}. Nothing made by this code may leave."

    def require(self) -> None:
        """Stop with an error where the promise is broken."""
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
    """Audit a promise by one run with canaries, which goes through the same code, plan and noise as a release.

    Parameters
    ----------
    audited
        A generator with `privacy`, its plan, a release, or the claim of one. A claim with several runs of steps, or
        with Laplace noise, is refused: there is no one run to repeat.
    canaries
        The more, the tighter. 1000 see missing noise; to see noise that was halved under an epsilon of 1 takes some
        20,000.
    records
        Made-up records beside the canaries; by default as many as the budget declares, but at most 5000.
    claimed
        The epsilon that was promised, where it is not the plan's own.
    seed
        Set it before a run and keep what comes out: whoever tries seeds finds any number in the end.

    Examples
    --------
    >>> from locum.generate import ClassGaussian
    >>> promise = ClassGaussian(privacy=DP(8.0, 1e-5, n_public=2000), classes=[0, 1])
    >>> found = audit_epsilon(promise, seed=0)
    >>> found.verdict, bool(1 < found.lower.epsilon < found.upper <= 8)
    ('no contradiction found', True)
    """
    if claimed is not None and not 0 < claimed < float("inf"):
        raise ConfigError(f"`claimed` must be above 0 and finite; got {claimed!r}.")
    # A claim does not tell which networks it is about.
    critic = isinstance(audited, CGANGenerator)
    if isinstance(audited, Release):
        critic, audited = audited.manifest.generator == "CGANGenerator", audited.claim
    plan = _plan(audited)
    if records is None:
        records = min(plan.privacy.n_public or _USUAL_RECORDS, _MOST_RECORDS)
    check_counts(canaries, records)
    delta = plan.privacy.delta
    # Guesses are fixed by the plan's numbers before there is a run: nothing has to be paid for the choice.
    before = simulate(plan, np.random.default_rng(0))
    guesses = plan_guesses(before.scores, before.included, canaries, delta, error)
    network: NetworkKind = "critic" if critic else "cvae"
    run = run_canaries(plan, canaries=canaries, records=records, seed=seed, network=network)
    if claimed is None:
        told = audited.dp if isinstance(audited, PrivacyClaim) else None
        claimed = plan.epsilon if told is None else told.epsilon
    return EpsilonAudit(
        LowerBound.from_scores(run.scores, run.included, guesses, delta, error),
        claimed,
        plan.privacy.unit,
        plan.privacy.relation,
        "noisy sums" if isinstance(plan, QueryPlan) else "noisy steps",
        records,
    )


def _plan(audited: Planned | SGDPlan | QueryPlan | PrivacyClaim) -> SGDPlan | QueryPlan:
    if isinstance(audited, (SGDPlan, QueryPlan)):
        return audited
    if isinstance(audited, PrivacyClaim):
        return _plan_of_claim(audited)
    if not hasattr(audited, "plan"):
        raise ConfigError(
            f"{type(audited).__name__} has no plan: epsilon is audited for ClassGaussian, CVAEGenerator and "
            "CGANGenerator with `privacy`, for their plans, and for the claims of their releases."
        )
    return audited.plan()


def _plan_of_claim(claim: PrivacyClaim) -> SGDPlan | QueryPlan:
    """The plan behind a claim; clip and batch are in no claim, and no promise depends on them."""
    told = claim.dp
    if told is None:
        raise ConfigError(f"A claim of kind {claim.kind!r} has no epsilon to audit.")
    relation: Relation = "replace-one" if told.relation == "replace-one" else "add-or-remove"
    budget, events = DP(told.epsilon, told.delta, claim.unit, relation=relation), events_from_json(told.events)
    steps = [event for event in events if isinstance(event, PoissonGaussian)]
    sums = [event for event in events if isinstance(event, Gaussian)]
    if len(steps) > 1 or len(sums) > 1 or len(steps) + len(sums) < len(events):
        raise ConfigError(
            f"This claim is about {len(events)} parts that no one run repeats: audit the plan of each fit instead."
        )
    if not steps:
        return QueryPlan(budget, 1.0, sums[0].noise_multiplier)
    one = steps[0]
    batch = max(1, round(one.rate * _USUAL_RECORDS))
    return SGDPlan(budget, one.rate, batch, one.steps, 1.0, one.noise_multiplier, tuple(sums))
