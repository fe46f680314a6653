"""The promise of a generator: what differential privacy needs before a fit, who pays, and what may be claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.accounting import Charge, QueryPlan, events_to_json
from locum.data import Reference
from locum.errors import ConfigError, PrivacyError
from locum.types import DP, DPClaim, PrivacyClaim

if TYPE_CHECKING:
    from locum.accounting import Ledger


DEFAULT_LEDGER = ".locum/ledger.sqlite"
# What is claimed of seeded coins.
TEST = "everything: made with test coins, which anybody can repeat"
# What no private fit covers.
NOT_COVERED = (
    "that the data passed the checks before the fit: finite numbers, no other label than those of `classes`",
    "the setting of epsilon, delta, `n_public` and `classes`: chosen by the holder, not hidden",
    "floating point: noise is rounded to 53 bits, not drawn on a grid",
)


def rounded_shares(shares: npt.NDArray[np.float64]) -> tuple[tuple[tuple[int], float], ...]:
    """Noisy class frequencies for `Learnt.joint`, rounded like any others."""
    rounded = np.maximum(np.round(1000 * shares), 1)
    return tuple(((c,), float(p)) for c, p in enumerate(rounded / rounded.sum()))


def reference_told(reference: Reference) -> dict[str, str]:
    """The public statistics that were used, for the settings of a release."""
    return {"reference": reference.name, "reference_source": reference.source}


def subjects(subject: Any) -> npt.NDArray[np.int64]:
    """Subjects as numbers; one that is missing is an error."""
    place: dict[str, int] = {}
    out = np.empty(len(np.asarray(subject)), dtype=np.int64)
    for i, who in enumerate(np.asarray(subject).tolist()):
        name = str(who)
        # Two people without a name would count as one, and move the sums by more than one may.
        if who is None or who != who or not name.strip():
            raise PrivacyError("A promise for each subject needs a `subject` for every record; one is missing.")
        out[i] = place.setdefault(name, len(place))
    return out


class Guarantee:
    """What a generator that takes `privacy` has in common with the others: checks, payment and claim."""

    privacy: DP | None
    classes: Sequence[Any] | None
    ledger: str | Path | None
    holding: str
    insecure_seed: int | None
    # Whether there is a private way to fit.
    _HONOURS_DP = False

    def _check_privacy(self, subject: Any) -> None:
        """Everything that a promise needs, before any record is looked at."""
        name = type(self).__name__
        if self.privacy is None:
            return
        if not isinstance(self.privacy, DP):
            raise ConfigError(f"`privacy` must be None or DP(epsilon, delta, n_public=...); got {self.privacy!r}.")
        if not self._HONOURS_DP:
            raise PrivacyError(
                f"{name} cannot honour differential privacy: use ClassGaussian, CVAEGenerator or CGANGenerator, or "
                "privacy=None."
            )
        self.privacy.size()
        if getattr(self, "classes", None) is None:
            raise PrivacyError(
                "Under differential privacy the set of classes is private too: name the classes there can be with "
                "`classes` (--classes); one may be empty."
            )
        if getattr(self, "condition_on", None):
            raise PrivacyError(
                "Under differential privacy `condition_on` would show which values occur: leave it out."
            )
        if self.privacy.unit == "subject" and subject is None:
            raise PrivacyError("A promise for each subject needs `subject`: say which records belong to one person.")

    def _budget(self) -> DP:
        """The budget, where there is one."""
        if self.privacy is None:
            raise ConfigError("There is nothing to plan without a budget: set `privacy=DP(...)`.")
        self._check_privacy(())
        return self.privacy

    @contextmanager
    def _open_ledger(self) -> Iterator[Ledger | None]:
        """The ledger that pays; none with test coins, which promise nothing."""
        from locum.accounting import Ledger

        if self.insecure_seed is not None:
            yield None
            return
        with Ledger(self.ledger or DEFAULT_LEDGER) as ledger:
            ledger.open_for(self._budget(), self.holding)
            yield ledger

    def _pay(self, plan: QueryPlan) -> Charge | None:
        """Charge the ledger, before the work; nothing is paid, and nothing promised, with test coins."""
        with self._open_ledger() as ledger:
            if ledger is None:
                return None
            return ledger.charge(
                self.holding,
                plan.events,
                delta=plan.privacy.delta,
                purpose=type(self).__name__,
                within=plan.privacy.epsilon,
            )

    def _subjects(self, subject: npt.NDArray[Any] | None) -> npt.NDArray[np.int64] | None:
        """Subjects as numbers, where the promise is about subjects."""
        if self._budget().unit != "subject":
            return None
        return subjects(subject)

    def _dp_claim(self, charge: Charge | None, *not_covered: str) -> PrivacyClaim:
        """The promise that was paid for."""
        assert self.privacy is not None
        outside = not_covered
        if self.privacy.unit == "record":
            outside = ("people with several records: the promise is about one record each", *outside)
        if charge is None:
            return PrivacyClaim("none", (TEST, *outside))
        paid = DPClaim(
            charge.epsilon, charge.delta, self.privacy.relation, tuple(events_to_json(charge.events)), charge.tip
        )
        return PrivacyClaim("dp", outside, unit=self.privacy.unit, dp=paid)
