"""The endless dataset. The one file of this folder that needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from understudy.release.release import Release

__all__ = ["ReleaseStream"]


class ReleaseStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches `(x, class code)` without end, each vector drawn once and never again.

    Already batched: give `batch_size=None` to a `DataLoader`. Every worker of a loader, and every
    new iteration, draws from a stream of its own, so that no two of them repeat each other.
    """

    def __init__(
        self,
        release: Release,
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
            # Workers are copies of this object: their number, and the loader's seed, tell them apart.
            seeds = np.random.SeedSequence(entropy=[seeds.generate_state(1)[0], worker.seed % 2**63, worker.id])
        rng = np.random.default_rng(seeds)
        for X, codes in self.release.batches(self.batch_size, self.variance, rng):
            yield torch.from_numpy(X), torch.from_numpy(codes)
