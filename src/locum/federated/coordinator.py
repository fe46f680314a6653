"""The coordinator: sends requests, checks replies, averages them, and keeps state so that a run can resume."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from locum.errors import FormatError, LocumError
from locum.federated.aggregation import (
    average,
    decoder_tensors,
    initial_network,
    max_move,
    too_large,
    why_refused,
)
from locum.federated.masked_run import MaskedRun
from locum.federated.protocol import Channel, NoReply, Reply, Request, Step, Tensors
from locum.federated.queries import HeadProgram, StatisticsProgram
from locum.federated.receipts import is_receipt
from locum.federated.result import TOGETHER, Learned, build_result, pooled, site_counts
from locum.federated.settings import FederationSettings
from locum.federated.site_keys import read_public_key
from locum.federated.state import RunState, only_coordinator
from locum.federated.terms import (
    Terms,
    agreed_reference,
    paid_terms,
    pays_terms,
    plan_site,
    read_terms,
    requested_sums,
    steps_per_round,
)
from locum.generate.private import Whitener
from locum.release import Release

OnEvent = Callable[[dict[str, Any]], None]
_PREFIX = "decoder/"


class Coordinator:
    """Runs one federation over a channel; the release is written to `out/release`.

    It sees only what sites have paid for, and keeps its state in `out`: a run that was killed resumes after its last
    complete round. A reply that cannot be used is left out and reported. A round with fewer than `min_sites` usable
    replies stops the run, and the same command resumes it once the sites are back. Only sites that joined at the
    start are asked in later rounds.

    Parameters
    ----------
    settings
        The public terms.
    out
        Folder for release and state.
    timeout
        Seconds to wait for the replies to a request.
    keys
        The public key of each site by name: a site whose receipt is missing or signed with another key is left out.
        None: receipts are neither needed nor checked.
    reference
        File of public statistics, if the terms name one by its hash.
    on_event
        Called with one plain dict per event: round, sites, refusals, and epsilon per site. It holds nothing private.

    Examples
    --------
    >>> from locum.federated import Coordinator, FederationSettings, LocalChannel
    >>> settings = FederationSettings(("benign", "malignant"), dim=30, mode="sums")
    >>> channel = LocalChannel({"site-a": "a/site.toml", "site-b": "b/site.toml"})
    >>> Coordinator(settings, "out").run(channel)  # doctest: +SKIP
    PosixPath('out/release')
    """

    def __init__(
        self,
        settings: FederationSettings,
        out: str | Path,
        *,
        timeout: float = 3600.0,
        keys: Mapping[str, EllipticCurvePublicKey] | None = None,
        reference: str | Path | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.settings, self.out, self._timeout, self._keys = settings, Path(out), timeout, keys
        if settings.masked and settings.sites:
            # Sites trust the keys in the terms, so the coordinator does too.
            self._keys = {name: read_public_key(name, text) for name, text in settings.sites.items()}
        self._reference = reference
        self._emit = on_event or (lambda event: None)
        self._last_refusal = ""

    def run(self, channel: Channel) -> Path:
        """Run all remaining rounds, and return the folder of the release."""
        # Before any site pays.
        agreed_reference(self.settings, self._reference)
        with only_coordinator(self.out):
            return self._run(channel, RunState.open(self.out, self.settings))

    def _run(self, channel: Channel, state: RunState) -> Path:
        if not state.terms:
            if len(channel.sites()) < self.settings.least_sites:
                raise LocumError(
                    f"{len(channel.sites())} sites are connected, {self.settings.least_sites} are needed: none was "
                    "asked. Start the run again when more are connected."
                )
            if not self.settings.masked:
                self._join(channel, state)
        program, gone = self._run_masked(channel, state) if self.settings.masked else (None, set())
        if self.settings.mode == "decoder":
            whitener = pooled(self.settings, state.terms, state.sums, self._reference).whitener
            weights = site_counts(self.settings, state.sums) if self.settings.weights == "counts" else {}
            for number in range(state.round + 1, self.settings.rounds + 1):
                self._train(channel, state, number, whitener, weights)
        learned = Learned(state.terms, state.sums, state.decoder, program)
        release = build_result(self.settings, state.run, learned, self._reference)
        folder = release.save(self.out / "release", overwrite=True)
        self._finish(channel, state, release, gone)
        self._emit({"event": "done", "release": str(folder), "claim": release.claim.title})
        return folder

    def _run_masked(self, channel: Channel, state: RunState) -> tuple[HeadProgram | StatisticsProgram, set[str]]:
        """The program that has taken all totals, and the sites that did not answer to the end."""
        known = bool(state.terms)

        def read(replies: Mapping[str, Reply]) -> dict[str, Terms]:
            found = self._read(replies, state.run)
            self._emit({"event": "joined", "sites": sorted(found), **_spent(found, 0, 0)})
            return found

        run = MaskedRun(
            self.settings,
            state,
            ask=partial(self._ask, channel, state),
            connected=channel.sites,
            read=read,
            refuse=self._refuse,
            emit=self._emit,
        )
        if known:
            self._emit({"event": "resumed", "sum": state.round})
        program = run.run()
        if self.settings.mode == "sums":
            state.sums = {TOGETHER: state.transcript.astype(np.float64)}
        return program, run.gone

    def _join(self, channel: Channel, state: RunState) -> None:
        settings = self.settings
        size = requested_sums(settings).size(len(settings.classes), settings.dim)
        replies = self._ask(channel, state, channel.sites(), "join", 0, {}, {}, {"sums": (size,)})
        found = self._read(replies, state.run)
        for name, terms in list(found.items()):
            if too_large(replies[name].tensors["sums"], terms.size, terms.noise):
                self._refuse(name, "join", 0, "sums that are too large for the size it declares")
                del found[name]
        self._enough(found, "join", 0)
        state.terms = found
        state.sums = {name: replies[name].tensors["sums"].astype(np.float64) for name in found}
        if settings.mode == "decoder":
            state.decoder = decoder_tensors(initial_network(settings))
        state.save()
        self._emit({"event": "joined", "sites": sorted(found), **_spent(state.terms, 0, settings.rounds)})

    def _read(self, replies: Mapping[str, Reply], run: str) -> dict[str, Terms]:
        """The sites whose terms can be read and agree with those of most sites."""
        found: dict[str, Terms] = {}
        for name, reply in replies.items():
            try:
                found[name] = read_terms(reply.facts)
            except FormatError as error:
                self._refuse(name, reply.step, 0, str(error))
        # One claim needs one kind of terms. A site that differs must not stop the others, which have already paid.
        kinds = {name: (not t.is_test, t.claim.unit, t.claim.dp and t.claim.dp.relation) for name, t in found.items()}
        votes = Counter(kinds.values())
        common = max(votes, key=lambda kind: (votes[kind], kind[0]), default=None)
        tips = Counter(t.claim.dp.ledger for t in found.values() if t.claim.dp is not None)
        for name, terms in list(found.items()):
            reason = terms.why_excluded(self.settings)
            if self.settings.masked and not terms.is_test and not _planned(terms, self.settings):
                reason = "it paid for something other than the terms ask for"
            elif kinds[name] != common:
                reason = "its randomness (secure or seeded), unit or relation differs from that of most sites"
            elif not reason and terms.claim.dp is not None and tips[terms.claim.dp.ledger] > 1:
                reason = "it names the same ledger entry as another site"
            elif not reason and not self._signed(name, terms, run):
                reason = "it sent no receipt signed with its key"
            if reason:
                self._refuse(name, replies[name].step, 0, reason)
                del found[name]
        return found

    def _signed(self, name: str, terms: Terms, run: str) -> bool:
        if self._keys is None or terms.claim.dp is None:
            return True
        key = self._keys.get(name)
        paid = paid_terms(terms.claim)
        return key is not None and is_receipt(terms.receipt, paid, self.settings, run, key)

    def _train(
        self, channel: Channel, state: RunState, number: int, whitener: Whitener, weights: Mapping[str, float]
    ) -> None:
        """One round; an empty `weights` weights all sites equally."""
        settings, started = self.settings, time.monotonic()
        tensors = {_PREFIX + k: v for k, v in state.decoder.items()}
        wanted = {k: tuple(v.shape) for k, v in tensors.items()}
        sent = tensors | {"means": whitener.means.astype(np.float32)}
        facts = {"length": whitener.length}
        limits = {n: max_move(settings, steps_per_round(settings, t.size)) for n, t in state.terms.items()}
        replies = self._ask(channel, state, list(state.terms), "train", number, facts, sent, wanted, limits)
        self._enough(replies, "train", number)
        names = sorted(replies)
        updates = [{k.removeprefix(_PREFIX): v for k, v in replies[n].tensors.items()} for n in names]
        state.decoder = average(updates, [weights.get(n, 1.0) for n in names], settings.average, settings.trim)
        state.round = number
        state.save()
        self._emit(
            {
                "event": "round",
                "round": number,
                "of": settings.rounds,
                "sites": names,
                "seconds": round(time.monotonic() - started, 2),
                **_spent(state.terms, number, settings.rounds),
            }
        )

    def _finish(self, channel: Channel, state: RunState, release: Release, gone: set[str]) -> None:
        """Send the result to every site that is not gone; one that is offline can get the release as a file."""
        facts = {"manifest": release.manifest.dumps()}
        names = [name for name in state.terms if name not in gone]
        self._ask(channel, state, names, "finish", 0, facts, dict(release.tensors), {})

    def _ask(
        self,
        channel: Channel,
        state: RunState,
        names: list[str],
        step: Step,
        number: int,
        facts: Mapping[str, Any],
        tensors: Tensors,
        wanted: Mapping[str, tuple[int, ...]] | None,
        limits: Mapping[str, float] | None = None,
        *,
        own: Mapping[str, Tensors] | None = None,
        enough: int | None = None,
    ) -> dict[str, Reply]:
        """The usable replies; each of the others is reported with its reason.

        `own` are tensors for single sites. Once `enough` have replied, the others get a little more time.
        """
        common = {**facts, "run": state.run, "settings": self.settings.to_dict()}
        requests = {
            n: Request(step, number, secrets.token_hex(16), common, (own or {}).get(n, tensors)) for n in names
        }
        replies = channel.ask(requests, timeout=self._timeout, enough=enough) if requests else {}
        usable: dict[str, Reply] = {}
        for name, reply in replies.items():
            if name not in requests:
                self._refuse(name, step, number, "a reply from a site that was not asked")
            elif isinstance(reply, NoReply):
                self._refuse(name, step, number, reply.reason)
            elif reply.declined:
                self._refuse(name, step, number, f"declined: {reply.declined}")
            elif reason := why_refused(requests[name], reply, wanted, (limits or {}).get(name)):
                self._refuse(name, step, number, reason)
            else:
                usable[name] = reply
        return usable

    def _refuse(self, name: str, step: str, number: int, reason: str) -> None:
        self._last_refusal = f" (last refusal: {name}, {reason[:300]})"
        self._emit({"event": "refused", "step": step, "round": number, "site": name, "reason": reason[:300]})

    def _enough(self, replies: Mapping[str, Any], step: str, number: int) -> None:
        if len(replies) < self.settings.least_sites:
            where = "when sites joined" if step == "join" else f"in round {number}"
            raise LocumError(
                f"{len(replies)} sites sent usable replies {where}, {self.settings.least_sites} are needed"
                f"{self._last_refusal}: the run stopped, and nothing was averaged. Start it again when more are "
                "back: it resumes here."
            )


def _planned(terms: Terms, settings: FederationSettings) -> bool:
    """Whether a site paid for exactly what the terms of masked sums ask for, and adds that noise."""
    noise = plan_site(settings, settings.privacy).sums_noise
    return pays_terms(terms.claim, settings) and terms.noise == noise


def _spent(found: Mapping[str, Terms], number: int, rounds: int) -> dict[str, Any]:
    """The epsilon that each site has spent so far, from its own terms; nothing in a simulation."""
    if any(terms.is_test for terms in found.values()):
        return {}
    return {"epsilon": {name: terms.epsilon_after(number, rounds) for name, terms in found.items()}}
