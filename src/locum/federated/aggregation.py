"""One set of weights out of many: the mean, and averages that a few poisoned sites cannot move far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.federated.protocol import Reply, Request, Tensors
from locum.federated.settings import FederationSettings

# Adam moves no weight by more than 3.2 learning rates in a step, whatever the gradients: (1 - 0.9) / sqrt(1 - 0.999).
_ADAM = 3.2
# A site may count more records than it declared; a run of all sites is not ruined by one that doubles its steps.
_SLACK = 2.0


def farthest(settings: FederationSettings, steps: int) -> float:
    """How far one weight can move in so many steps of a site's training, generously."""
    return _SLACK * _ADAM * settings.learning_rate * steps


def why_refused(
    request: Request, reply: Reply, wanted: Mapping[str, tuple[int, ...]], limit: float | None = None
) -> str:
    """Why an answer is not used, in a few words; empty if it is.

    `wanted` are the shapes of its tensors. With `limit` no weight may lie farther than that from the one asked with.
    A site that keeps within the limit and lies is not found out here: that is what robust averages are for.
    """
    if (reply.step, reply.round) != (request.step, request.round):
        return "an answer to another question"
    if reply.nonce != request.nonce:
        return "an answer that was given before"
    # Masked sums are whole numbers, all else is not.
    if any((value.dtype.kind == "u") != (request.step == "sums") for value in reply.tensors.values()):
        return "tensors of the wrong kind"
    shapes = {name: tuple(value.shape) for name, value in reply.tensors.items()}
    if shapes != dict(wanted):
        return "tensors of the wrong names or shapes"
    if not all(_finite(value) for value in reply.tensors.values()):
        return "numbers that are not finite"
    if limit is not None and _distance(request.tensors, reply.tensors) > limit:
        return "weights that are too far from where training began"
    return ""


def too_large(sums: npt.NDArray[Any], size: int, noise: float) -> bool:
    """Whether sums are longer than those of twice the declared number of units could be, noise included.

    A unit moves them by at most 1. A site that declares a huge size is weighed by what it sends, like any other: how
    many it may declare is for the consortium to agree on.
    """
    # Noise of so many numbers has a length close to its square root; ten times as long it never is.
    limit = _SLACK * size + 10 * noise * np.sqrt(len(sums))
    return bool(np.linalg.norm(sums) > limit)


def _finite(value: npt.NDArray[Any]) -> bool:
    return bool(np.isfinite(value).all())


def _distance(before: Tensors, after: Tensors) -> float:
    gaps = [np.abs(after[k].astype(np.float64) - before[k]).max(initial=0.0) for k in after if k in before]
    return float(max(gaps, default=0.0))


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
