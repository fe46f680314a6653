"""Shadows as tasks of a Ray cluster: the same blocks with the same seeds as in one process, so the same bits."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._threads import one_thread
from locum.audit.shadows.shadows import Floats, Masks, Pool, ShadowFamily, make_family
from locum.data import ray_cluster
from locum.errors import ConfigError, LocumError
from locum.release import Release

# A task is given up only if its worker dies this often.
_RETRIES = 10


@dataclass(frozen=True, slots=True)
class RayShadows:
    """Train shadows on a Ray cluster, each task on one processor with one thread.

    The result is that of one process, bit for bit on the same kind of processor, whatever the number of workers. If a
    worker or its machine is lost, Ray runs the task again elsewhere. The records are sent to the workers: the cluster
    must be as private as the data. Every machine needs the same version of Locum.

    Parameters
    ----------
    address
        "local" starts Ray on this machine for the run; "auto" finds the cluster that this machine belongs to; or
        HOST:PORT.

    Examples
    --------
    >>> from locum.audit import LiRA, RayShadows
    >>> LiRA(shadows=64, engine=RayShadows("auto")).engine
    RayShadows(address='auto')
    """

    address: str = "local"

    def check(self) -> None:
        """Raise if Ray is not installed, before any work."""
        if find_spec("ray") is None:
            raise ConfigError("The engine 'ray' needs ray: pip install 'locum[cluster]', or use the engine 'local'.")

    def train(
        self, release: Release, pool: Pool, blocks: Sequence[tuple[Masks, list[int]]], seconds: float | None
    ) -> Iterator[Floats]:
        """The statistic of all records under the shadows of each block, in the order of the blocks.

        With `seconds`, blocks that are not done by then are left out, but never the first one.
        """
        self.check()
        with ray_cluster(self.address) as ray:
            # The private callback that tells the ledger of a release stays here.
            shared = ray.put((replace(release, bind=None), pool.X, pool.codes))
            task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_train)
            cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
            number = os.urandom(8).hex()
            waiting: deque[Any] = deque()
            todo = deque(blocks)
            end = None if seconds is None else time.monotonic() + seconds
            first = True
            try:
                while todo or waiting:
                    # A bounded number of masks and results is on its way.
                    while todo and len(waiting) < 2 * cpus:
                        waiting.append(task.remote(number, shared, *todo.popleft()))
                    if end is not None and not first:
                        left = max(0.0, end - time.monotonic())
                        if not ray.wait([waiting[0]], timeout=left)[0]:
                            return
                    yield _result(ray, waiting.popleft())
                    first = False
            finally:
                for call in waiting:
                    ray.cancel(call, force=True)


def _result(ray: Any, call: Any) -> Floats:
    """What a task returned, or the error that it raised as if it had run here."""
    try:
        # Arrays of Ray are read-only views of its store, which is closed at the end.
        return np.array(ray.get(call))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LocumError):
            raise error.cause from None
        raise
    except ray.exceptions.WorkerCrashedError:
        raise ConfigError(
            f"A worker of the Ray cluster died {_RETRIES + 1} times at the same shadows, probably for lack of "
            "memory: use machines with more, or the engine 'local'."
        ) from None


# The family of the last task of this worker: its sums over the pool serve all tasks of a run.
_last: dict[str, ShadowFamily] = {}


def _train(
    number: str,
    shared: tuple[Release, npt.NDArray[np.float32], npt.NDArray[np.int64]],
    inside: Masks,
    seeds: list[int],
) -> Floats:
    if number not in _last:
        _last.clear()
        release, X, codes = shared
        # In memory of this process, as in a local run.
        _last[number] = make_family(release, np.array(X), np.array(codes))
    with one_thread():
        return _last[number].train(np.array(inside), seeds)
