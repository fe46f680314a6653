"""A plan that is paid for as a whole and used up part by part, by processes that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from understudy.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from understudy.accounting import Charge, Ledger, SGDPlan

__all__ = ["PaidPlan", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """Steps `start` to `stop` of a plan; `charge` is None in a test with seeded coins."""

    start: int
    stop: int
    charge: Charge | None

    @property
    def name(self) -> str:
        """By which the ledger knows it."""
        return f"steps {self.start} to {self.stop}"


@dataclass(frozen=True, slots=True)
class PaidPlan:
    """A plan with its receipt, and how many of its steps are `used`.

    The whole plan is charged before the first step: it may end early, but what it costs must not hang on when. Which
    parts were finished stands in the ledger, so that a copy of all other files cannot use a step twice: the ledger
    refuses a second result for the same steps. Without a charge (a test) `used` is the caller's word.
    """

    plan: SGDPlan
    charge: Charge | None = None
    used: int = 0

    @classmethod
    def pay(cls, plan: SGDPlan, ledger: Ledger, holding: str, purpose: str) -> PaidPlan:
        """Charge the whole plan to the ledger, or be refused."""
        wish = plan.privacy
        charge = ledger.charge(holding, plan.events, delta=wish.delta, purpose=purpose, within=wish.epsilon)
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

    def next(self, steps: int) -> Part:
        """The next so many steps, or an error that says that they are not paid for."""
        if steps < 1:
            raise ConfigError(f"A part of a plan has one step or more; got {steps!r}.")
        if self.used + steps > self.plan.steps:
            raise PrivacyError(f"{steps} more steps are not paid for: {self.used} of {self.plan.steps} are used up.")
        return Part(self.used, self.used + steps, self.charge)
