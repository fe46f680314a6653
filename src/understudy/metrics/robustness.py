"""How a classifier's score falls when its inputs are noisy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError
from understudy.metrics._checks import at_least, table
from understudy.metrics.intervals import mean_interval
from understudy.types import Estimate

__all__ = ["noise_robustness"]


def noise_robustness(
    score_fn: Callable[[npt.NDArray[np.float32]], float],
    X_test_z: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    sigmas: Sequence[float] = (0, 1, 2, 3),
    repeats: int = 3,
) -> dict[float, Estimate]:
    """`score_fn` on test embeddings with Gaussian noise of each deviation, over `repeats` draws.

    `X_test_z` is already z-scored, by the one scaler fitted on the REAL training set, for every
    method that is compared: noise of size 1 then means the same to all. The draws are shared by
    all sigmas, so that the curve is smooth. The interval covers the noise alone; at sigma 0 there
    is none, and the value is exact.

    >>> curve = noise_robustness(lambda x: float(x.std()), np.zeros((400, 25)), np.random.default_rng(0))
    >>> [round(e.value) for e in curve.values()]
    [0, 1, 2, 3]
    """
    x = table("X_test_z", X_test_z).astype(np.float32)
    levels = [float(s) for s in sigmas]
    at_least("repeats", repeats, 2)
    if not levels or len(set(levels)) < len(levels) or not all(0 <= s < np.inf for s in levels):
        raise ConfigError(f"`sigmas` must be different numbers of 0 or more; got {list(sigmas)!r}.")
    runs: dict[float, list[float]] = {s: [] for s in levels}
    for _ in range(repeats):
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        for s in levels:
            if s > 0:
                runs[s].append(float(score_fn(x + np.float32(s) * noise)))
    return {s: mean_interval(r) if s > 0 else Estimate.exact(float(score_fn(x))) for s, r in runs.items()}
