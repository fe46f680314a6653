"""Linkage: who holds originals asks which one a release was made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Pairs of which distances are computed at once.
_AT_ONCE = 512


def linked(originals: Array, releases: Array, labels: Array, seed: int) -> dict[str, float]:
    """Rank-1 rate, AUC and the rate by chance, where row i of `releases` was made from row i of `originals`.

    A release is compared with the originals that share its label. Rank-1: the nearest is the right one; equally near
    ones share the guess. AUC: a release is nearer to its own original than to a random other one with the same
    label (one for each release); half for equal ones.
    """
    rng = np.random.default_rng([seed, 10])
    right, chance, wins = [], [], []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        if len(mine) < 2:
            continue
        X, Z = originals[mine].astype(np.float64), releases[mine].astype(np.float64)
        for start in range(0, len(mine), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(mine)))
            apart = distances(Z[rows], X)
            own = apart[np.arange(len(rows)), rows]
            least = apart.min(axis=1)
            ties = (apart <= least[:, None] + 1e-9).sum(axis=1)
            right.append(np.where(own <= least + 1e-9, 1 / ties, 0.0))
            other = (rows + rng.integers(1, len(mine), len(rows))) % len(mine)
            theirs = apart[np.arange(len(rows)), other]
            wins.append((own < theirs - 1e-9) + 0.5 * (np.abs(own - theirs) <= 1e-9))
        chance.append(np.full(len(mine), 1 / len(mine)))
    joined = [float(np.concatenate(parts).mean()) for parts in (right, wins, chance)]
    return dict(zip(("rank-1", "AUC", "chance"), joined, strict=True))


def distances(A: Array, B: Array) -> Array:
    """Squared distances of all rows of A to all rows of B."""
    out: Array = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)[None] - 2 * A @ B.T
    return np.maximum(out, 0)
