"""A release as an endless torch dataset: the only module of this folder that needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info


class EndlessBatches(Protocol):
    """What a stream draws from: a release."""

    def batches(
        self, batch_size: int, variance: float | None, rng: np.random.Generator
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        """Endless batches of vectors and class codes."""
        ...


class ReleaseStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Endless batches `(x, class code)` of fresh vectors.

    They are batched already: give a `DataLoader` `batch_size=None`. Each worker of a loader and each new iteration
    has its own random stream, so no two repeat each other.
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
        self._seeds = np.random.SeedSequence(random_state)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        seeds = self._seeds.spawn(1)[0]
        if worker is not None:
            # Workers are copies of this object: the loader's seed and the worker's id tell them apart.
            seeds = np.random.SeedSequence(entropy=[seeds.generate_state(1)[0], worker.seed % 2**63, worker.id])
        rng = np.random.default_rng(seeds)
        for X, codes in self.release.batches(self.batch_size, self.variance, rng):
            yield torch.from_numpy(X), torch.from_numpy(codes)
