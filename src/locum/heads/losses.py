"""Losses for classes of unequal size, one file each; `LOSSES[name](counts)` builds one."""

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
    """A loss for classes of unequal size; `counts` holds how many records each class has.

    Calling it with logits (n, C), class codes (n,) and coins gives one value a row: the mean over a batch is what
    training lowers, and rows can be weighted. A mixed row has two labels: it is charged for each by its share, which
    for cross entropy is the same as a soft target.
    """

    counts: Floats
    # Which counts this loss is about: "drawn", classes as the sampler shows them, or "records", how many there are.
    COUNTS: ClassVar[Literal["drawn", "records"]] = "drawn"

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", checked_counts(self.counts))

    @abstractmethod
    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""

    @property
    def scale(self) -> float:
        """The softmax of `scale` times the logits is what training makes a probability."""
        return 1.0

    @property
    def tilt(self) -> Floats:
        """How the loss bends the class prior: probabilities stand for draws with shares times `tilt`.

        Exact for cross entropy, balanced softmax and class weights. Focal, equalization and LDAM are no proper
        scores: their probabilities stand for no prior exactly, and are treated as if for that of the draws. Focal's
        are too modest for that: a correction of its prior goes too far.
        """
        return np.ones(len(self.counts))


def checked_counts(counts: Any, classes: int | None = None, name: str = "counts") -> Floats:
    """One finite number above 0 a class; a class without records has no place in a loss."""
    try:
        out = np.array(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"`{name}` must hold one number a class; got {counts!r}.") from None
    if out.ndim != 1 or len(out) == 0 or (classes is not None and len(out) != classes):
        wanted = "one number a class" if classes is None else f"one number for each of {classes} classes"
        raise ConfigError(f"`{name}` must hold {wanted}; got shape {out.shape}.")
    if not (np.isfinite(out).all() and (out > 0).all()):
        raise ConfigError(f"`{name}` must be above 0 for every class; got {out.min():g} as the smallest.")
    out.flags.writeable = False
    return out


@dataclass(frozen=True, eq=False)
class BalancedSoftmax(Loss):
    """Cross entropy of logits plus the log of the class counts: what is learnt fits classes of equal size.

    The counts must be those of the rows that the loss sees. Where a sampler has balanced them already, the records'
    own counts would correct a second time, and the frequent classes would pay.

    >>> import math, torch
    >>> value = BalancedSoftmax([3, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(4), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
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

    `beta=0` is cross entropy, `beta` near 1 weighs by 1 / n. With 0.99 classes of a few hundred records or more
    weigh the same: the effective number ends at 100.
    """

    beta: float = 0.99

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
        return functional.cross_entropy(logits, target, reduction="none") * self._weights[target]

    @property
    def tilt(self) -> Floats:
        """A class's weight acts as if it had that many times its records."""
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
class CrossEntropy(Loss):
    """The negative log-probability of the right class; it does not look at `counts`.

    >>> import math, torch
    >>> value = CrossEntropy([9, 1])(torch.zeros(1, 2), torch.tensor([1]), torch.Generator())
    >>> math.isclose(float(value), math.log(2), rel_tol=1e-6)
    True
    """

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
        return functional.cross_entropy(logits, target, reduction="none")


@dataclass(frozen=True, eq=False)
class Equalization(Loss):
    """Cross entropy in which a rare class is left out of the rows of others, with probability `gamma` each time.

    A class is rare where its share of all records is below `lambda_`; where none is, this is cross entropy. One coin
    is thrown for each row and class.
    """

    lambda_: float = 1e-3
    gamma: float = 0.95

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
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

    It does not look at `counts`: rare classes gain only as far as they are harder. Probabilities come out too modest.
    """

    gamma: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
        plain = functional.cross_entropy(logits, target, reduction="none")
        # A row that is surely right must not have a slope of infinity, which a power below 1 has at 0.
        wrong = -torch.expm1(-plain)
        return wrong.clamp_min(torch.finfo(wrong.dtype).tiny) ** self.gamma * plain

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < math.inf:
            raise ConfigError(f"`gamma` must be 0 or more; got {self.gamma!r}. 2 is usual, 0 is cross entropy.")


@dataclass(frozen=True, eq=False)
class LDAM(Loss):
    """Cross entropy of `s` times the logits, after a margin is taken off the right class's.

    The margin goes with n ** -1/4 and is `max_m` for the smallest class. It answers to how few records a class has,
    however often they are drawn: it uses the records' counts. The paper measures angles: it scales weights and inputs
    to length 1. Here the logits are a plain layer's, so that the margin is a distance between scores.
    """

    max_m: float = 0.5
    s: float = 30.0
    COUNTS: ClassVar[Literal["drawn", "records"]] = "records"

    def __call__(self, logits: Tensor, target: Tensor, rng: torch.Generator) -> Tensor:
        """One value a row."""
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
