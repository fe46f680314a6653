"""A site of a federation: it replies to requests with what it has paid for, and keeps everything else."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locum.data import Reference
from locum.errors import FormatError, PrivacyError
from locum.federated.masked_site import MaskedSite
from locum.federated.protocol import Reply, Request
from locum.federated.queries import SiteQueries
from locum.federated.settings import FederationSettings
from locum.federated.site_budget import SiteBudget
from locum.federated.site_file import SiteFile, SiteRecords
from locum.federated.site_keys import read_site_key
from locum.federated.state import SiteState
from locum.federated.terms import SitePlan, agreed_reference, plan_site, requested_sums
from locum.federated.verification import check_run_claim
from locum.generate.private import exact_query, subjects
from locum.io import STATE_FOLDER
from locum.mechanisms import noisy
from locum.release import Release, parse_manifest
from locum.types import EmbeddingSet


class Site:
    r"""One hospital, registry or bank, as its `site.toml` describes it.

    Its replies are paid for on its own ledger, all at once and in advance: noisy sums, then one decoder per round of
    DP-SGD on the joint gradient of encoder and decoder. Its encoder, heads, lambda and all counts stay in its
    folder. Its state is in files, so a new process may handle each request; a repeated request gets the same reply.
    When the paid steps are used up, it declines.

    A site trusts that its settings are public; anyone who asks gets nothing that is not paid for. With masked sums it
    also trusts that the keys in its copy of the terms belong to the sites, and that at most so many of them collude
    as the terms say.

    Parameters
    ----------
    file
        Path of its `site.toml`; see `SiteFile`.
    key
        The site's private key, which signs its masks and a receipt of what it paid; None: the one that `site.toml`
        names, if any.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.federated import Site
    >>> text = 'data = "train.npz"\nepsilon = 1.0\ndelta = 1e-6'
    >>> _ = Path("site.toml").write_text(text)
    >>> Site("site.toml").personal_folder.name
    'personal'
    """

    def __init__(self, file: str | Path, key: EllipticCurvePrivateKey | None = None) -> None:
        self.file = SiteFile.read(file)
        self._key = key if key is not None or self.file.key_file is None else read_site_key(self.file.key_file)
        self._budget = SiteBudget(self.file, self._key)
        self._prepared: tuple[str, SiteQueries] | None = None

    def reply(self, request: Request) -> Reply:
        """The reply to a request; it is on disk before it leaves."""
        run, settings = self._terms(request)
        try:
            self.file.check_terms(settings)
        except PrivacyError as error:
            self._note(str(error))
            return self._declined(request, "these are not the terms that it agreed to")
        with SiteState.opened(self._folder, run) as state:
            reply = state.replied(request)
            try:
                if reply is None:
                    reply = self._answer(request, settings, state)
                    state.keep(request, reply)
                if request.step == "sum":
                    self._masked(run, settings, state).note(reply)
            except PrivacyError as error:
                # A fixed text: the coordinator must not learn how much of a budget is left.
                self._note(str(error))
                return self._declined(request, "its budget or the protocol does not allow this")
            return reply

    @property
    def personal_folder(self) -> Path:
        """Where the last run stored the site's own heads."""
        return self._folder / "personal"

    def _answer(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        if request.step == "finish":
            return self._finish(request, settings, state)
        if settings.masked:
            return self._answer_masked(request, settings, state)
        if request.step == "join":
            return self._join(request, settings, state)
        if request.step == "train":
            # Imported late: it needs torch, which takes seconds, and sums do not.
            from locum.federated.decoder_site import train_round

            return train_round(request, settings, state, self.file, self._budget)
        raise FormatError(f"These terms have no step {request.step!r}.")

    def _answer_masked(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        masked = self._masked(str(request.facts["run"]), settings, state)
        if request.step == "sum":
            return masked.sum(request, self._queries(settings))
        if request.step == "join":
            # A site that could not answer must not join.
            self._queries(settings)
        steps: dict[str, Callable[[Request], Reply]] = {
            "join": masked.join,
            "share": masked.share,
            "begin": masked.begin,
            "confirm": masked.confirm,
            "open": masked.open,
        }
        if request.step not in steps:
            raise FormatError(f"These terms have no step {request.step!r}.")
        return steps[request.step](request)

    def _masked(self, run: str, settings: FederationSettings, state: SiteState) -> MaskedSite:
        plan = plan_site(settings, self.file.privacy())
        return MaskedSite(settings, run, self._key, state, self._budget, plan, self.file.insecure_seed)

    def _queries(self, settings: FederationSettings) -> SiteQueries:
        """The site's records, prepared for sums; kept for the next request, and read again if the file changed."""
        mark = f"{settings.hash()} {self.file.data_mark()}"
        if self._prepared is None or self._prepared[0] != mark:
            train = self.file.records(settings).train
            queries = SiteQueries(train, self._subjects(train), settings, self._reference(settings, train))
            self._prepared = mark, queries
        return self._prepared[1]

    def _join(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        """Pay for the whole run, and send noisy sums."""
        if state.reply is not None:
            raise PrivacyError("This site has joined the run already, on other terms.")
        records = self.file.records(settings)
        plan, train, run = self._plan(settings, records), records.train, str(request.facts["run"])
        size = len(train) if plan.privacy is None else plan.privacy.size()
        reference, wanted = self._reference(settings, train), requested_sums(settings)
        sums = exact_query(train.X, train.y, self._subjects(train), len(settings.classes), reference, wanted)
        # A step number after all training steps, so that seeded randomness is not used twice.
        step = 0 if plan.training is None else plan.training.steps
        facts: dict[str, Any] = {"noise": plan.sums_noise, "size": size, "terms": None}
        with self._budget.ledger() as ledger:
            charge = None if ledger is None else self._budget.charge(ledger, plan.events, run)
            # A simulation may have no noise at all.
            sent = sums
            if plan.sums_noise:
                sent = noisy(sums, plan.sums_noise, insecure_seed=self.file.insecure_seed, step=step)
            state.identity = "test"
            if ledger is not None and charge is not None:
                ledger.finish(charge, hashlib.sha256(sent.integers.tobytes()).hexdigest(), "sums")
                state.identity = charge.identity
                facts |= self._budget.terms(ledger, charge, settings, run)
        return Reply(request.step, request.round, request.nonce, "", facts, {"sums": sent.to_array()})

    def _finish(self, request: Request, settings: FederationSettings, state: SiteState) -> Reply:
        release = Release(parse_manifest(str(request.facts.get("manifest")).encode()), dict(request.tensors))
        manifest = release.manifest
        # With other classes, success or failure would reveal which of them this site has.
        if not state.identity or (manifest.class_names, manifest.embedding.dim) != (settings.classes, settings.dim):
            raise FormatError("The result must be that of a run this site has joined, with its classes and features.")
        self._check_result(release, settings, state)
        # Bound before it is in its place: a second result of one run replaces nothing.
        replace(release, bind=lambda result: self._bind(state, result)).save(self._folder / "global", overwrite=True)
        self._personalize(release, settings, state)
        # The run is over: nobody needs these secrets again.
        state.master, state.masks = b"", {}
        return Reply(request.step, request.round, request.nonce)

    def _personalize(self, release: Release, settings: FederationSettings, state: SiteState) -> None:
        """Fit the site's own model. Whether that works depends on its records, so the coordinator must not see it."""
        # Imported late: it brings scikit-learn, which takes seconds, and each request may have a process of its own.
        from locum.federated.personal import fit_personal

        try:
            fit_personal(
                release,
                self.file.records(settings),
                balanced=settings.balanced,
                seed=settings.seed,
                measure=self.file.measure,  # type: ignore[arg-type]
                rule=self.file.rule,  # type: ignore[arg-type]
                unseen=self.file.unseen,  # type: ignore[arg-type]
                clipped=state.clipped,
            ).save(self.personal_folder)
        except Exception as error:  # whatever its kind, it would tell about records
            # A model of an earlier run would be taken for this one's.
            shutil.rmtree(self.personal_folder, ignore_errors=True)
            text = f"The personal model was not made; the release is in {str(self._folder / 'global')!r}. {error}"
            print(f"locum: {text}", file=sys.stderr, flush=True)
            self._note(text)

    def _bind(self, state: SiteState, result: str) -> None:
        """Note in the ledger which result the run had; there is one."""
        with self._budget.ledger() as ledger:
            if ledger is not None:
                charge = self._budget.paid(ledger, state.identity)
                if ledger.releases(charge) not in ((), (result,)):
                    raise PrivacyError("This site has already received another result of this run.")
                ledger.bind(charge, result)

    def _check_result(self, release: Release, settings: FederationSettings, state: SiteState) -> None:
        """Refuse to vouch for a result whose claim does not follow from what was paid, this site's part included."""
        with self._budget.ledger() as ledger:
            if ledger is None:
                if release.claim.dp is not None:
                    raise PrivacyError("The result of a test claims a guarantee.")
                return
            tip = self._budget.paid(ledger, state.identity).tip
        check_run_claim(release, settings)
        if tip not in {site["ledger"] for site in release.manifest.settings["sites"]}:
            raise PrivacyError("The result does not list this site, which has paid for it.")

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

    def _reference(self, settings: FederationSettings, train: EmbeddingSet) -> Reference:
        return agreed_reference(settings, self.file.reference_file(train.info), train.info)

    def _subjects(self, data: EmbeddingSet) -> npt.NDArray[np.int64] | None:
        return subjects(data.subject) if self.file.unit == "subject" else None

    def _declined(self, request: Request, why: str) -> Reply:
        return Reply(request.step, request.round, request.nonce, why)

    def _note(self, text: str) -> None:
        """Append to the site's own log, which stays there."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._folder / "notes.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as f:
            f.write(text + "\n")
