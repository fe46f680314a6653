"""A release as an endless torch dataset: the only module of this folder that needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from locum.errors import ConfigError

_MOST_WORKERS = 1024


class EndlessBatches(Protocol):
    """What a stream draws from: a release."""

    def batches(
        self, batch_size: int, variance: float | None, rng: np.random.Generator
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        """Endless batches of vectors and class codes."""
        ...


class WorkerSeeds:
    """A new seed for each worker of a `DataLoader` and for each time that it starts to draw.

    Workers are copies of a dataset, and a loader may make new ones for each epoch: only memory that they share tells
    them what was drawn before. So a dataset keeps one of these, made in the process that starts the workers.

    Parameters
    ----------
    random_state
        With a seed, the same seeds come again for the same number of workers; None: the operating system's entropy.

    Examples
    --------
    >>> from locum.release import WorkerSeeds
    >>> seeds, again = WorkerSeeds(0), WorkerSeeds(0)
    >>> first, second = seeds.next(), seeds.next()
    >>> first.spawn_key != second.spawn_key and first.spawn_key == again.next().spawn_key
    True
    """

    def __init__(self, random_state: int | None) -> None:
        self.entropy = np.random.SeedSequence(random_state).entropy
        # How often each worker has started; the first entry is for a loop without workers.
        self._started = torch.zeros(_MOST_WORKERS + 1, dtype=torch.int64).share_memory_()

    def next(self) -> np.random.SeedSequence:
        """The seed for a pass that starts now, in the process that asks."""
        worker = get_worker_info()
        place = 0 if worker is None else worker.id + 1
        if place > _MOST_WORKERS:
            raise ConfigError(f"A stream serves at most {_MOST_WORKERS} workers: set a smaller `num_workers`.")
        turn = int(self._started[place])
        self._started[place] += 1
        return np.random.SeedSequence(self.entropy, spawn_key=(place, turn))


class ReleaseStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Endless batches `(x, class code)` of fresh vectors.

    They are batched already: give a `DataLoader` `batch_size=None`. Each worker of a loader and each new iteration
    has its own random stream, derived from the seed, so no row comes twice, and a program that starts again with the
    same seed and the same number of workers gets the same rows. Processes that do not share this object, such as
    those of a distributed run, need a seed each.
    """

    def __init__(
        self,
        release: EndlessBatches,
        *,
        batch_size: int = 256,
        variance: float | None = None,
        random_state: int | None = None,
    ) -> None:
        # Bad settings fail here, not at the first batch.
        next(iter(release.batches(batch_size, variance, np.random.default_rng(0))))
        self.release = release
        self.batch_size = batch_size
        self.variance = variance
        self._seeds = WorkerSeeds(random_state)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        rng = np.random.default_rng(self._seeds.next())
        for X, codes in self.release.batches(self.batch_size, self.variance, rng):
            yield torch.from_numpy(X), torch.from_numpy(codes)
