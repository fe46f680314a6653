"""Which rows an epoch draws, and how likely each one is to be replaced by a generated row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from locum.errors import ConfigError
from locum.train import shuffled_batches

SAMPLERS = ("instance", "class_balanced", "square_root", "progressive")
Floats = npt.NDArray[np.float64]


def class_shares(sampler: str, counts: npt.ArrayLike, progress: float = 1.0) -> Floats:
    """Each class's share of an epoch's draws.

    Parameters
    ----------
    sampler
        "instance": proportional to its records; "class_balanced": equal for all classes; "square_root": proportional
        to the square root of its records; "progressive": from the first to the second as `progress` goes from 0 to 1.
    counts
        The number of records of each class.
    progress
        How far training is, from 0 to 1; only "progressive" uses it.

    Returns
    -------
    ndarray of shape (classes,)
        The shares; they sum to 1.

    Examples
    --------
    >>> from locum.heads import class_shares
    >>> class_shares("square_root", [900, 100]).tolist()
    [0.75, 0.25]
    >>> class_shares("progressive", [900, 100], progress=0.5).tolist()
    [0.7, 0.3]
    """
    if sampler not in SAMPLERS:
        raise ConfigError(f"`sampler` must be one of {', '.join(SAMPLERS)}; got {sampler!r}.")
    n = np.asarray(counts, dtype=np.float64)
    if sampler == "square_root":
        n, sampler = np.sqrt(n), "instance"
    balanced = {"instance": 0.0, "class_balanced": 1.0, "progressive": progress}[sampler]
    out: Floats = (1 - balanced) * n / n.sum() + balanced / len(n)
    return out


def row_probability(codes: Tensor, shares: Floats, weight: Tensor | None = None) -> Tensor:
    """The probability of each row at each draw: its class's share, split evenly or by `weight` within the class.

    With equal shares and no weight that is 1 / (C n) for a row of a class of n, as in equation 3 of the thesis.
    """
    own = torch.ones(len(codes), dtype=torch.float64) if weight is None else weight.double()
    total = torch.zeros(len(shares), dtype=torch.float64).index_add_(0, codes, own)
    return own * (torch.from_numpy(shares) / total)[codes]


def drawn_rows(probability: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """`n` positions, drawn with replacement."""
    steps = probability.cumsum(0)
    # Torch's own multinomial is limited to 2 ** 24 rows.
    at = torch.rand(n, dtype=torch.float64, generator=rng) * steps[-1]
    return torch.searchsorted(steps, at, right=True).clamp_(max=len(steps) - 1)


def row_batches(
    codes: Tensor,
    classes: int,
    batch_size: int,
    sampler: str = "instance",
    *,
    weight: Tensor | None = None,
    epochs: int,
) -> Callable[[torch.Generator], Iterator[Tensor]]:
    """Batches of positions; each call is the next epoch of as many draws as there are rows.

    "instance" shuffles: every row once, whatever its weight. The others draw with replacement, rows of a class by
    their `weight`. "progressive" ends at equal shares in the last of `epochs`.
    """
    shuffled = shuffled_batches(len(codes), batch_size)
    if sampler == "instance":
        return shuffled
    own = torch.ones(len(codes), dtype=torch.float64) if weight is None else weight.double()
    counts = torch.zeros(classes, dtype=torch.float64).index_add_(0, codes, own).numpy()
    class_shares(sampler, counts)  # an unknown name fails here, not at the first batch
    epoch = count()

    def batches(rng: torch.Generator) -> Iterator[Tensor]:
        shares = class_shares(sampler, counts, min(1.0, next(epoch) / max(1, epochs - 1)))
        rows = drawn_rows(row_probability(codes, shares, own), len(codes), rng)
        return (rows[i] for i in shuffled(rng))

    return batches


def augment_probability(counts: npt.ArrayLike, p_min: float = 0.01, p_max: float = 0.7) -> Floats:
    """The probability, per class, that a drawn record is replaced by a generated one (thesis, equations 4 and 5).

    1 / n is scaled to 0 for the largest class and 1 for the smallest, then clipped to `p_min` and `p_max`. If all
    classes have the same size, it is `p_min`.

    Parameters
    ----------
    counts
        The number of records of each class, above 0.
    p_min, p_max
        The smallest and the largest probability, from 0 to 1.

    Returns
    -------
    ndarray of shape (classes,)
        One probability per class.

    Examples
    --------
    >>> from locum.heads import augment_probability
    >>> augment_probability([1000, 100, 50]).round(4).tolist()
    [0.01, 0.4737, 0.7]
    """
    if not 0 <= p_min <= p_max <= 1:
        raise ConfigError(f"`p_min` and `p_max` must be from 0 to 1, in that order; got {p_min!r} and {p_max!r}.")
    rarity = 1 / np.asarray(counts, dtype=np.float64)
    span = rarity.max() - rarity.min()
    # Sums of weights can differ in their last digit only; that is not an imbalance.
    scaled = (rarity - rarity.min()) / span if span > 1e-9 * rarity.max() else np.zeros_like(rarity)
    out: Floats = np.clip(scaled, p_min, p_max)
    return out
