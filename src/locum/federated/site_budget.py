"""How a site pays: its ledger, the charge of a run, and the terms that it sends as proof of payment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locum.accounting import Charge, Event, Ledger, check_one_ledger, events_to_json, paying_for
from locum.errors import PrivacyError
from locum.federated.receipts import sign_receipt
from locum.federated.settings import FederationSettings
from locum.federated.site_file import SiteFile
from locum.federated.terms import NOT_COVERED, paid_terms
from locum.generate.private import LOOKED
from locum.types import DPClaim, PrivacyClaim


class SiteBudget:
    """The ledger of a site, as its `site.toml` names it; a simulation has none.

    Parameters
    ----------
    file
        The site's settings.
    key
        The key that signs receipts; None: no receipts.
    """

    def __init__(self, file: SiteFile, key: EllipticCurvePrivateKey | None) -> None:
        self._file, self._key = file, key

    @contextmanager
    def ledger(self) -> Iterator[Ledger | None]:
        """The open ledger; None in a simulation."""
        budget = self._file.privacy()
        if self._file.insecure_seed is not None or budget is None:
            yield None
            return
        if not self._file.ledger_file.exists():
            check_one_ledger(self._file.data_place, self._file.ledger_file)
        with Ledger(self._file.ledger_file) as ledger:
            ledger.open_for(budget, self._file.holding)
            yield ledger

    def charge(self, ledger: Ledger, events: tuple[Event, ...], run: str, delta: float | None = None) -> Charge:
        """Pay for the whole run, once, even if an earlier process was killed right after paying."""
        for charge in self.of_run(ledger, run):
            same = charge.holding == self._file.holding and charge.events == events
            if same and not ledger.results(charge):
                return charge
        budget = self._file.privacy()
        assert budget is not None
        place = self._file.data_place
        check_one_ledger(place, ledger.file)
        with paying_for(place):
            return ledger.charge(
                self._file.holding, events, delta=delta or budget.delta, purpose=_purpose(run), within=budget.epsilon
            )

    def of_run(self, ledger: Ledger, run: str) -> list[Charge]:
        """What this site has paid for a run, from any holding: the one that site.toml names may have changed."""
        return [c for held in ledger.holdings().values() for c in held.charges if c.purpose == _purpose(run)]

    def paid(self, ledger: Ledger, identity: str) -> Charge:
        """The charge that a run's state names."""
        for charge in ledger.holding(self._file.holding).charges:
            if charge.identity == identity:
                return charge
        raise PrivacyError("The site's ledger does not have the charge of this run.")

    def terms(self, ledger: Ledger, charge: Charge, settings: FederationSettings, run: str) -> dict[str, Any]:
        """The terms of a payment as a reply has them, with the site's receipt if it has a key."""
        dp = DPClaim(
            charge.epsilon,
            charge.delta,
            self._file.relation,  # type: ignore[arg-type]
            tuple(events_to_json(charge.events)),
            charge.tip,
        )
        outside = (*NOT_COVERED, LOOKED) if ledger.looks() > 0 else NOT_COVERED
        terms = paid_terms(PrivacyClaim("dp", outside, unit=self._file.unit, dp=dp))  # type: ignore[arg-type]
        if self._key is None:
            return {"terms": terms}
        return {"terms": terms, "receipt": sign_receipt(terms, settings, run, self._key)}


def _purpose(run: str) -> str:
    return f"federation {run}"
