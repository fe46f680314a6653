"""A site of a federation: it answers questions with what it has paid for, and keeps the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from locum.accounting import Charge, Event, Gaussian, Ledger, PaidPlan, events_to_json
from locum.data import load_reference
from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated.personal import fit_personal
from locum.federated.plans import SitePlan, decoder_tensors, initial_network, plan_site, sums_asked
from locum.federated.protocol import Reply, Request
from locum.federated.secure import check_keys, masked, new_key, noise_of_each, public_key
from locum.federated.settings import FederationSettings
from locum.federated.site_file import SiteFile, SiteRecords
from locum.federated.state import SiteState
from locum.federated.terms import paid_terms
from locum.generate import with_labels
from locum.generate.private import Whitener, query_sums, subjects
from locum.io import STATE_FOLDER
from locum.mechanisms import SecureRandom
from locum.release import Release, parse_manifest
from locum.train import CVAELoss, fingerprint
from locum.train.dp import PrivateRun
from locum.types import DPClaim, EmbeddingSet


class Site:
    """One hospital, registry or bank, as its `site.toml` describes it.

    What it answers was paid for on its own ledger, as a whole and beforehand: noisy sums, then a decoder after each
    round of DP-SGD, on the joint gradient of encoder and decoder. Its encoder, its heads, its lambda and every count
    stay in its folder. All that it remembers is in files, so that each question may be answered by a new process; a
    question that comes again gets the same answer. Once the paid steps are used up, it declines.

    A site trusts that its settings are public and that the questions come from the coordinator: whoever else asks
    gets nothing that is not paid for. With masked sums it also trusts that the sites of the list are what they seem.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = SiteFile.read(file)

    def reply(self, request: Request) -> Reply:
        """What this site says to a question; the answer is on its disk before it leaves."""
        run, settings = self._terms(request)
        try:
            self.file.check_terms(settings)
        except PrivacyError as error:
            self._note(str(error))
            return self._reply(request, declined="these are not the terms that it agreed to")
        replies = {"join": self._join, "sums": self._masked_sums, "train": self._train, "finish": self._finish}
        with SiteState.opened(self._folder, run) as state:
            known = state.replied(request)
            if known is not None:
                return known
            try:
                reply = replies[request.step](request, settings, state)
            except PrivacyError as error:
                # In the words of the contract alone: what is left of a budget is nobody's business.
                self._note(str(error))
                return self._reply(request, declined="its budget does not allow this")
            state.keep(request, reply)
            return reply

    @property
    def personal_folder(self) -> Path:
        """Where the last run has left the site's own heads."""
        return self._folder / "personal"

    def _join(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        if state.reply is not None:
            raise PrivacyError("This site has joined the run already, on other terms.")
        records = self.file.records(settings)
        plan = self._plan(settings, records)
        size = len(records.train) if plan.privacy is None else plan.privacy.size()
        facts: dict[str, Any] = {"noise": plan.sums_noise, "size": size}
        if settings.secure:
            # Paid for once it is known who takes part.
            state.key_pair = new_key()
            return self._reply(request, facts={**facts, "key": public_key(state.key_pair)})
        # Coins beyond those of all steps: test coins are not used twice.
        step = 0 if plan.training is None else plan.training.steps
        noisy, terms = self._noisy_sums(request, settings, state, records, plan.events, plan.sums_noise, step)
        return self._reply(request, facts={**facts, "terms": terms}, tensors={"sums": noisy})

    def _masked_sums(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        records = self.file.records(settings)
        plan, keys, total = self._plan(settings, records), request.facts.get("keys", []), _number(request, "noise")
        if not state.key_pair or state.identity:
            raise PrivacyError("This site was not asked to join, or has answered for other sites already.")
        # What cannot be answered is not paid for.
        check_keys(state.key_pair, keys)
        if len(keys) > settings.max_sites:
            # Invented sites would add no noise.
            raise PrivacyError(f"{len(keys)} sites are more than the {settings.max_sites} that were agreed on.")
        if not total >= plan.sums_noise:
            raise PrivacyError("The noise of all sites together would be less than this site's budget needs.")
        own = noise_of_each(total, len(keys), settings.colluding)
        events = () if plan.privacy is None else (Gaussian(total),)
        noisy, terms = self._noisy_sums(request, settings, state, records, events, own, 0)
        words = masked(noisy, state.key_pair, keys, str(request.facts["run"]))
        return self._reply(request, facts={"terms": terms}, tensors={"sums": words})

    def _noisy_sums(
        self,
        request: Request,
        settings: FederationSettings,
        state: SiteState,
        records: SiteRecords,
        events: tuple[Event, ...],
        noise: float,
        step: int,
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any] | None]:
        """The sums with noise, paid for by `events` first; and the terms of that payment, none in a rehearsal."""
        reference, train = load_reference(settings.reference, settings.dim), records.train
        sums = query_sums(
            train.X, train.y, self._subjects(train), len(settings.classes), reference, sums_asked(settings)
        )
        with self._ledger() as ledger:
            charge = None if ledger is None else self._charge(ledger, events, request)
            rng = SecureRandom(
                np.ones(1, dtype=np.int64), 1.0, len(sums), noise, insecure_seed=self.file.insecure_seed
            )
            noisy = sums + rng.draw(step).noise.numpy()
            state.identity = "test"
            if ledger is None or charge is None:
                return noisy, None
            ledger.finish(charge, fingerprint({}, torch.from_numpy(noisy)), "sums")
        state.identity = charge.identity
        told = tuple(events_to_json(charge.events))
        dp = DPClaim(charge.epsilon, charge.delta, self.file.relation, told, charge.tip)
        return noisy, paid_terms(dp, self.file.unit)

    def _train(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        records = self.file.records(settings)
        plan, train = self._plan(settings, records), records.train
        if plan.training is None or not state.identity:
            raise ConfigError("A site is asked to train in mode 'decoder' only, and after it has joined.")
        network = initial_network(settings)
        _load(network.decoder, request.tensors, "decoder/")
        if state.encoder:
            _load(network.encoder, state.encoder, "")
        if (state.identity == "test") != (self.file.insecure_seed is not None):
            raise PrivacyError("`insecure_seed` came or went since this site joined: a run is paid for, or a test.")
        means, length = request.tensors.get("means"), _number(request, "length")
        # Too few rows would fail for those alone who have such a class.
        if means is None or means.shape != (len(settings.classes), settings.dim):
            raise FormatError("Training needs one mean for each class.")
        whitener = Whitener(load_reference(settings.reference, settings.dim), means.astype(np.float64), length)
        rows = with_labels(whitener.forward(train.X, train.y), train.y[:, None], [len(settings.classes)])
        with self._ledger() as ledger:
            paid = PaidPlan(plan.training, used=state.used)
            if ledger is not None:
                paid = PaidPlan.reopen(plan.training, ledger, state.identity)
            part = paid.next(plan.steps_a_round)
            run = PrivateRun(
                network,
                rows,
                CVAELoss(settings.beta),
                plan.training,
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
        told = release.manifest
        # Of other classes it would fail, or not, by which of them this site has.
        if not state.identity or (told.class_names, told.embedding.dim) != (settings.classes, settings.dim):
            raise FormatError("A result must be of a run that this site has joined, with its classes and features.")
        release.save(self._folder / "global", overwrite=True)
        personal = fit_personal(release, self.file.records(settings), balanced=settings.balanced, seed=settings.seed)
        personal.save(self.personal_folder)
        return self._reply(request)

    def _charge(self, ledger: Ledger, events: tuple[Event, ...], request: Request) -> Charge:
        """Pay for the whole run; once, even if this process was killed right after it had paid."""
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
            raise FormatError("A question must name its run and the settings of the federation.")
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

    def _subjects(self, data: EmbeddingSet) -> npt.NDArray[np.int64] | None:
        if self.file.unit != "subject":
            return None
        return subjects(data.subject)

    def _reply(self, request: Request, declined: str = "", **what: Any) -> Reply:
        return Reply(request.step, request.round, request.nonce, declined, **what)

    def _note(self, text: str) -> None:
        """For the site's own eyes."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._folder / "notes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as f:
            f.write(text + "\n")


def _number(request: Request, name: str) -> float:
    value = request.facts.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        raise FormatError(f"A question to {request.step} must give `{name}`, a number.")
    return float(value)


def _load(module: torch.nn.Module, tensors: Any, prefix: str) -> None:
    given = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    wanted = module.state_dict()
    fits = given.keys() == wanted.keys() and all(tuple(given[k].shape) == tuple(wanted[k].shape) for k in wanted)
    if not fits or not all(np.isfinite(v).all() for v in given.values()):
        raise FormatError("The weights that came do not fit the network that the settings describe.")
    module.load_state_dict({k: torch.from_numpy(np.array(v, dtype=np.float32)) for k, v in given.items()})
