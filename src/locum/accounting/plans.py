"""Plans: what a private fit will do and cost, from public numbers alone; and plans that are paid for at once and used
step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from locum.accounting.calibration import noise_for
from locum.accounting.cost import epsilon_curve, epsilon_of, least_delta
from locum.accounting.events import Event, Gaussian, PoissonGaussian, events_to_json
from locum.accounting.shown import plan_html
from locum.errors import ConfigError, PrivacyError
from locum.types import DP

if TYPE_CHECKING:
    from locum.accounting.holding import Charge
    from locum.accounting.ledger import Ledger


# The most gradient steps of a private head.
HEAD_STEPS = 32


@dataclass(frozen=True, slots=True)
class SGDPlan:
    """Noisy gradient steps on Poisson batches; everything in here is public.

    Gradients are clipped to `clip`, summed, given normal noise of `noise_multiplier * clip`, and divided by `batch`.
    `plan_sgd` derives the noise from a budget.

    Parameters
    ----------
    privacy
        The budget.
    rate
        Probability with which a unit joins each batch.
    batch
        Expected number of units in a batch.
    steps
        Number of batches.
    clip
        Largest L2 norm of a unit's gradient.
    noise_multiplier
        Standard deviation of the noise divided by `clip`.
    extra
        Further events that are paid from the same budget.

    Examples
    --------
    >>> from locum.accounting import SGDPlan
    >>> from locum.types import DP
    >>> plan = SGDPlan(DP(1.0, 1e-5), rate=1.0, batch=500, steps=25, clip=1.0, noise_multiplier=20.0)
    >>> round(plan.epsilon, 3)
    0.926
    """

    privacy: DP
    rate: float
    batch: int
    steps: int
    clip: float
    noise_multiplier: float
    extra: tuple[Event, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger is charged with."""
        return (PoissonGaussian(self.rate, self.noise_multiplier, self.steps), *self.extra)

    @property
    def epsilon(self) -> float:
        """What it costs in all, at the budget's delta."""
        return epsilon_of(self.events, self.privacy.delta, self.privacy.relation)

    def epsilon_after(self, step: int) -> float:
        """What it has cost after so many steps, the extra events included."""
        done = () if step < 1 else (PoissonGaussian(self.rate, self.noise_multiplier, min(step, self.steps)),)
        return epsilon_of((*done, *self.extra), self.privacy.delta, self.privacy.relation)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, with epsilon by step and by delta."""
        marks = sorted({max(1, math.ceil(self.steps * k / 4)) for k in range(1, 5)})
        return {
            "kind": "sgd",
            **_public(self.privacy),
            "sampling_rate": self.rate,
            "expected_batch": self.batch,
            "steps": self.steps,
            "clip": self.clip,
            "noise_multiplier": self.noise_multiplier,
            "epsilon_spent": self.epsilon,
            "epsilon_by_step": [[step, self.epsilon_after(step)] for step in marks],
            "curve": _curve(self.events, self.privacy),
            "events": events_to_json(self.events),
        }

    def _repr_html_(self) -> str:
        """For notebooks; the words are those of the program."""
        return plan_html(self.to_dict())


@dataclass(frozen=True, slots=True)
class NonPrivateSGD:
    """Steps on Poisson batches without clipping, noise or budget: only for tests with seeded randomness.

    Parameters
    ----------
    rate
        Probability with which a unit joins each batch.
    batch
        Expected number of units in a batch.
    steps
        Number of batches.

    Examples
    --------
    >>> from locum.accounting import NonPrivateSGD
    >>> NonPrivateSGD(rate=0.1, batch=50, steps=10).noise_multiplier
    0.0
    """

    rate: float
    batch: int
    steps: int

    @property
    def privacy(self) -> None:
        """No budget."""
        return

    @property
    def clip(self) -> float:
        """Infinite: no gradient is clipped."""
        return math.inf

    @property
    def noise_multiplier(self) -> float:
        """0: no noise is added."""
        return 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """None: nothing is charged."""
        return ()


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One sum with normal noise of standard deviation `noise_multiplier * sensitivity`; everything in here is public.

    Or several sums, one after the other, that are together as precise as that one. `plan_query` derives the noise
    from a budget.

    Parameters
    ----------
    privacy
        The budget.
    sensitivity
        How far one unit can move the sum when it is added or removed, as an L2 norm.
    noise_multiplier
        Standard deviation of the noise divided by `sensitivity`.
    sums
        The largest number of sums that share this precision.

    Examples
    --------
    >>> from locum.accounting import QueryPlan
    >>> from locum.types import DP
    >>> round(QueryPlan(DP(1.0, 1e-5), sensitivity=1.0, noise_multiplier=4.0).epsilon, 3)
    0.926
    """

    privacy: DP
    sensitivity: float
    noise_multiplier: float
    sums: int = 1

    @property
    def events(self) -> tuple[Event, ...]:
        """What the ledger is charged with."""
        return (Gaussian(self.noise_multiplier, self.sums),)

    @property
    def epsilon(self) -> float:
        """What it costs, at the budget's delta."""
        return epsilon_of(self.events, self.privacy.delta, self.privacy.relation)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, with epsilon by delta."""
        return {
            "kind": "query",
            **_public(self.privacy),
            "sensitivity": self.sensitivity,
            "noise_multiplier": self.noise_multiplier,
            "sums": self.sums,
            "epsilon_spent": self.epsilon,
            "curve": _curve(self.events, self.privacy),
            "events": events_to_json(self.events),
        }

    def _repr_html_(self) -> str:
        """For notebooks; the words are those of the program."""
        return plan_html(self.to_dict())


def plan_sgd(
    privacy: DP,
    *,
    batch: int,
    epochs: float = 1.0,
    steps: int | None = None,
    clip: float = 1.0,
    extra: Sequence[Event] = (),
) -> SGDPlan:
    """The plan for private training: how much noise the budget takes.

    Passes and rates go by `privacy.n_public`, never by the data. Results are cached.

    Parameters
    ----------
    privacy
        The budget, with `n_public`.
    batch
        Expected number of units in a batch; at most `n_public` is used.
    epochs
        Passes over the data.
    steps
        Number of batches, in place of `epochs`; None: from `epochs`.
    clip
        Largest L2 norm of a unit's gradient.
    extra
        Further events that share the budget.

    Returns
    -------
    SGDPlan
        A plan that costs at most `privacy.epsilon` at `privacy.delta`.

    Raises
    ------
    PrivacyError
        If `privacy` has no `n_public`, or no noise is enough.

    Examples
    --------
    >>> from locum.accounting import plan_sgd
    >>> from locum.types import DP
    >>> plan = plan_sgd(DP(1.0, 1e-5, n_public=2000), batch=256, epochs=10)
    >>> plan.steps, plan.epsilon <= 1.0
    (79, True)
    """
    n = privacy.size()
    if isinstance(batch, bool) or not 1 <= batch < math.inf or batch % 1 != 0:
        raise ConfigError(f"`batch` must be a whole number, 1 or more; got {batch!r}.")
    if not 0 < epochs < math.inf or not 0 < clip < math.inf:
        raise ConfigError(f"`epochs` and `clip` must be above 0 and finite; got {epochs!r} and {clip!r}.")
    size = min(int(batch), n)
    # Exact: a quotient of floats could round up to one step more.
    count = math.ceil(Fraction(repr(float(epochs))) * n / size) if steps is None else steps
    noise = _sgd_noise(privacy, size / n, count, tuple(extra))
    return SGDPlan(privacy, size / n, size, count, float(clip), noise, tuple(extra))


def plan_query(privacy: DP, *, sensitivity: float = 1.0, sums: int = 1) -> QueryPlan:
    """The plan for one noisy sum, or for several that share its precision: how much noise the budget takes.

    Parameters
    ----------
    privacy
        The budget; `n_public` is not needed.
    sensitivity
        How far one unit can move a sum when it is added or removed, as an L2 norm.
    sums
        The largest number of sums.

    Returns
    -------
    QueryPlan
        A plan that costs at most `privacy.epsilon` at `privacy.delta`.

    Examples
    --------
    >>> from locum.accounting import plan_query
    >>> from locum.types import DP
    >>> plan = plan_query(DP(1.0, 1e-5))
    >>> round(plan.noise_multiplier, 2), plan.epsilon <= 1.0
    (3.73, True)
    """
    if not 0 < sensitivity < math.inf:
        raise ConfigError(f"`sensitivity` must be above 0 and finite; got {sensitivity!r}.")
    return QueryPlan(privacy, float(sensitivity), _query_noise(privacy, sums), sums)


def plan_head(privacy: DP) -> QueryPlan:
    """The plan for a private linear head: a first query, class sums, and up to `HEAD_STEPS` gradient steps.

    Parameters
    ----------
    privacy
        The budget; `n_public` is not needed.

    Returns
    -------
    QueryPlan
        A plan that costs at most `privacy.epsilon` at `privacy.delta`.

    Examples
    --------
    >>> from locum.accounting import plan_head, plan_query
    >>> from locum.types import DP
    >>> plan = plan_head(DP(1.0, 1e-6))
    >>> plan.sums, plan.noise_multiplier / plan_query(DP(1.0, 1e-6)).noise_multiplier < 1 + 1e-6
    (34, True)
    """
    return plan_query(privacy, sums=2 + HEAD_STEPS)


@lru_cache(maxsize=256)
def _sgd_noise(privacy: DP, rate: float, steps: int, extra: tuple[Event, ...]) -> float:
    def events(noise: float) -> tuple[Event, ...]:
        return (PoissonGaussian(rate, noise, steps), *extra)

    return noise_for(events, privacy.epsilon, privacy.delta, privacy.relation)


@lru_cache(maxsize=256)
def _query_noise(privacy: DP, sums: int) -> float:
    # The closed form is quick: the budget can be used to the last digits.
    return noise_for(
        lambda noise: (Gaussian(noise, sums),), privacy.epsilon, privacy.delta, privacy.relation, tolerance=1e-7
    )


def _public(privacy: DP) -> dict[str, Any]:
    return {
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "unit": privacy.unit,
        "relation": privacy.relation,
        "n_public": privacy.n_public,
    }


def _curve(events: Sequence[Event], privacy: DP) -> list[list[float]]:
    deltas = [delta for k in range(3, 10) if (delta := 10.0**-k) >= least_delta(events)]
    return [list(pair) for pair in epsilon_curve(events, deltas, privacy.relation)]


@dataclass(frozen=True, slots=True)
class PlanSteps:
    """Some consecutive steps of a plan, as `PaidPlan.next` returns them.

    Attributes
    ----------
    start, stop
        The first step, counted from 0, and the one after the last.
    charge
        The payment for the whole plan; None in a test with an insecure seed.

    Examples
    --------
    >>> from locum.accounting import PlanSteps
    >>> PlanSteps(start=0, stop=10, charge=None).name
    'steps 0 to 10'
    """

    start: int
    stop: int
    charge: Charge | None

    @property
    def name(self) -> str:
        """By which the ledger knows it."""
        return f"steps {self.start} to {self.stop}"


@dataclass(frozen=True, slots=True)
class PaidPlan:
    """A plan with its payment, and how many of its steps are used.

    The whole plan is charged before the first step: it may end early, but its cost must not depend on when. The
    ledger records which steps are finished and refuses a second result for the same steps, so that a copy of all
    other files cannot use a step twice. Use `PaidPlan.pay` to begin and `PaidPlan.reopen` to continue.

    Parameters
    ----------
    plan
        What is done.
    charge
        The payment; None in a test with an insecure seed.
    used
        How many steps are used. `reopen` reads it from the ledger; without a charge it is what the caller says.

    Examples
    --------
    >>> from locum.accounting import Ledger, PaidPlan, SGDPlan
    >>> from locum.types import DP
    >>> ledger, budget = Ledger("paid.sqlite"), DP(1.0, 1e-5)
    >>> opened = ledger.open_for(budget, "scans")
    >>> plan = SGDPlan(budget, rate=1.0, batch=500, steps=25, clip=1.0, noise_multiplier=20.0)
    >>> PaidPlan.pay(plan, ledger, "scans", "training").next(10).name
    'steps 0 to 10'
    """

    plan: SGDPlan
    charge: Charge | None = None
    used: int = 0

    @classmethod
    def pay(cls, plan: SGDPlan, ledger: Ledger, holding: str, purpose: str) -> PaidPlan:
        """Charge the whole plan to the ledger, or be refused."""
        budget = plan.privacy
        charge = ledger.charge(holding, plan.events, delta=budget.delta, purpose=purpose, within=budget.epsilon)
        return cls(plan, charge)

    @classmethod
    def reopen(cls, plan: SGDPlan, ledger: Ledger, identity: str) -> PaidPlan:
        """Go on where an earlier process stopped, by the name of its charge; the ledger says how far it came."""
        charge = ledger.paid(identity, plan.events)
        ends = [int(name.rsplit(" ", 1)[1]) for name in ledger.results(charge) if name.startswith("steps ")]
        return cls(plan, charge, max(ends, default=0))

    @property
    def epsilon_used(self) -> float:
        """What the steps so far have cost, with the extra events; the ledger has been charged with all of them."""
        return self.plan.epsilon_after(self.used)

    def next(self, steps: int) -> PlanSteps:
        """The next so many steps, or an error that says that they are not paid for."""
        if steps < 1:
            raise ConfigError(f"A part of a plan has one step or more; got {steps!r}.")
        if self.used + steps > self.plan.steps:
            raise PrivacyError(f"{steps} more steps are not paid for: {self.used} of {self.plan.steps} are used up.")
        return PlanSteps(self.used, self.used + steps, self.charge)
