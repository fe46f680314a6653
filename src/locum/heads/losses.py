"""Losses for classes of unequal size; `LOSSES[name](counts)` builds one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from locum.errors import ConfigError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Loss(ABC):
    """Base class of losses for classes of unequal size; `LOSSES` holds them by name.

    Calling it with logits (n, C), class codes (n,) and a generator gives one value per row: training minimizes their
    mean over a batch, and rows can be weighted. A mixed row has two labels: its loss is the average over both by
    their shares, which for cross entropy is the same as a soft target.

    Parameters
    ----------
    counts
        How many records each class has, above 0.

    Examples
    --------
    >>> import torch
    >>> from locum.heads import LOSSES
    >>> balanced = LOSSES["balanced_softmax"]([3, 1])
    >>> value = balanced(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())  # log 4
    >>> round(value.item(), 3)
    1.386
    """

    counts: Floats
    # The counts that this loss needs: "drawn", as the sampler draws the classes, or "records", as they are.
    COUNTS: ClassVar[Literal["drawn", "records"]] = "drawn"

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", checked_counts(self.counts))

    @abstractmethod
    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""

    @property
    def scale(self) -> float:
        """Training turns the softmax of `scale` times the logits into probabilities."""
        return 1.0

    @property
    def tilt(self) -> Floats:
        """How the loss changes the class prior: probabilities assume the shares of the draws times `tilt`.

        Exact for cross entropy, balanced softmax and class weights. Focal, equalization and LDAM are not proper
        scores: their probabilities match no prior exactly, and are treated as if they matched the draws. Focal's are
        underconfident: correcting its prior goes too far.
        """
        return np.ones(len(self.counts))


@dataclass(frozen=True, eq=False)
class CrossEntropy(Loss):
    """The negative log-probability of the right class; it ignores `counts`.

    >>> import math, torch
    >>> value = CrossEntropy([9, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(2), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        return functional.cross_entropy(logits, target, reduction="none")


@dataclass(frozen=True, eq=False)
class BalancedSoftmax(Loss):
    """Cross entropy of the logits plus the log of the class counts: the logits then assume classes of equal size.

    The counts must be those of the rows that the loss sees. If a sampler has balanced them already, the records' own
    counts would correct a second time, and frequent classes would be penalized.

    >>> import math, torch
    >>> value = BalancedSoftmax([3, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(4), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        return functional.cross_entropy(logits + self._log_shares, target, reduction="none")

    @property
    def tilt(self) -> Floats:
        """Each class is divided by its count."""
        return 1 / self.counts

    @cached_property
    def _log_shares(self) -> Tensor:
        return torch.from_numpy(np.log(self.counts / self.counts.sum())).float()


@dataclass(frozen=True, eq=False)
class ClassBalanced(Loss):
    """Cross entropy times (1 - beta) / (1 - beta ** n) for a class of n records, scaled to a mean of 1 over classes.

    `beta=0` is cross entropy, `beta` near 1 weights by 1 / n. With 0.99, all classes of a few hundred records or more
    have the same weight: the effective number of records approaches 100.
    """

    beta: float = 0.99

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        return functional.cross_entropy(logits, target, reduction="none") * self._weights[target]

    @property
    def tilt(self) -> Floats:
        """A class's weight acts like that many times its records."""
        effective = 1 - self.beta**self.counts
        out: Floats = 1 / effective / np.mean(1 / effective)
        return out

    @cached_property
    def _weights(self) -> Tensor:
        return torch.from_numpy(self.tilt).float()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta < 1:
            raise ConfigError(f"`beta` must be 0 or more and below 1; got {self.beta!r}. 0.99 is usual.")


@dataclass(frozen=True, eq=False)
class Equalization(Loss):
    """Cross entropy in which rows of other classes ignore a rare class with probability `gamma`.

    A class is rare if its share of all records is below `lambda_`; without rare classes this is cross entropy. Rows
    and classes are drawn independently.
    """

    lambda_: float = 1e-3
    gamma: float = 0.95

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        if len(self._rare):
            ignored = torch.zeros(logits.shape, dtype=torch.bool)
            ignored[:, self._rare] = torch.rand(len(logits), len(self._rare), generator=rng) < self.gamma
            ignored.scatter_(1, target[:, None], False)
            logits = logits.masked_fill(ignored, -torch.inf)
        return functional.cross_entropy(logits, target, reduction="none")

    @cached_property
    def _rare(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.counts / self.counts.sum() < self.lambda_))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lambda_", "gamma"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError(f"`{name}` must be from 0 to 1; got {value!r}.")


@dataclass(frozen=True, eq=False)
class Focal(Loss):
    """Cross entropy times (1 - p) ** gamma, with p the probability of the right class; `gamma=0` is cross entropy.

    It ignores `counts`: rare classes gain only as far as they are harder. Probabilities come out underconfident.
    """

    gamma: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        plain = functional.cross_entropy(logits, target, reduction="none")
        # A power below 1 has an infinite slope at 0, where a row is certainly right.
        wrong = -torch.expm1(-plain)
        return wrong.clamp_min(torch.finfo(wrong.dtype).tiny) ** self.gamma * plain

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < math.inf:
            raise ConfigError(f"`gamma` must be 0 or more; got {self.gamma!r}. 2 is usual, 0 is cross entropy.")


@dataclass(frozen=True, eq=False)
class LDAM(Loss):
    """Cross entropy of `s` times the logits, after subtracting a margin from the right class's logit.

    The margin is proportional to n ** -1/4 and is `max_m` for the smallest class. It depends on how few records a
    class has, however often they are drawn, so it uses the records' counts. The paper measures angles: it scales
    weights and inputs to length 1. Here the logits are those of a plain layer, so the margin is a distance between
    scores.
    """

    max_m: float = 0.5
    s: float = 30.0
    COUNTS: ClassVar[Literal["drawn", "records"]] = "records"

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value per row."""
        off = torch.zeros_like(logits).scatter_(1, target[:, None], self._margins[target][:, None])
        return functional.cross_entropy(self.s * (logits - off), target, reduction="none")

    @property
    def scale(self) -> float:
        """`s`."""
        return float(self.s)

    @cached_property
    def _margins(self) -> Tensor:
        narrow = self.counts**-0.25
        return torch.from_numpy(self.max_m * narrow / narrow.max()).float()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.max_m < math.inf:
            raise ConfigError(f"`max_m` must be 0 or more; got {self.max_m!r}. 0.5 is usual.")
        if not 0 < self.s < math.inf:
            raise ConfigError(f"`s` must be above 0; got {self.s!r}. 30 is usual.")


LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "balanced_softmax": BalancedSoftmax,
    "class_balanced": ClassBalanced,
    "focal": Focal,
    "equalization": Equalization,
    "ldam": LDAM,
}


def checked_counts(counts: Any, classes: int | None = None, name: str = "counts") -> Floats:
    """One finite number above 0 per class; a loss has no use for a class without records."""
    try:
        out = np.array(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"`{name}` must hold one number per class; got {counts!r}.") from None
    if out.ndim != 1 or len(out) == 0 or (classes is not None and len(out) != classes):
        wanted = "one number per class" if classes is None else f"one number for each of {classes} classes"
        raise ConfigError(f"`{name}` must hold {wanted}; got shape {out.shape}.")
    if not (np.isfinite(out).all() and (out > 0).all()):
        raise ConfigError(f"`{name}` must be above 0 for every class; got {out.min():g} as the smallest.")
    out.flags.writeable = False
    return out
