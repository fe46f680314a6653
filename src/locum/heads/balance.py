"""The balance of classes: in the records, in the draws, in the loss, and in the predicted probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.heads.losses import LOSSES, Loss, checked_counts
from locum.heads.sampling import class_shares

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassBalance:
    """`records` per class (or the sum of their weights), the `sampler` that draws them, and class weights.

    "progressive" counts as in its last epoch, in which classes are equal.
    """

    records: Floats
    sampler: str = "instance"
    weight: Floats | None = None

    @cached_property
    def shares(self) -> Floats:
        """Each class's share of the draws."""
        return class_shares(self.sampler, self.records)

    @cached_property
    def drawn(self) -> Floats:
        """Expected draws of each class in one epoch."""
        out: Floats = self.shares * self.records.sum()
        return out

    @cached_property
    def scaled_weight(self) -> Floats | None:
        """Class weights with a mean of 1 over the draws: the learning rate keeps its meaning."""
        if self.weight is None:
            return None
        out: Floats = self.weight / float(self.shares @ self.weight)
        return out

    @property
    def draw_weight(self) -> Floats | None:
        """Class weights that make rows in the records' proportions count like the draws; None if they already do."""
        if self.sampler == "instance":
            return None
        out: Floats = self.drawn / self.records
        return out

    def loss(self, loss: str | Callable[[Floats], Loss], counts: Any = None) -> Loss:
        """The loss by name, or made by a function of `counts`; see `LinearHead` for both."""
        if isinstance(loss, str) and loss not in LOSSES:
            raise ConfigError(f"`loss` must be one of {', '.join(LOSSES)}; got {loss!r}.")
        build = LOSSES[loss] if isinstance(loss, str) else loss
        if not callable(build):
            raise ConfigError(f"`loss` must be a name or a function of class counts; got {loss!r}.")
        known = {"records": self.records, "drawn": self.drawn}
        if isinstance(counts, str) and counts not in known:
            raise ConfigError(f"`counts` must be None, 'records', 'drawn' or one number per class; got {counts!r}.")
        if isinstance(counts, str):
            return build(known[counts])
        if counts is not None:
            return build(checked_counts(counts, len(self.records)))
        made = build(self.drawn)
        return made if made.COUNTS == "drawn" else build(known[made.COUNTS])

    def shift(self, loss: Loss, prior: Any, tau: float = 1.0) -> Floats | None:
        """What to add to scaled logits so that probabilities assume `prior`; None to keep them as trained."""
        if prior is None:
            return None
        if not isinstance(tau, int | float) or not math.isfinite(tau):
            raise ConfigError(f"`tau` must be a finite number; got {tau!r}. 1 is the full correction.")
        wanted: dict[str, Floats] = {"train": self.records, "uniform": np.ones(len(self.records))}
        if isinstance(prior, str) and prior not in wanted:
            raise ConfigError(f"`prior` must be None, 'train', 'uniform' or one number per class; got {prior!r}.")
        goal = wanted[prior] if isinstance(prior, str) else checked_counts(prior, len(self.records), "prior")
        implied = self.shares * loss.tilt * (1.0 if self.weight is None else self.weight)
        out: Floats = tau * (np.log(goal / goal.sum()) - np.log(implied / implied.sum()))
        return out


def class_weights(setting: Any, classes: npt.NDArray[Any], records: Floats) -> Floats | None:
    """One weight per class: None, "balanced" (the inverse of its records), or from a mapping."""
    if setting is None:
        return None
    if isinstance(setting, str) and setting == "balanced":
        even: Floats = records.sum() / (len(records) * records)
        return even
    if not isinstance(setting, Mapping):
        raise ConfigError(f"`class_weight` must be None, 'balanced' or a mapping from labels; got {setting!r}.")
    place = {label: code for code, label in enumerate(classes.tolist())}
    out = np.ones(len(classes))
    for label, value in setting.items():
        key = label.item() if isinstance(label, np.generic) else label
        if key not in place:
            raise ConfigError(f"`class_weight` names a class {label!r} that the rows do not have.")
        if not 0 < value < math.inf:
            raise ConfigError(f"`class_weight` must be above 0; got {value!r} for class {label!r}.")
        out[place[key]] = value
    return out
