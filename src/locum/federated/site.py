"""A site of a federation: it replies to requests with what it has paid for, and keeps everything else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locum.accounting import Charge, Event, Gaussian, Ledger, PaidPlan, PlanSteps, SGDPlan, events_to_json
from locum.data import Reference
from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.protocol import Reply, Request
from locum.federated.receipts import sign_receipt
from locum.federated.secure import check_keys, masked, new_key, noise_of_each, public_key
from locum.federated.settings import FederationSettings
from locum.federated.site_file import SiteFile, SiteRecords
from locum.federated.state import SiteState
from locum.federated.terms import (
    NOT_COVERED,
    SitePlan,
    agreed_reference,
    paid_terms,
    plan_site,
    requested_sums,
)
from locum.federated.verification import check_run_claim
from locum.generate import with_labels
from locum.generate.private import LOOKED, Whitener, exact_query, subjects
from locum.io import STATE_FOLDER
from locum.mechanisms import ExactSums, noisy
from locum.release import Release, parse_manifest
from locum.train import CVAELoss, fingerprint
from locum.train.dp import PrivateRun
from locum.types import DPClaim, EmbeddingSet, PrivacyClaim


class Site:
    r"""One hospital, registry or bank, as its `site.toml` describes it.

    Its replies are paid for on its own ledger, all at once and in advance: noisy sums, then one decoder per round of
    DP-SGD on the joint gradient of encoder and decoder. Its encoder, heads, lambda and all counts stay in its
    folder. Its state is in files, so a new process may handle each request; a repeated request gets the same reply.
    When the paid steps are used up, it declines.

    A site trusts that its settings are public and that requests come from the coordinator; anyone else who asks gets
    nothing that is not paid for. With masked sums it also trusts that the listed sites are real.

    Parameters
    ----------
    file
        Path of its `site.toml`; see `SiteFile`.
    key
        The site's private key, which signs a receipt of what it paid; None: no receipt.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.federated import Site
    >>> text = 'data = "train.npz"\nepsilon = 1.0\ndelta = 1e-5\nn_public = 1000'
    >>> _ = Path("site.toml").write_text(text)
    >>> Site("site.toml").personal_folder.name
    'personal'
    """

    def __init__(self, file: str | Path, key: EllipticCurvePrivateKey | None = None) -> None:
        self.file = SiteFile.read(file)
        self._key = key

    def reply(self, request: Request) -> Reply:
        """The reply to a request; it is on disk before it leaves."""
        run, settings = self._terms(request)
        try:
            self.file.check_terms(settings)
        except PrivacyError as error:
            self._note(str(error))
            return self._reply(request, declined="these are not the terms that it agreed to")
        steps = {"join": self._join, "sums": self._masked_sums, "train": self._train, "finish": self._finish}
        with SiteState.opened(self._folder, run) as state:
            known = state.replied(request)
            if known is not None:
                return known
            try:
                reply = steps[request.step](request, settings, state)
            except PrivacyError as error:
                # A fixed text: the coordinator must not learn how much of a budget is left.
                self._note(str(error))
                return self._reply(request, declined="its budget does not allow this")
            state.keep(request, reply)
            return reply

    @property
    def personal_folder(self) -> Path:
        """Where the last run stored the site's own heads."""
        return self._folder / "personal"

    def _join(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        if state.reply is not None:
            raise PrivacyError("This site has joined the run already, on other terms.")
        records = self.file.records(settings)
        plan = self._plan(settings, records)
        size = len(records.train) if plan.privacy is None else plan.privacy.size()
        facts: dict[str, Any] = {"noise": plan.sums_noise, "size": size}
        if settings.secure:
            # Masked sums need every site: one that could not send them must not join.
            self._reference(settings, records.train)
            # The payment comes later, when it is known who takes part.
            state.key_pair = new_key()
            return self._reply(request, facts={**facts, "key": public_key(state.key_pair)})
        # A step number after all training steps, so that seeded randomness is not used twice.
        step = 0 if plan.training is None else plan.training.steps
        sums, terms = self._noisy_sums(request, settings, state, records, plan.events, plan.sums_noise, step)
        return self._reply(
            request, facts={**facts, **self._paid(request, settings, terms)}, tensors={"sums": sums.to_array()}
        )

    def _masked_sums(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        records = self.file.records(settings)
        plan, keys, total = self._plan(settings, records), request.facts.get("keys", []), _number(request, "noise")
        if not state.key_pair or state.identity:
            raise PrivacyError("This site was not asked to join, or has already replied to other sites' keys.")
        # Checked before paying: with wrong keys there is no reply.
        check_keys(state.key_pair, keys)
        if len(keys) > settings.max_sites:
            # Invented sites would add no noise.
            raise PrivacyError(f"The request lists {len(keys)} sites; the terms allow {settings.max_sites}.")
        if not total >= plan.sums_noise:
            raise PrivacyError("The noise of all sites together would be less than this site's budget needs.")
        own = noise_of_each(total, len(keys), settings.colluding)
        events = () if plan.privacy is None else (Gaussian(total),)
        sums, terms = self._noisy_sums(request, settings, state, records, events, own, 0)
        words = masked(sums.integers, state.key_pair, keys, str(request.facts["run"]))
        return self._reply(request, facts=self._paid(request, settings, terms), tensors={"sums": words})

    def _paid(self, request: Request, settings: FederationSettings, terms: dict[str, Any] | None) -> dict[str, Any]:
        """The terms of the payment, with the site's receipt if it has a key."""
        if terms is None or self._key is None:
            return {"terms": terms}
        return {"terms": terms, "receipt": sign_receipt(terms, settings, str(request.facts["run"]), self._key)}

    def _noisy_sums(
        self,
        request: Request,
        settings: FederationSettings,
        state: SiteState,
        records: SiteRecords,
        events: tuple[Event, ...],
        noise: float,
        step: int,
    ) -> tuple[ExactSums, dict[str, Any] | None]:
        """Pay for `events`, then the noisy sums and the terms of the payment; a simulation has no terms."""
        train = records.train
        reference, wanted = self._reference(settings, train), requested_sums(settings)
        sums = exact_query(train.X, train.y, self._subjects(train), len(settings.classes), reference, wanted)
        with self._ledger() as ledger:
            charge = None if ledger is None else self._charge(ledger, events, request)
            # A simulation may have no noise at all.
            sent = noisy(sums, noise, insecure_seed=self.file.insecure_seed, step=step) if noise else sums
            state.identity = "test"
            if ledger is None or charge is None:
                return sent, None
            ledger.finish(charge, fingerprint({}, torch.from_numpy(sent.to_array())), "sums")
            looked = ledger.looks() > 0
        state.identity = charge.identity
        paid = tuple(events_to_json(charge.events))
        dp = DPClaim(charge.epsilon, charge.delta, self.file.relation, paid, charge.tip)  # type: ignore[arg-type]
        outside = (*NOT_COVERED, LOOKED) if looked else NOT_COVERED
        return sent, paid_terms(PrivacyClaim("dp", outside, unit=self.file.unit, dp=dp))  # type: ignore[arg-type]

    def _train(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        records = self.file.records(settings)
        plan, train = self._plan(settings, records), records.train
        training = plan.training
        if training is None or not state.identity:
            raise ConfigError("A site trains only in mode 'decoder', and only after it has joined.")
        network = initial_network(settings)
        _load(network.decoder, request.tensors, "decoder/")
        if state.encoder:
            _load(network.encoder, state.encoder, "")
        if (state.identity == "test") != (self.file.insecure_seed is not None):
            raise PrivacyError(
                "`insecure_seed` was added or removed since this site joined: a run is either paid for or a test."
            )
        means, length = request.tensors.get("means"), _number(request, "length")
        # With too few rows only the sites that have the missing class would fail, which would reveal them.
        if means is None or means.shape != (len(settings.classes), settings.dim):
            raise FormatError("A request to train needs one mean for each class.")
        whitener = Whitener(self._reference(settings, train), means.astype(np.float64), length)
        rows = with_labels(whitener.forward(train.X, train.y), train.y[:, None], [len(settings.classes)])
        with self._ledger() as ledger:
            part = PlanSteps(state.used, state.used + plan.steps_per_round, None)
            if ledger is not None and isinstance(training, SGDPlan):
                part = PaidPlan.reopen(training, ledger, state.identity).next(plan.steps_per_round)
            run = PrivateRun(
                network,
                rows,
                CVAELoss(settings.beta),
                training,
                ledger,
                self.file.holding,
                subject=self._subjects(train),
                learning_rate=settings.learning_rate,
                insecure_seed=self.file.insecure_seed,
                part=part,
            )
            run.run()
        state.used = part.stop
        state.encoder = {name: value.detach().numpy().copy() for name, value in network.encoder.state_dict().items()}
        tensors = {f"decoder/{name}": value for name, value in decoder_tensors(network).items()}
        return self._reply(request, tensors=tensors)

    def _finish(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        release = Release(parse_manifest(str(request.facts.get("manifest")).encode()), dict(request.tensors))
        manifest = release.manifest
        # With other classes, success or failure would reveal which of them this site has.
        if not state.identity or (manifest.class_names, manifest.embedding.dim) != (settings.classes, settings.dim):
            raise FormatError("The result must be that of a run this site has joined, with its classes and features.")
        self._check_result(release, settings, state)
        # Bound before it is in its place: a second result of one run replaces nothing.
        replace(release, bind=lambda result: self._bind(state, result)).save(self._folder / "global", overwrite=True)
        # Imported late: it brings scikit-learn, which takes seconds, and each request may have a process of its own.
        from locum.federated.personal import fit_personal

        personal = fit_personal(release, self.file.records(settings), balanced=settings.balanced, seed=settings.seed)
        personal.save(self.personal_folder)
        return self._reply(request)

    def _bind(self, state: SiteState, result: str) -> None:
        """Note in the ledger which result the run had; there is one."""
        with self._ledger() as ledger:
            if ledger is not None:
                charge = self._paid_charge(ledger, state.identity)
                if ledger.releases(charge) not in ((), (result,)):
                    raise PrivacyError("This site has already got another result of this run.")
                ledger.bind(charge, result)

    def _check_result(self, release: Release, settings: FederationSettings, state: SiteState) -> None:
        """Refuse to vouch for a result whose claim does not follow from what was paid, this site's part included."""
        with self._ledger() as ledger:
            if ledger is None:
                if release.claim.dp is not None:
                    raise PrivacyError("The result of a test claims a guarantee.")
                return
            tip = self._paid_charge(ledger, state.identity).tip
        check_run_claim(release, settings)
        if tip not in {site["ledger"] for site in release.manifest.settings["sites"]}:
            raise PrivacyError("The result does not list this site, which has paid for it.")

    def _paid_charge(self, ledger: Ledger, identity: str) -> Charge:
        for charge in ledger.holding(self.file.holding).charges:
            if charge.identity == identity:
                return charge
        raise PrivacyError("The site's ledger does not have the charge of this run.")

    def _charge(self, ledger: Ledger, events: tuple[Event, ...], request: Request) -> Charge:
        """Pay for the whole run, once, even if an earlier process was killed right after paying."""
        purpose = f"federation {request.facts['run']}"
        for charge in ledger.holding(self.file.holding).charges:
            if charge.purpose == purpose and charge.events == events and not ledger.results(charge):
                return charge
        budget = self.file.privacy()
        assert budget is not None
        return ledger.charge(self.file.holding, events, delta=budget.delta, purpose=purpose, within=budget.epsilon)

    def _plan(self, settings: FederationSettings, records: SiteRecords) -> SitePlan:
        return plan_site(settings, self.file.privacy(), len(records.train))

    def _terms(self, request: Request) -> tuple[str, FederationSettings]:
        run, settings = request.facts.get("run"), request.facts.get("settings")
        named = isinstance(run, str) and 0 < len(run) <= 100 and run.isprintable()
        if not named or not isinstance(settings, dict):
            raise FormatError("A request must name its run and the settings of the federation.")
        return str(run), FederationSettings.from_dict(settings)

    @property
    def _folder(self) -> Path:
        return self.file.folder / STATE_FOLDER / "federation"

    @contextmanager
    def _ledger(self) -> Iterator[Ledger | None]:
        budget = self.file.privacy()
        if self.file.insecure_seed is not None or budget is None:
            yield None
            return
        with Ledger(self.file.ledger_file) as ledger:
            ledger.open_for(budget, self.file.holding)
            yield ledger

    def _reference(self, settings: FederationSettings, train: EmbeddingSet) -> Reference:
        return agreed_reference(settings, self.file.reference_file(train.info), train.info)

    def _subjects(self, data: EmbeddingSet) -> npt.NDArray[np.int64] | None:
        if self.file.unit != "subject":
            return None
        return subjects(data.subject)

    def _reply(self, request: Request, declined: str = "", **what: Any) -> Reply:
        return Reply(request.step, request.round, request.nonce, declined, **what)

    def _note(self, text: str) -> None:
        """Append to the site's own log, which stays there."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._folder / "notes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as f:
            f.write(text + "\n")


def _number(request: Request, name: str) -> float:
    value = request.facts.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise FormatError(f"A request to {request.step} must give `{name}`, a number; got {str(value)[:80]!r}.")
    return float(value)


def _load(module: torch.nn.Module, tensors: Any, prefix: str) -> None:
    given = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    wanted = module.state_dict()
    fits = given.keys() == wanted.keys() and all(tuple(given[k].shape) == tuple(wanted[k].shape) for k in wanted)
    if not fits or not all(np.isfinite(v).all() for v in given.values()):
        raise FormatError("The weights in the request do not fit the network that the settings describe.")
    module.load_state_dict({k: torch.from_numpy(np.array(v, dtype=np.float32)) for k, v in given.items()})
