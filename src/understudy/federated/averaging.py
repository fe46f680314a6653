"""One set of weights out of many: the mean, and averages that a few poisoned sites cannot move far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError

__all__ = ["average"]

Weights = Mapping[str, npt.NDArray[np.float32]]


def average(
    updates: Sequence[Weights], shares: Sequence[float], how: str = "mean", trim: float = 0.2
) -> dict[str, npt.NDArray[np.float32]]:
    """Number by number: the mean by `shares`, the median, or the mean without the share `trim` at either end.

    Median and trimmed mean treat all sites alike, for a weight is itself something that a site could lie about. A
    trimmed mean of m sites leaves out `floor(trim * m)` at either end, and at least one: it takes three or more.

    >>> one = [{"w": np.float32([v])} for v in (1.0, 2.0, 3.0, 900.0)]
    >>> [float(average(one, [1] * 4, how, 0.25)["w"][0]) for how in ("mean", "median", "trimmed-mean")]
    [226.5, 2.5, 2.5]
    """
    if not updates or len(updates) != len(shares) or not all(0 < s < np.inf for s in shares):
        raise ConfigError("An average needs updates, each with a share above 0.")
    if how not in ("mean", "median", "trimmed-mean"):
        raise ConfigError(f"`how` must be 'mean', 'median' or 'trimmed-mean'; got {how!r}.")
    cut = max(1, int(trim * len(updates)))
    if how == "trimmed-mean" and len(updates) <= 2 * cut:
        raise ConfigError(f"A mean trimmed by {cut} at either end needs {2 * cut + 1} sites; got {len(updates)}.")
    part = np.asarray(shares, dtype=np.float64) / np.sum(shares)
    out = {}
    for name in updates[0]:
        values = np.stack([u[name] for u in updates]).astype(np.float64)
        if how == "mean":
            found = np.tensordot(part, values, axes=1)
        elif how == "median":
            found = np.median(values, axis=0)
        else:
            found = np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)
        out[name] = found.astype(np.float32)
    return out
