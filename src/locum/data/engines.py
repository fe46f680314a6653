"""Where passes over data run: in this process, or on the machines of a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, Protocol, Self, TypeVar

from locum._threads import one_thread
from locum.data.cluster import ray_cluster
from locum.errors import LocumError
from locum.types import Batches

Result = TypeVar("Result")
# Tasks per processor: a lost one costs little, and starting one costs a few milliseconds.
_TASKS = 8


class Mergeable(Protocol):
    """Sums over a part of the data that merge into those of all of it."""

    def merge(self, other: Self) -> None:
        """Add what another part has."""


Sums = TypeVar("Sums", bound=Mergeable)


class Engine(Protocol):
    """Runs the same work on every part of some data."""

    def started(self) -> AbstractContextManager[Any]:
        """Keep what several passes need, such as a connection."""

    def map(self, batches: Batches, work: Callable[[Batches], Result]) -> Iterator[Result]:
        """What `work` returns for each part, in the order of the parts."""


def total(engine: Engine, batches: Batches, work: Callable[[Batches], Sums]) -> Sums:
    """The sums of all parts.

    Parts are merged in their order, so the result is the same bit for bit whichever engine adds it up.

    Parameters
    ----------
    engine
        Where the work runs.
    batches
        The data.
    work
        The sums of one part; it must be importable on every machine.

    Returns
    -------
    Mergeable
        The sums of all parts.

    Examples
    --------
    >>> from locum.data import LocalEngine, load_sample, total
    >>> from locum.metrics import Moments
    >>> from locum.types import SetBatches
    >>> def moments(part):
    ...     out = Moments(1, part.dim)
    ...     for piece in part:
    ...         out.add(piece.X)
    ...     return out
    >>> total(LocalEngine(), SetBatches(load_sample("digits"), rows=500), moments).rows
    1797
    """
    parts = engine.map(batches, work)
    out = next(parts)
    for part in parts:
        out.merge(part)
    return out


class LocalEngine:
    """One part after the other, in this process.

    Examples
    --------
    >>> from locum.data import LocalEngine, load_sample
    >>> from locum.types import SetBatches
    >>> list(LocalEngine().map(SetBatches(load_sample("digits"), rows=1000), len))
    [1000, 797]
    """

    def started(self) -> AbstractContextManager[Any]:
        """Nothing to keep."""
        return nullcontext()

    def map(self, batches: Batches, work: Callable[[Batches], Result]) -> Iterator[Result]:
        """What `work` returns for each part, in the order of the parts."""
        return map(work, batches.parts())


class RayEngine:
    """Parts as tasks of a Ray cluster; a task whose worker or machine is lost runs again elsewhere.

    Every machine must be able to read the data: a shared folder, or an address such as `s3://bucket/vectors`.

    Parameters
    ----------
    address
        "auto" for the cluster that this machine belongs to, "local" to start one on this machine, or HOST:PORT.

    Examples
    --------
    >>> from locum.data import RayEngine
    >>> RayEngine("local").address
    'local'
    """

    def __init__(self, address: str = "auto") -> None:
        self.address = address

    def started(self) -> AbstractContextManager[Any]:
        """Stay connected for several passes."""
        return ray_cluster(self.address)

    def map(self, batches: Batches, work: Callable[[Batches], Result]) -> Iterator[Result]:
        """What `work` returns for each part, in the order of the parts."""
        with ray_cluster(self.address) as ray:
            cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
            parts = batches.parts()
            size = max(1, -(-len(parts) // (_TASKS * cpus)))
            task = ray.remote(num_cpus=1, max_retries=-1)(_each)
            shared = ray.put(work)
            waiting: deque[Any] = deque()
            for start in range(0, len(parts), size):
                waiting.append(task.remote(shared, list(parts[start : start + size])))
                # A bounded number of results is on its way.
                if len(waiting) >= 2 * cpus:
                    yield from _received(ray, waiting.popleft())
            while waiting:
                yield from _received(ray, waiting.popleft())


def _received(ray: Any, call: Any) -> list[Any]:
    """What a task returned; an error of ours as it was raised there."""
    try:
        # Arrays of Ray are read-only views of its store, which is closed at the end.
        found: list[Any] = deepcopy(ray.get(call))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LocumError):
            raise error.cause from None
        raise
    return found


def _each(work: Callable[[Batches], Result], parts: Sequence[Batches]) -> list[Result]:
    # As many tasks as processors run at once: each gets one thread.
    with one_thread():
        return [work(part) for part in parts]
