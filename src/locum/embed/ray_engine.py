"""Embedding on a Ray cluster: actors with an ONNX session each, and one queue of shards in the driver.

No Ray Data: an actor reads, decodes, embeds and writes its shard itself, so there are no reader tasks that could wait
for CPUs that the actors hold.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locum.data import EMBEDDED, ray_cluster
from locum.embed.backbone import Backbone
from locum.embed.embedding import StrictError, cores, default_threads
from locum.embed.onnx import session_runner, start_session
from locum.embed.preprocessing import Preprocessing
from locum.embed.shards import Finished, Shard, ShardFolder, ShardWork, write_shard
from locum.embed.sources import FileSource, RemoteSource
from locum.errors import ConfigError, DataError, LocumError

# A shard at which so many processes died is not tried again.
_DEATHS = 4
# How often actors are asked how far they are, in seconds.
_ASK_EVERY = 2.0
# How long nothing may happen before the run stops: no actor could start, and none is at work.
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class RayEmbedding:
    """Embed in actors on a Ray cluster.

    An actor takes one shard at a time. If its process or its node dies, another actor gets the shard; a new actor is
    started as long as there is room. The vectors are those of `LocalEmbedding`, bit for bit on the same kind of
    processor. Only ONNX models run here. Images and output must be in a store, or on a disk that all nodes share.

    Parameters
    ----------
    address
        "local" starts Ray on this machine for the run; "auto" finds the cluster that this machine belongs to; or the
        address of one.
    actors
        How many actors. None: as many as fit.
    workers
        How many CPUs each actor has, and so how many threads. None: 1.

    Examples
    --------
    >>> from locum.embed import RayEmbedding
    >>> RayEmbedding("auto", actors=8).actors
    8
    """

    address: str = "local"
    actors: int | None = None
    workers: int | None = None

    @contextmanager
    def started(self) -> Iterator[None]:
        """Connect to the cluster and count its CPUs; refuse if the actors do not fit."""
        if self.address == "local":
            self._count([float(cores())])
        with ray_cluster(self.address) as ray:
            self._count([node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]])
            yield

    def _count(self, cpus: Sequence[float]) -> int:
        """How many actors to start on nodes with so many CPUs."""
        each = self.workers or 1
        room = sum(int(n // each) for n in cpus)
        if room < (self.actors or 1):
            need = "1 actor needs" if (self.actors or 1) == 1 else f"{self.actors} actors need"
            raise ConfigError(
                f"{need} {(self.actors or 1) * each} CPUs ({each} per actor, on one node), and the cluster has "
                f"{sum(cpus):g} on {len(cpus)} {'node' if len(cpus) == 1 else 'nodes'}, which is enough for {room}: "
                "give fewer --actors or --workers, or add nodes."
            )
        return self.actors or room

    def run(
        self, work: ShardWork, backbone: Backbone, shards: Sequence[Shard], on_images: Callable[[int], None]
    ) -> Iterator[Finished]:
        """Give shards to actors until all are written."""
        import ray

        if backbone.device != "cpu":
            raise ConfigError(
                f"The engine 'ray' embeds on CPUs; got {backbone.device!r}: leave --device out, or use the "
                "engine 'local'."
            )
        if backbone.model is None:
            raise ConfigError(
                f"The engine 'ray' runs only ONNX models, and {backbone.name!r} is not one: export it and give "
                "onnx:FILE, or use the engine 'local'."
            )
        if not isinstance(work.source, FileSource | RemoteSource):
            raise ConfigError("The engine 'ray' reads images from files: use the engine 'local' for an .npz.")
        if not shards:
            return
        nodes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
        yield from _Queue(ray, self._count(nodes), self.workers or 1, work, backbone, shards, on_images).run()


class _Queue:
    """Shards that wait, and actors that work on one each."""

    def __init__(
        self,
        ray: Any,
        actors: int,
        cpus: int,
        work: ShardWork,
        backbone: Backbone,
        shards: Sequence[Shard],
        on_images: Callable[[int], None],
    ) -> None:
        self._ray, self._on_images = ray, on_images
        self._waiting = deque(shards)
        self._left = len(shards)
        self._deaths: Counter[int] = Counter()
        self._failed_starts = 0
        self._most_failed_starts = _DEATHS + actors
        facts = (backbone.name, backbone.revision, backbone.preprocessing.text, backbone.dim, backbone.batch)
        # Sent once per node, not with each actor.
        model = ray.put(backbone.model)
        # Their restarts are ours: a shard then goes to whoever is free, not to the actor that died at it.
        # One thread embeds, another answers how far it is.
        remote = ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, max_concurrency=2)(_Actor)
        witness = _witness(work, shards)
        self._new = lambda: remote.remote(model, facts, work, cpus, witness)
        # What each pending call is about: the actor, and its shard (None: it is starting).
        self._calls: dict[Any, tuple[Any, Shard | None]] = {}
        self._idle: list[Any] = []
        # Images of unfinished shards that were reported as done.
        self._reported: Counter[int] = Counter()
        for _ in range(min(actors, len(shards))):
            self._start()

    def run(self) -> Iterator[Finished]:
        """Yield each shard that is written."""
        actors_at_work = time.monotonic()
        try:
            while self._left:
                while self._idle and self._waiting:
                    actor, shard = self._idle.pop(), self._waiting.popleft()
                    self._calls[actor.embed.remote(shard)] = (actor, shard)
                ready, _ = self._ray.wait(list(self._calls), timeout=_ASK_EVERY)
                if not ready:
                    self._ask()
                for call in ready:
                    if (one := self._answer(call)) is not None:
                        self._left -= 1
                        yield one
                if ready or any(shard is not None for _, shard in self._calls.values()):
                    actors_at_work = time.monotonic()
                elif time.monotonic() - actors_at_work > _PATIENCE:
                    raise ConfigError(
                        f"No actor could start for {_PATIENCE:.0f} s, because the cluster's CPUs are in use or its "
                        "nodes are gone: run the same command again when there is room."
                    )
        finally:
            for actor in [*self._idle, *(actor for actor, _ in self._calls.values())]:
                self._ray.kill(actor)

    def _ask(self) -> None:
        """Report how far the shards in work are."""
        from ray.exceptions import RayError

        asked = {actor.done.remote(): shard for actor, shard in self._calls.values() if shard is not None}
        for answer in self._ray.wait(list(asked), num_returns=len(asked), timeout=1.0)[0] if asked else ():
            try:
                self._report(asked[answer], self._ray.get(answer))
            except RayError:
                # It has died; its call says so.
                continue

    def _report(self, shard: Shard, done: int) -> None:
        # A shard that is tried again is not counted twice.
        if (new := done - self._reported[shard.number]) > 0:
            self._reported[shard.number] = done
            self._on_images(new)

    def _start(self) -> None:
        actor = self._new()
        self._calls[actor.start.remote()] = (actor, None)

    def _answer(self, call: Any) -> Finished | None:
        from ray.exceptions import RayError, RayTaskError

        actor, shard = self._calls.pop(call)
        try:
            answer = self._ray.get(call)
        except RayTaskError:
            # The process lives: what it could not do, another could not do either.
            raise
        except RayError as error:
            self._died(shard, error)
            return None
        if isinstance(answer, _Problem):
            answer.raise_here()
        self._idle.append(actor)
        if shard is None or not isinstance(answer, Finished):
            return None
        self._report(shard, len(shard.items))
        return answer

    def _died(self, shard: Shard | None, error: Exception) -> None:
        """Start another actor, and let someone else do the shard."""
        if shard is None:
            self._failed_starts += 1
            if self._failed_starts >= self._most_failed_starts:
                text = " ".join(str(error).split())
                raise ConfigError(
                    f"Actors cannot be started on this cluster ({text[:200]}): install the same version of Locum, "
                    "with its extra `cluster`, on each node."
                )
        else:
            self._deaths[shard.number] += 1
            if self._deaths[shard.number] >= _DEATHS:
                raise DataError(
                    f"{_DEATHS} processes died at the images of rows {shard.start} to "
                    f"{shard.start + len(shard.items) - 1}: check the memory of the nodes, and the images."
                )
            # Last in the queue: if it is what kills processes, the others are finished first.
            self._waiting.append(shard)
        self._start()


@dataclass(frozen=True, slots=True)
class _Problem:
    """An error of ours as plain values: some errors do not survive the way to another process."""

    kind: str
    text: str
    code: int = 0
    file: str = ""

    def raise_here(self) -> None:
        """Raise it in this process."""
        if self.kind == "StrictError":
            raise StrictError(self.file, self.text)
        if self.kind == "OSError":
            raise OSError(self.code, self.text, self.file)
        import locum.errors

        raise getattr(locum.errors, self.kind, DataError)(self.text)


def _problem(error: Exception) -> _Problem:
    if isinstance(error, StrictError):
        return _Problem("StrictError", error.problem, file=error.name)
    if isinstance(error, OSError):
        return _Problem("OSError", error.strerror or str(error), error.errno or 0, str(error.filename or ""))
    return _Problem(type(error).__name__, str(error))


class _Actor:
    """One process of the cluster with a session of its own; it runs the same code as the local engine."""

    def __init__(
        self, model: bytes, facts: tuple[str, str, str, int, int], work: ShardWork, cpus: int, witness: Path | None
    ) -> None:
        self._model, self._facts, self._work, self._witness = model, facts, work, witness
        self._threads = default_threads(work.source, cpus)
        self._backbone: Backbone | None = None
        self._done = 0

    def done(self) -> int:
        """How many images of the shard in work are done."""
        return self._done

    def start(self) -> _Problem | None:
        """Start the session; a node that does not see the files says so, instead of finding them missing."""
        try:
            source, folder = self._work.source, ShardFolder(self._work.folder)
            if isinstance(source, FileSource) and self._witness is not None and not self._witness.is_file():
                raise ConfigError(_unseen(str(source.place)))
            if folder.local is not None and not Path(folder.local, EMBEDDED).is_file():
                raise ConfigError(_unseen(self._work.folder))
            name, revision, preprocessing, dim, batch = self._facts
            run = session_runner(start_session(self._model, "cpu"))
            contract = Preprocessing.parse(preprocessing)
            self._backbone = Backbone(name, revision, contract, dim, run, concurrent=True, batch=batch)
        except (LocumError, OSError) as error:
            return _problem(error)
        return None

    def embed(self, shard: Shard) -> Finished | _Problem:
        """Embed and write one shard."""
        assert self._backbone is not None, "the driver starts it first"
        self._done = 0

        def count(n: int) -> None:
            self._done += n

        try:
            return write_shard(shard, self._work, self._backbone, self._threads, count)
        except (LocumError, OSError) as error:
            return _problem(error)


def _witness(work: ShardWork, shards: Sequence[Shard]) -> Path | None:
    """A file that this machine sees among the images, and so must every node."""
    if not isinstance(work.source, FileSource):
        return None
    files = (work.source.place / item.name for item in shards[0].items)
    return next((file for file in files if file.is_file()), None)


def _unseen(place: str) -> str:
    return (
        f"A node of the cluster does not see what is in {place!r}: use a folder on a disk that all nodes share, or "
        "an address such as s3://bucket/folder."
    )
