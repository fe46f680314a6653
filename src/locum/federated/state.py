"""State files, from which a run resumes after a crash: `SiteState` at a site, `RunState` at the coordinator.

Each is one private safetensors file, written atomically and held under a lock. A site's state is private; the
coordinator's holds public facts and what sites have paid for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from locum.errors import CheckpointError, ConfigError, LocumError
from locum.federated.protocol import Reply, Request
from locum.federated.settings import FederationSettings
from locum.federated.terms import Terms, read_terms
from locum.io import write_bytes

Arrays = dict[str, npt.NDArray[Any]]
_ENTRY = "locum"
_FILE, _LOCK = "coordinator.state", "coordinator.lock"
# Where a simulation keeps its sites, beside the coordinator's state.
SIMULATION = ".locum-simulation"
# What `read_tensors`, and parsing its result, can raise if a file is damaged or has another format.
UNREADABLE = (SafetensorError, OSError, ValueError, KeyError, TypeError)


def write_tensors(file: Path, tensors: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
    """Write one private file atomically; `meta` is plain JSON."""
    # Transposed arrays would be written in the wrong order, without an error.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    write_bytes(str(file), save(contiguous, metadata={_ENTRY: json.dumps(meta)}))


def read_tensors(file: Path) -> tuple[dict[str, Any], Arrays]:
    """Undo `write_tensors`: the metadata and the arrays. Raises one of `UNREADABLE` if that fails."""
    with safe_open(file, framework="np") as f:
        meta: dict[str, Any] = json.loads((f.metadata() or {})[_ENTRY])
        return meta, {key: f.get_tensor(key) for key in f.keys()}  # noqa: SIM118


def named(prefix: str, tensors: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The tensors with a common prefix."""
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def part_of(tensors: Mapping[str, npt.NDArray[Any]], prefix: str) -> Arrays:
    """Undo `named`."""
    return {k.removeprefix(f"{prefix}/"): v for k, v in tensors.items() if k.startswith(f"{prefix}/")}


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock on `file`; without `wait`, BlockingIOError if another process holds it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            # Closing is not enough: a process that was forked meanwhile would still hold the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def request_key(request: Request) -> str:
    """A hash of the request without its nonce: the same request has the same key however often it is sent."""
    digest = hashlib.sha256(json.dumps([request.step, request.round, request.facts], sort_keys=True).encode())
    for name, value in sorted(request.tensors.items()):
        digest.update(f"{name} {value.shape} {value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


@dataclass(slots=True)
class SiteState:
    """The charge, the steps used (of a test), the personal encoder, the masks, and the last request with its reply.

    A request that comes again gets the same reply: asking twice costs nothing and reveals nothing new.
    """

    file: Path
    identity: str = ""
    used: int = 0
    key: str = ""
    reply: Reply | None = None
    encoder: Arrays = field(default_factory=dict)
    # For masked sums: the secret that all keys come from, the state of the masks, the share of the precision that
    # each sum used, and how many units had their last gradient cut.
    master: bytes = b""
    masks: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    clipped: float | None = None

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, run: str) -> Iterator[SiteState]:
        """The state of a run, locked: an earlier process may still be running."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(run.encode()).hexdigest()[:16]
        with locked(folder / f"{name}.lock", wait=True):
            yield cls._read(folder / f"{name}.state")

    def replied(self, request: Request) -> Reply | None:
        """The reply that this request got before, with the new nonce; None if there was none."""
        if self.reply is None or self.key != request_key(request):
            return None
        kept = self.reply
        return Reply(kept.step, kept.round, request.nonce, kept.declined, kept.facts, kept.tensors)

    def keep(self, request: Request, reply: Reply) -> None:
        """Write everything, before the reply leaves."""
        self.key, self.reply = request_key(request), reply
        head = {"step": reply.step, "round": reply.round, "declined": reply.declined, "facts": dict(reply.facts)}
        meta = {
            "identity": self.identity,
            "used": self.used,
            "key": self.key,
            "reply": head,
            "master": self.master.hex(),
            "masks": self.masks,
            "shares": self.shares,
            "clipped": self.clipped,
        }
        write_tensors(self.file, named("reply", reply.tensors) | named("encoder", self.encoder), meta)

    @classmethod
    def _read(cls, file: Path) -> SiteState:
        if not file.exists():
            return cls(file)
        try:
            meta, tensors = read_tensors(file)
            head = meta["reply"]
            reply = Reply(**head, nonce="", tensors=part_of(tensors, "reply"))
            return cls(
                file,
                meta["identity"],
                meta["used"],
                meta["key"],
                reply,
                part_of(tensors, "encoder"),
                bytes.fromhex(meta["master"]),
                meta["masks"],
                meta["shares"],
                meta["clipped"],
            )
        except UNREADABLE as error:
            raise CheckpointError(
                f"The site's state {str(file)!r} is damaged: restore a backup, or leave this run."
            ) from error


@contextmanager
def only_coordinator(out: Path) -> Iterator[None]:
    """Keep other coordinators out of the folder: two of them would ask sites for the same round twice."""
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / _LOCK, wait=False))
        except BlockingIOError:
            raise ConfigError(f"Another coordinator is running in {str(out)!r}: wait for it, or stop it.") from None
        yield


@dataclass(slots=True)
class PendingSum:
    """A masked sum that is not open yet: the query, who was asked, what they sent, and who is in the total."""

    facts: dict[str, Any]
    tensors: Arrays
    participants: list[str]
    words: dict[str, npt.NDArray[np.uint64]] = field(default_factory=dict)
    # Empty until enough have answered; from then on it is fixed.
    answered: list[str] = field(default_factory=list)

    def arrays(self) -> Arrays:
        """All arrays under one name each."""
        return named("query", self.tensors) | named("words", self.words)


@dataclass(slots=True)
class RunState:
    """The run's name, the terms and sums of the sites that joined, the decoder, and the last complete round."""

    file: Path
    settings: FederationSettings
    run: str
    round: int = 0
    terms: dict[str, Terms] = field(default_factory=dict)
    sums: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    decoder: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    # For masked sums: each site's signed keys, the shares that sites have for each other ("FROM/TO"), all totals so
    # far, one after the other, and the sum that is under way.
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    blobs: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    transcript: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    pending: PendingSum | None = None

    @classmethod
    def open(cls, out: Path, settings: FederationSettings) -> RunState:
        """A new run, or the one that was started in `out`; a run with other settings is refused there."""
        file = out / _FILE
        if not file.exists():
            if out.exists() and any(file.name not in (_LOCK, SIMULATION) for file in out.iterdir()):
                raise ConfigError(f"{str(out)!r} is not empty and holds no run to resume: name another folder.")
            out.mkdir(parents=True, exist_ok=True)
            state = cls(file, settings, secrets.token_hex(16))
            # The name is on disk before any site gets it: sites pay for a run by its name.
            state.save()
            return state
        try:
            meta, tensors = read_tensors(file)
            known = FederationSettings.from_dict(meta["settings"])
            terms = {name: read_terms(facts) for name, facts in meta["terms"].items()}
            state = cls(file, known, meta["run"], meta["round"], terms, keys=meta["keys"])
            state.sums, state.decoder = part_of(tensors, "sums"), part_of(tensors, "decoder")
            state.blobs, state.transcript = part_of(tensors, "blobs"), tensors["transcript"]
            if (pending := meta["pending"]) is not None:
                query, words = part_of(tensors, "pending/query"), part_of(tensors, "pending/words")
                state.pending = PendingSum(
                    pending["facts"], query, pending["participants"], words, pending["answered"]
                )
        except (*UNREADABLE, LocumError) as error:
            raise CheckpointError(
                f"{str(file)!r} is damaged: restore a backup, or start a new run in another folder."
            ) from error
        if known != settings:
            raise ConfigError(
                f"{str(out)!r} holds a run with other settings: name another folder, or use those settings."
            )
        return state

    def save(self) -> None:
        """Write the file atomically."""
        meta = {
            "settings": self.settings.to_dict(),
            "run": self.run,
            "round": self.round,
            "keys": self.keys,
            "pending": None,
            "terms": {name: terms.to_dict() for name, terms in self.terms.items()},
        }
        tensors = named("sums", self.sums) | named("decoder", self.decoder) | named("blobs", self.blobs)
        tensors["transcript"] = self.transcript
        if (pending := self.pending) is not None:
            meta["pending"] = {
                "facts": pending.facts,
                "participants": pending.participants,
                "answered": pending.answered,
            }
            tensors |= named("pending", pending.arrays())
        write_tensors(self.file, tensors, meta)
