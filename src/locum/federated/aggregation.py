"""The decoder that sites share: its initial weights, which replies are used, and how updates are averaged.

The mean follows every site; median and trimmed mean are averages that a few poisoned sites cannot move far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.federated.protocol import Reply, Request, Tensors
from locum.federated.settings import FederationSettings

if TYPE_CHECKING:
    from locum.nets import CVAE

Decoder = Mapping[str, npt.NDArray[np.float32]]
# Adam moves no weight by more than 3.2 learning rates per step, whatever the gradients: (1 - 0.9) / sqrt(1 - 0.999).
_ADAM = 3.2
# A site may have more records than it declared, and one that takes twice as many steps does not ruin the run.
_SLACK = 2.0


def initial_network(settings: FederationSettings) -> CVAE:
    """The network that all sites start from: its decoder is the first shared one, its encoder becomes personal."""
    # Imported late: a site that sends sums needs no torch.
    import torch

    from locum.nets import plain_cvae

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return plain_cvae(settings.dim, len(settings.classes), settings.hidden, settings.latent, sigmoid=False)


def decoder_tensors(network: CVAE) -> dict[str, npt.NDArray[np.float32]]:
    """A copy of the weights that leave a site."""
    return {name: value.detach().numpy().copy() for name, value in network.decoder.state_dict().items()}


def max_move(settings: FederationSettings, steps: int) -> float:
    """A generous bound on how far one weight can move in so many steps of a site's training."""
    return _SLACK * _ADAM * settings.learning_rate * steps


def why_refused(
    request: Request, reply: Reply, wanted: Mapping[str, tuple[int, ...]] | None, limit: float | None = None
) -> str:
    """Why a reply is not used, in a few words; empty if it is used.

    `wanted` are the shapes of its tensors; None: the caller checks them. With `limit` no weight may lie farther than
    that from the one in the request. A site that lies within the limit is not detected here: robust averages are for
    that.
    """
    if (reply.step, reply.round) != (request.step, request.round):
        return "a reply to another request"
    if reply.nonce != request.nonce:
        return "a reply that was sent before"
    # Shares are bytes, masked sums are words, and everything else is a number.
    kind = {"share": np.dtype(np.uint8), "sum": np.dtype(np.uint64)}.get(request.step)
    if any(
        value.dtype != (kind or value.dtype) or (kind is None and value.dtype.kind != "f")
        for value in reply.tensors.values()
    ):
        return "tensors of the wrong type"
    shapes = {name: tuple(value.shape) for name, value in reply.tensors.items()}
    if wanted is not None and shapes != dict(wanted):
        return "tensors with the wrong names or shapes"
    if not all(_finite(value) for value in reply.tensors.values()):
        return "numbers that are not finite"
    if limit is not None and _distance(request.tensors, reply.tensors) > limit:
        return "weights that are too far from where training began"
    return ""


def too_large(sums: npt.NDArray[Any], size: int, noise: float) -> bool:
    """Whether sums are longer than those of twice the declared number of units could be, noise included.

    Each unit moves them by at most 1. A site that declares a huge size is weighted by what it sends, like any other:
    the consortium has to agree on how many records a site may declare (`max_size`).
    """
    # Noise of n numbers has a length close to sqrt(n) times its deviation, and never ten times that.
    limit = _SLACK * size + 10 * noise * np.sqrt(len(sums))
    return bool(np.linalg.norm(sums) > limit)


def average(
    updates: Sequence[Decoder], weights: Sequence[float], how: str = "mean", trim: float = 0.2
) -> dict[str, npt.NDArray[np.float32]]:
    """Average the decoders of sites, coordinate by coordinate.

    Median and trimmed mean weight all sites equally, because a site could lie about its weight. A trimmed mean of m
    sites leaves out `floor(trim * m)` at either end, and at least one: it takes three or more.

    Parameters
    ----------
    updates
        Weights of each site's decoder, by name.
    weights
        A weight above 0 per site; used by "mean" only.
    how
        "mean", "median" or "trimmed-mean".
    trim
        For "trimmed-mean": the share of the sites to leave out at either end.

    Returns
    -------
    dict of ndarray
        The average, by name.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.federated import average
    >>> one = [{"w": np.float32([v])} for v in (1.0, 2.0, 3.0, 900.0)]
    >>> [float(average(one, [1] * 4, how, 0.25)["w"][0]) for how in ("mean", "median", "trimmed-mean")]
    [226.5, 2.5, 2.5]
    """
    if not updates or len(updates) != len(weights) or not all(0 < w < np.inf for w in weights):
        raise ConfigError(
            f"An average needs updates, each with a weight above 0; got {len(updates)} updates and the weights "
            f"{list(weights)[:10]!r}."
        )
    if how not in ("mean", "median", "trimmed-mean"):
        raise ConfigError(f"`how` must be 'mean', 'median' or 'trimmed-mean'; got {how!r}.")
    cut = max(1, int(trim * len(updates)))
    if how == "trimmed-mean" and len(updates) <= 2 * cut:
        raise ConfigError(f"A mean trimmed by {cut} at either end needs {2 * cut + 1} sites; got {len(updates)}.")
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    out = {}
    for name in updates[0]:
        values = np.stack([u[name] for u in updates]).astype(np.float64)
        if how == "mean":
            found = np.tensordot(shares, values, axes=1)
        elif how == "median":
            found = np.median(values, axis=0)
        else:
            found = np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)
        out[name] = found.astype(np.float32)
    return out


def _finite(value: npt.NDArray[Any]) -> bool:
    return bool(np.isfinite(value).all())


def _distance(before: Tensors, after: Tensors) -> float:
    gaps = [np.abs(after[k].astype(np.float64) - before[k]).max(initial=0.0) for k in after if k in before]
    return float(max(gaps, default=0.0))
