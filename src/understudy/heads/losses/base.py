"""What every loss keeps: it is built from class counts, gives one value a row, and says what its logits stand for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from understudy.errors import ConfigError

__all__ = ["Loss", "checked_counts"]

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
    def __call__(self, logits: Tensor, target: Tensor, coins: torch.Generator) -> Tensor:
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
