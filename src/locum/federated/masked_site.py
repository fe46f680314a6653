"""A site's side of masked sums: keys, shares, one payment, then sums that nobody can read one by one.

The protocol is in docs/explain/masked-sums.md. Each step is answered once; the same request again gets the same
bytes, from the site's state.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locum.accounting import Charge, Ledger
from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated.masking import MaskingSite, MaskTerms, announce
from locum.federated.protocol import Reply, Request
from locum.federated.queries import SiteQueries, read_query
from locum.federated.settings import FederationSettings
from locum.federated.site_budget import SiteBudget
from locum.federated.site_keys import key_id, read_public_key
from locum.federated.state import SiteState
from locum.federated.terms import SitePlan, masked_plan
from locum.mechanisms import check_noise, noisy

# Shares are floating-point numbers: their sum may exceed 1 by less than this, and each sum gets more noise by it.
_SLACK = 1e-9


class MaskedSite:
    """One request to a site whose sums are masked.

    Parameters
    ----------
    settings
        The terms, which the site has agreed to.
    run
        Name of the run.
    key
        The site's private signing key; the terms pin the public one.
    state
        The site's state of this run.
    budget
        The site's ledger.
    plan
        What the run costs.
    insecure_seed
        For simulations: seeds the noise.
    """

    def __init__(
        self,
        settings: FederationSettings,
        run: str,
        key: EllipticCurvePrivateKey | None,
        state: SiteState,
        budget: SiteBudget,
        plan: SitePlan,
        insecure_seed: int | None,
    ) -> None:
        if key is None:
            raise ConfigError("Masked sums are signed: name the site's private key (--key, or `key` in site.toml).")
        self._settings, self._run, self._key, self._state = settings, run, key, state
        self._budget, self._plan, self._insecure_seed = budget, plan, insecure_seed
        self._terms = mask_terms(settings, run)
        self._name = _own_name(self._terms, key)

    def join(self, request: Request) -> Reply:
        """Announce this site's keys; nothing is paid yet."""
        with self._budget.ledger() as ledger:
            if ledger is not None and self._budget.of_run(ledger, self._run):
                raise PrivacyError("This site has paid for this run, and its state is lost: it cannot continue.")
        if self._plan.privacy is not None:
            # Before anybody relies on this site: what is refused later would be paid for nothing.
            check_noise(self._plan.sums_noise)
        self._state.master = self._state.master or secrets.token_bytes(32)
        return _reply(request, {"keys": announce(self._terms, self._name, self._state.master, self._key)})

    def share(self, request: Request) -> Reply:
        """Check everybody's keys against the terms, and send each site its shares of this site's secrets."""
        site = self._masks()
        blobs = site.share(_table(request, "keys"))
        self._keep(site)
        return _reply(request, tensors={name: np.frombuffer(blob, np.uint8) for name, blob in blobs.items()})

    def begin(self, request: Request) -> Reply:
        """Take the shares of the other sites, and pay for the whole run."""
        site = self._masks()
        try:
            site.receive({name: np.asarray(blob).tobytes() for name, blob in request.tensors.items()})
        except (FormatError, PrivacyError) as error:
            # It names the sender, so that the coordinator knows whom to leave out; no record or budget is in it.
            return Reply(request.step, request.round, request.nonce, str(error))
        facts: dict[str, Any] = {"noise": self._plan.sums_noise, "size": 1, "terms": None}
        with self._budget.ledger() as ledger:
            self._check_kind(starts=True)
            if ledger is None:
                self._state.identity = "test"
            else:
                charge = self._pay(ledger)
                self._state.identity = charge.identity
                facts |= self._budget.terms(ledger, charge, self._settings, self._run)
        self._keep(site)
        return _reply(request, facts)

    def sum(self, request: Request, queries: SiteQueries) -> Reply:
        """This site's sums with its part of the noise, masked."""
        site, step = self._masks(), request.round
        query, participants = read_query(request, self._settings), _names(request, "participants")
        self._check_kind()
        self._check_current()
        shares = self._state.shares | {str(step): query.share}
        if str(step) in self._state.shares or math.fsum(shares.values()) > 1 + _SLACK:
            raise PrivacyError(f"Sum {step + 1} with {query.share:.3g} of the precision is not paid for.")
        site.check_mask(step, query.digest(), participants)
        sums = queries.sums(query)
        if self._plan.sums_noise:
            noise = self._plan.sums_noise / math.sqrt(query.share) * (1 + _SLACK)
            sums = noisy(sums, noise, parts=self._terms.honest, insecure_seed=self._insecure_seed, step=step)
        words = site.mask(step, query.digest(), participants, sums.integers)
        self._state.shares, self._state.clipped = shares, queries.clipped
        self._keep(site)
        return _reply(request, tensors={"sums": words})

    def confirm(self, request: Request) -> Reply:
        """Sign the list of those who answered; there is one list per sum."""
        site = self._masks()
        self._check_current()
        signature = site.confirm(request.round, _names(request, "answered"))
        # Before the state has it: of an old copy of the state, which has signed nothing yet, another list is refused.
        signed = json.dumps(site.state["steps"][str(request.round)], sort_keys=True)
        self._finish(hashlib.sha256(signed.encode()).hexdigest(), f"list {request.round}")
        self._keep(site)
        return _reply(request, {"signature": signature})

    def open(self, request: Request) -> Reply:
        """Reveal what removes the masks of a sum that enough sites have confirmed, and nothing more."""
        site = self._masks()
        opened = site.open(request.round, _table(request, "signatures"))
        self._keep(site)
        return _reply(request, {"shares": opened})

    def note(self, reply: Reply) -> None:
        """Tell the ledger what a sum was, before it leaves: a second answer, from a copy of the state, is refused."""
        result = hashlib.sha256(np.ascontiguousarray(reply.tensors["sums"]).tobytes()).hexdigest()
        self._finish(result, _part(reply.round))
        # Again: two copies of the state can answer different sums at once, each with precision that is there once.
        self._check_current()

    def _pay(self, ledger: Ledger) -> Charge:
        """One payment for a run, whatever is asked again, and none for a state that was put back."""
        if self._state.identity:
            return self._budget.paid(ledger, self._state.identity)
        if any(ledger.results(charge) for charge in self._budget.of_run(ledger, self._run)):
            raise PrivacyError("This site has answered sums of this run, and its state is old: it cannot continue.")
        assert self._plan.privacy is not None
        return self._budget.charge(ledger, self._plan.events, self._run, self._plan.privacy.delta)

    def _finish(self, result: str, part: str) -> None:
        with self._budget.ledger() as ledger:
            if ledger is not None:
                ledger.finish(self._budget.paid(ledger, self._state.identity), result, part)

    def _check_kind(self, *, starts: bool = False) -> None:
        if not self._state.identity:
            if starts:
                return
            raise PrivacyError("This site has not paid for this run, so it answers no sums.")
        if (self._state.identity == "test") != (self._insecure_seed is not None):
            raise PrivacyError(
                "`insecure_seed` was added or removed since this site joined: a run is either paid for or a test."
            )

    def _check_current(self) -> None:
        """Refuse if the ledger knows a sum that the state does not: the state would forget the precision it used."""
        with self._budget.ledger() as ledger:
            if ledger is None:
                return
            known = ledger.results(self._budget.paid(ledger, self._state.identity))
        mine = {_part(int(step)) for step in self._state.shares}
        if any(part.startswith("steps ") and part not in mine for part in known):
            raise PrivacyError("This site has answered a sum that its state does not know: an old copy was put back.")

    def _masks(self) -> MaskingSite:
        if not self._state.master:
            raise PrivacyError("This site was not asked to join this run, or its state is lost.")
        return MaskingSite(self._terms, self._name, self._state.master, self._key, self._state.masks or None)

    def _keep(self, site: MaskingSite) -> None:
        self._state.masks = dict(site.state)


def mask_terms(settings: FederationSettings, run: str) -> MaskTerms:
    """The public parameters of the masks of a run."""
    if not settings.sites:
        raise ConfigError(
            "The terms name no sites, and masked sums need their public keys: run `locum federate pin federation.toml"
            " --keys DIR`, and send the file to every site."
        )
    return MaskTerms(
        run=run,
        terms=settings.hash(),
        sites={name: read_public_key(name, text) for name, text in settings.sites.items()},
        absent=settings.absent,
        colluding=settings.colluding,
        steps=masked_plan(settings).sums,
    )


def _own_name(terms: MaskTerms, key: EllipticCurvePrivateKey) -> str:
    own = key_id(key.public_key())
    for name, public in terms.sites.items():
        if key_id(public) == own:
            return name
    raise PrivacyError("The terms do not list this site's public key: compare it with the copy of federation.toml.")


def _part(step: int) -> str:
    """A sum, as the ledger knows it."""
    return f"steps {step} to {step + 1}"


def _reply(
    request: Request, facts: Mapping[str, Any] | None = None, tensors: Mapping[str, npt.NDArray[Any]] | None = None
) -> Reply:
    # As the other side will read it.
    return Reply(request.step, request.round, request.nonce, "", json.loads(json.dumps(facts or {})), tensors or {})


def _table(request: Request, name: str) -> Mapping[str, Any]:
    found = request.facts.get(name)
    if not isinstance(found, dict):
        raise FormatError(f"A request to {request.step} must give `{name}`, one entry per site.")
    return found


def _names(request: Request, name: str) -> list[str]:
    found = request.facts.get(name)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise FormatError(f"A request for a step of a sum must give `{name}`, a list of sites.")
    return found
