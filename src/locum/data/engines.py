"""Where passes over data run: in this process, or on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar

from locum.errors import ConfigError
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

    def map(self, batches: Batches, work: Callable[[Batches], Result]) -> Iterator[Result]:
        """What `work` returns for each part, in the order of the parts."""
        ray = connect_ray(self.address)
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        parts = batches.parts()
        size = max(1, -(-len(parts) // (_TASKS * cpus)))
        task = ray.remote(num_cpus=1, max_retries=-1)(_each)
        done = ray.put(work)
        waiting: deque[Any] = deque()
        for start in range(0, len(parts), size):
            waiting.append(task.remote(done, list(parts[start : start + size])))
            # A bounded number of results is on its way.
            if len(waiting) >= 2 * cpus:
                yield from ray.get(waiting.popleft())
        while waiting:
            yield from ray.get(waiting.popleft())


def _each(work: Callable[[Batches], Result], parts: Sequence[Batches]) -> list[Result]:
    from threadpoolctl import threadpool_limits

    # As many tasks as processors run at once: each gets one thread.
    with threadpool_limits(1):
        return [work(part) for part in parts]


def connect_ray(address: str = "auto") -> Any:
    """The module `ray`, connected to a cluster.

    Parameters
    ----------
    address
        "auto" for the cluster that this machine belongs to, "local" to start one on this machine, or HOST:PORT.

    Returns
    -------
    module
        `ray`. A connection that is there already is used.

    Raises
    ------
    ConfigError
        If Ray is not installed, or there is no such cluster.

    Examples
    --------
    >>> from locum.data import connect_ray
    >>> connect_ray("nowhere")  # doctest: +SKIP
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ConfigError("A cluster needs Ray, which is not installed: pip install 'locum[cluster]'.") from error
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"There is no Ray cluster at {address!r}: start one with `ray start --head`, name its HOST:PORT, or "
                "use 'local' to start one on this machine."
            ) from error
    return ray
