"""The coordinator's side of masked sums: it passes keys and shares on, and opens one total after the other.

The protocol is in docs/explain/masked-sums.md. Everything is on disk before the next message leaves, so a run that
stopped goes on with the same requests; sites then send the same replies, which costs them nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError, LocumError
from locum.federated.mask_keys import blob_size
from locum.federated.masked_site import mask_terms
from locum.federated.masking import MaskedStep, check_announcement
from locum.federated.protocol import Reply, Step, Tensors
from locum.federated.queries import HeadProgram, Query, StatisticsProgram, program_for
from locum.federated.settings import FederationSettings
from locum.federated.state import PendingSum, RunState
from locum.federated.terms import Terms

# Simulations may have no noise, and estimates divide by it.
MIN_NOISE = 1e-6


class Ask(Protocol):
    """Asks sites, and returns the usable replies; see `Coordinator`."""

    def __call__(
        self,
        names: list[str],
        step: Step,
        number: int,
        facts: Mapping[str, Any],
        tensors: Tensors,
        wanted: Mapping[str, tuple[int, ...]] | None,
        *,
        own: Mapping[str, Tensors] | None = None,
        enough: int | None = None,
    ) -> dict[str, Reply]: ...


class MaskedRun:
    """All masked sums of a run.

    Parameters
    ----------
    settings
        The public terms.
    state
        The run so far.
    ask
        Asks sites.
    connected
        The sites that are connected now.
    read
        The terms of those whose replies are in order.
    refuse
        Reports a reply that is not used: site, step, number and reason.
    emit
        Takes one plain dict per event.
    """

    def __init__(
        self,
        settings: FederationSettings,
        state: RunState,
        *,
        ask: Ask,
        connected: Callable[[], list[str]],
        read: Callable[[Mapping[str, Reply]], dict[str, Terms]],
        refuse: Callable[[str, str, int, str], None],
        emit: Callable[[dict[str, Any]], None],
    ) -> None:
        self._settings, self._state, self._ask = settings, state, ask
        self._connected, self._read, self._refuse, self._emit = connected, read, refuse, emit
        self._terms = mask_terms(settings, state.run)
        # For each site that did not answer: the sum from which on it is asked again, and how many it is left out of.
        self._back: dict[str, tuple[int, int]] = {}

    def run(self) -> HeadProgram | StatisticsProgram:
        """Everything that is left to do; the program that has taken all totals."""
        if not self._state.keys:
            self._join()
        if not self._state.terms:
            self._begin()
        program = program_for(self._settings, total_noise(self._settings, self._state.terms))
        self._replay(program)
        while not program.done:
            self._sum(program)
        return program

    @property
    def gone(self) -> set[str]:
        """The sites that did not answer when they were last asked for a sum."""
        return set(self._back)

    def _join(self) -> None:
        """Every site announces its keys, signed."""
        names = [name for name in self._settings.sites if name in self._connected()]
        replies = self._ask(names, "join", 0, {}, {}, {})
        keys: dict[str, dict[str, Any]] = {}
        for name, reply in replies.items():
            try:
                announced = reply.facts.get("keys")
                if not isinstance(announced, dict):
                    raise FormatError("it announced no keys")
                check_announcement(self._terms, name, announced)
                keys[name] = announced
            except LocumError as error:
                self._refuse(name, "join", 0, str(error))
        # Sites refuse a list with such keys, every time: the run could never go on.
        every = {name: [said["encryption"], *said["masks"]] for name, said in keys.items()}
        times = Counter(key for own in every.values() for key in own)
        for name in [name for name, own in every.items() if any(times[key] > 1 for key in own)]:
            self._refuse(name, "join", 0, "a key that occurs twice")
            del keys[name]
        self._enough(keys, "joined")
        self._state.keys = keys
        self._state.save()

    def _begin(self) -> None:
        """Shares go from every site to every other; then sites pay."""
        state, names = self._state, list(self._state.keys)
        if not state.blobs:
            replies = self._ask(names, "share", 0, {"keys": state.keys}, {}, None)
            sent: dict[str, npt.NDArray[np.uint8]] = {}
            shared, size = [], blob_size(self._terms)
            for name, reply in replies.items():
                if set(reply.tensors) - {name} != set(names) - {name} or any(
                    blob.dtype != np.uint8 or blob.shape != (size,) for blob in reply.tensors.values()
                ):
                    self._refuse(name, "share", 0, "shares that are not one for each site")
                    continue
                shared.append(name)
                sent |= {f"{name}/{to}": blob for to, blob in reply.tensors.items()}
            self._enough(shared, "sent shares")
            state.blobs = sent
            state.save()
        shared = sorted({key.partition("/")[0] for key in state.blobs})
        tensors = {
            to: {name: state.blobs[f"{name}/{to}"] for name in shared if f"{name}/{to}" in state.blobs}
            for to in shared
        }
        replies = self._ask(shared, "begin", 0, {}, {}, {}, own=tensors)
        found = self._read(replies)
        self._enough(found, "began")
        state.terms, state.blobs = found, {}
        state.save()

    def _replay(self, program: HeadProgram | StatisticsProgram) -> None:
        """Give the program the totals of an earlier process."""
        start, done = 0, self._state.transcript.astype(np.float64)
        while start < len(done):
            stop = start + program.query().size(self._settings)
            program.take(done[start:stop])
            start = stop

    def _sum(self, program: HeadProgram | StatisticsProgram) -> None:
        state, step = self._state, self._state.round
        if state.pending is None:
            query = program.query()
            state.pending = PendingSum(query.facts(), dict(query.tensors), self._participants())
            state.save()
        pending = state.pending
        facts = pending.facts
        query = Query(facts["query"], facts["share"], facts["clip"], pending.tensors)
        self._collect(pending, step, query)
        opener = MaskedStep(self._terms, state.keys, step, query.digest(), pending.participants, pending.words)
        signatures = self._confirmed(pending, step, opener)
        need = self._terms.threshold
        replies = self._ask(list(signatures), "open", step, {"signatures": signatures}, {}, {}, enough=need)
        self._enough(replies, f"opened sum {step + 1}")
        opened = {name: reply.facts.get("shares", {}) for name, reply in replies.items()}
        total = opener.total(opened) * query.steps(self._settings)
        self._check(total, query)
        # Rounding after the noise costs nothing; whoever reads the release has these numbers.
        noisy = total.astype(np.float32)
        state.transcript = np.concatenate([state.transcript, noisy])
        state.pending, state.round = None, step + 1
        program.take(noisy.astype(np.float64))
        state.save()
        self._emit({"event": "sum", "sum": step + 1, "of": program.sums, "sites": pending.answered})

    def _participants(self) -> list[str]:
        """All sites that began, but for those that are gone, as long as enough others are there.

        A site that did not answer is left out of the next sums, twice as many each time, so that nobody waits for it
        at every sum.
        """
        began, here = sorted(self._state.terms), set(self._connected())
        present = [n for n in began if n in here and self._back.get(n, (0, 0))[0] <= self._state.round]
        return present if len(present) >= self._terms.threshold else began

    def _missing(self, pending: PendingSum, step: int) -> None:
        for name in pending.participants:
            if name in pending.words:
                self._back.pop(name, None)
            else:
                pause = 2 * self._back.get(name, (0, 1))[1]
                self._back[name] = step + pause, pause

    def _collect(self, pending: PendingSum, step: int, query: Query) -> None:
        """Masked sums of enough sites; from then on it is fixed who is in the total."""
        if pending.answered:
            return
        missing = [name for name in pending.participants if name not in pending.words]
        replies = self._ask(
            missing,
            "sum",
            step,
            {**pending.facts, "participants": pending.participants},
            pending.tensors,
            {"sums": (query.size(self._settings),)},
            enough=self._terms.threshold - len(pending.words),
        )
        pending.words |= {name: reply.tensors["sums"] for name, reply in replies.items()}
        if len(pending.words) >= self._terms.threshold:
            pending.answered = sorted(pending.words)
            self._missing(pending, step)
        self._state.save()
        self._enough(pending.words, f"answered sum {step + 1}")

    def _confirmed(self, pending: PendingSum, step: int, opener: MaskedStep) -> dict[str, str]:
        """Signatures of enough sites over the list of those who answered."""
        facts, need = {"answered": pending.answered}, self._terms.threshold
        replies = self._ask(pending.answered, "confirm", step, facts, {}, {}, enough=need)
        signatures: dict[str, str] = {}
        for name, reply in replies.items():
            signature = str(reply.facts.get("signature"))
            if opener.is_confirmed(name, signature):
                signatures[name] = signature
            else:
                self._refuse(name, "confirm", step, "a signature that is not its own")
        self._enough(signatures, f"confirmed sum {step + 1}")
        return signatures

    def _check(self, total: npt.NDArray[np.float64], query: Query) -> None:
        """Totals that no records can have mean that a site sent nonsense, and nobody can tell which one."""
        noise = total_noise(self._settings, self._state.terms) / math.sqrt(query.share)
        most = self._settings.max_size * len(self._state.terms) + 10 * noise * math.sqrt(len(total))
        if not np.linalg.norm(total) <= most:
            raise LocumError(
                "A total is larger than the records of all sites could make it: a site sent something other than "
                "its sums. Nothing was released; find out which one, and start a new run without it."
            )

    def _enough(self, found: Any, what: str) -> None:
        if len(found) < self._terms.threshold:
            raise LocumError(
                f"{len(found)} of {len(self._terms.sites)} sites {what}, and {self._terms.threshold} are needed: the "
                "run stopped. Start it again when more are back: it resumes here, and sites pay nothing more."
            )


def total_noise(settings: FederationSettings, terms: Mapping[str, Terms]) -> float:
    """The standard deviation of the noise on a total with all of the precision, if every site that began answers."""
    planned = max(t.noise for t in terms.values())
    return max(planned * math.sqrt(len(terms) / settings.honest), MIN_NOISE)
