"""The coordinator: asks, checks, averages, and remembers, so that a run goes on after it was killed."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import FormatError, LocumError
from locum.federated.aggregation import average, farthest, too_large, why_refused
from locum.federated.plans import decoder_tensors, initial_network, steps_a_round, sums_asked
from locum.federated.protocol import Channel, NoReply, Reply, Request, Step, Tensors
from locum.federated.result import TOGETHER, build_result, pooled, site_counts
from locum.federated.secure import unmasked
from locum.federated.settings import FederationSettings
from locum.federated.state import RunState, alone_in
from locum.federated.terms import Terms, read_terms
from locum.generate.private import Whitener
from locum.release import Release

Tell = Callable[[dict[str, Any]], None]
_PREFIX = "decoder/"


class Coordinator:
    """Runs one federation over a channel; the release ends up in `out/release`.

    It sees what sites have paid for and nothing else, and keeps all of it in `out`: a run that was killed goes on
    from its last whole round. An answer that is not usable is refused, told and left out; a round with fewer than
    `min_sites` usable ones stops the run, and the same command goes on once the sites are back. Only sites that
    joined at the start are asked later on.

    `tell` gets one plain dict an event: round, sites, refusals, and epsilon by site. It holds nothing private.
    """

    def __init__(
        self, settings: FederationSettings, out: str | Path, *, timeout: float = 3600.0, tell: Tell | None = None
    ) -> None:
        self.settings, self.out, self._timeout = settings, Path(out), timeout
        self._tell = tell or (lambda event: None)
        self._refused = ""

    def run(self, channel: Channel) -> Path:
        """Ask until it is done; the folder of the release."""
        with alone_in(self.out):
            return self._run(channel, RunState.open(self.out, self.settings))

    def _run(self, channel: Channel, state: RunState) -> Path:
        if not state.terms:
            if len(channel.sites()) < self.settings.least_sites:
                raise LocumError(
                    f"{len(channel.sites())} sites are there, {self.settings.least_sites} are needed: none was asked."
                )
            self._join_masked(channel, state) if self.settings.secure else self._join(channel, state)
        if self.settings.mode == "decoder":
            whitener = pooled(self.settings, state.terms, state.sums).whitener
            weights = site_counts(self.settings, state.sums) if self.settings.weights == "counts" else {}
            for number in range(state.round + 1, self.settings.rounds + 1):
                self._train(channel, state, number, whitener, weights)
        release = build_result(self.settings, state.terms, state.sums, state.decoder)
        folder = release.save(self.out / "release", overwrite=True)
        self._finish(channel, state, release)
        self._tell({"event": "done", "release": str(folder), "claim": release.claim.title})
        return folder

    def _join(self, channel: Channel, state: RunState) -> None:
        settings = self.settings
        size = sums_asked(settings).size(len(settings.classes), settings.dim)
        replies = self._ask(channel, state, channel.sites(), "join", 0, {}, {}, {"sums": (size,)})
        found = self._read(replies, {})
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
        self._tell({"event": "joined", "sites": sorted(found), **_spent(state, 0, settings.rounds)})

    def _join_masked(self, channel: Channel, state: RunState) -> None:
        """Keys first; then sums that can be read together alone, so that every one of them is needed."""
        settings = self.settings
        if not state.joined:
            replies = self._ask(channel, state, channel.sites(), "join", 0, {}, {}, {})
            state.joined = {name: dict(a.facts) for name, a in replies.items() if _has_key(a.facts)}
            for name in replies.keys() - state.joined.keys():
                self._refuse(name, "join", 0, "its key or its terms cannot be read")
            self._enough(state.joined, "join", 0)
            state.save()
        joined = state.joined
        keys = sorted(facts["key"] for facts in joined.values())
        asked = {"keys": keys, "noise": max(float(facts["noise"]) for facts in joined.values())}
        size = sums_asked(settings).size(len(settings.classes), settings.dim)
        replies = self._ask(channel, state, list(joined), "sums", 0, asked, {}, {"sums": (size,)})
        found = self._read(replies, joined)
        if missing := sorted(set(joined) - set(found)):
            raise LocumError(
                f"Masked sums can be read only together, and {len(missing)} of {len(joined)} are missing "
                f"({missing[0]}): start the run again when they are back. It costs nothing more: the others give the "
                "same answers."
            )
        state.terms = found
        state.sums = {TOGETHER: unmasked({name: replies[name].tensors["sums"] for name in found})}
        state.save()
        self._tell({"event": "joined", "sites": sorted(found), **_spent(state, 0, settings.rounds)})

    def _read(self, replies: Mapping[str, Reply], joined: Mapping[str, Mapping[str, Any]]) -> dict[str, Terms]:
        """Whose terms can be read; all of one kind."""
        found: dict[str, Terms] = {}
        for name, reply in replies.items():
            try:
                found[name] = read_terms({**joined.get(name, {}), **reply.facts})
            except FormatError as error:
                self._refuse(name, reply.step, 0, str(error))
        # One promise needs one kind of terms; a site that differs must not stop the others, who have paid by now.
        kinds = {name: (not t.is_test, t.claim.unit, t.claim.dp and t.claim.dp.relation) for name, t in found.items()}
        votes = Counter(kinds.values())
        common = max(votes, key=lambda kind: (votes[kind], kind[0]), default=None)
        heads = Counter(t.claim.dp.ledger for t in found.values() if t.claim.dp is not None)
        for name, terms in list(found.items()):
            reason = terms.beyond(self.settings)
            if kinds[name] != common:
                reason = "its coins, its unit or its relation are not those of most sites"
            elif not reason and terms.claim.dp is not None and heads[terms.claim.dp.ledger] > 1:
                reason = "it names an entry of a ledger that another site names too"
            if reason:
                self._refuse(name, replies[name].step, 0, reason)
                del found[name]
        return found

    def _train(
        self, channel: Channel, state: RunState, number: int, whitener: Whitener, weights: Mapping[str, float]
    ) -> None:
        """One round; sites weigh the same where `weights` is empty."""
        settings, started = self.settings, time.monotonic()
        tensors = {_PREFIX + k: v for k, v in state.decoder.items()}
        wanted = {k: tuple(v.shape) for k, v in tensors.items()}
        sent = tensors | {"means": whitener.means.astype(np.float32)}
        facts = {"length": whitener.length}
        limits = {n: farthest(settings, steps_a_round(settings, t.size)) for n, t in state.terms.items()}
        replies = self._ask(channel, state, list(state.terms), "train", number, facts, sent, wanted, limits)
        self._enough(replies, "train", number)
        names = sorted(replies)
        updates = [{k.removeprefix(_PREFIX): v for k, v in replies[n].tensors.items()} for n in names]
        state.decoder = average(updates, [weights.get(n, 1.0) for n in names], settings.average, settings.trim)
        state.round = number
        state.save()
        told = {"event": "round", "round": number, "of": settings.rounds, "sites": names}
        self._tell(
            {**told, "seconds": round(time.monotonic() - started, 2), **_spent(state, number, settings.rounds)}
        )

    def _finish(self, channel: Channel, state: RunState, release: Release) -> None:
        """Every site gets the result; one that is away can take the release as a file."""
        facts = {"manifest": release.manifest.dumps()}
        self._ask(channel, state, list(state.terms), "finish", 0, facts, dict(release.tensors), {})

    def _ask(
        self,
        channel: Channel,
        state: RunState,
        names: list[str],
        step: Step,
        number: int,
        facts: Mapping[str, Any],
        tensors: Tensors,
        wanted: Mapping[str, tuple[int, ...]],
        limits: Mapping[str, float] | None = None,
    ) -> dict[str, Reply]:
        """The usable answers; each of the others is told with its reason."""
        every = {**facts, "run": state.run, "settings": self.settings.to_dict()}
        requests = {n: Request(step, number, secrets.token_hex(16), every, tensors) for n in names}
        replies = channel.ask(requests, timeout=self._timeout) if requests else {}
        usable: dict[str, Reply] = {}
        for name, reply in replies.items():
            if name not in requests:
                self._refuse(name, step, number, "an answer of somebody who was not asked")
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
        self._refused = f" (the last: {name}, {reason[:300]})"
        self._tell({"event": "refused", "step": step, "round": number, "site": name, "reason": reason[:300]})

    def _enough(self, replies: Mapping[str, Any], step: str, number: int) -> None:
        if len(replies) < self.settings.least_sites:
            where = "when sites joined" if step == "join" else f"in round {number}"
            raise LocumError(
                f"{len(replies)} sites gave usable answers {where}, {self.settings.least_sites} are needed"
                f"{self._refused}: the run stopped, and nothing was averaged. Start it again when they are back: it "
                "goes on from here."
            )


def _has_key(facts: Mapping[str, Any]) -> bool:
    try:
        read_terms({**facts, "terms": None})
        return len(bytes.fromhex(facts["key"])) == 32
    except (FormatError, KeyError, TypeError, ValueError):
        return False


def _spent(state: RunState, number: int, rounds: int) -> dict[str, Any]:
    """What each site has used so far, by its own terms; nothing in a rehearsal."""
    if any(terms.is_test for terms in state.terms.values()):
        return {}
    return {"epsilon": {name: terms.epsilon_after(number, rounds) for name, terms in state.terms.items()}}
