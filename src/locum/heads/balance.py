"""How classes weigh: in the records, in what is drawn, in the loss, and in the probabilities that come out."""

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
    """`records` a class, or the sum of their weights; which `sampler` draws them; how a class's rows are weighted.

    "progressive" is reckoned by its last epoch, in which classes are even.
    """

    records: Floats
    sampler: str = "instance"
    weight: Floats | None = None

    @cached_property
    def shares(self) -> Floats:
        """Share of the draws that each class has."""
        return class_shares(self.sampler, self.records)

    @cached_property
    def drawn(self) -> Floats:
        """Draws of each class, in one epoch, on average."""
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
    def likeness(self) -> Floats | None:
        """Weights that make rows in the proportions of the records count as the draws do; none where they do so."""
        if self.sampler == "instance":
            return None
        out: Floats = self.drawn / self.records
        return out

    def loss(self, loss: str | Callable[[Floats], Loss], counts: Any = None) -> Loss:
        """The loss by name, or what a function makes of `counts`; see `HeadSettings` for both."""
        if isinstance(loss, str) and loss not in LOSSES:
            raise ConfigError(f"`loss` must be one of {', '.join(LOSSES)}; got {loss!r}.")
        build = LOSSES[loss] if isinstance(loss, str) else loss
        if not callable(build):
            raise ConfigError(f"`loss` must be a name or a function of class counts; got {loss!r}.")
        known = {"records": self.records, "drawn": self.drawn}
        if isinstance(counts, str) and counts not in known:
            raise ConfigError(f"`counts` must be None, 'records', 'drawn' or one number a class; got {counts!r}.")
        if isinstance(counts, str):
            return build(known[counts])
        if counts is not None:
            return build(checked_counts(counts, len(self.records)))
        made = build(self.drawn)
        return made if made.COUNTS == "drawn" else build(known[made.COUNTS])

    def shift(self, loss: Loss, prior: Any, tau: float = 1.0) -> Floats | None:
        """What to add to scaled logits so that probabilities fit `prior`; none where they stay as trained."""
        if prior is None:
            return None
        if not isinstance(tau, int | float) or not math.isfinite(tau):
            raise ConfigError(f"`tau` must be a finite number; got {tau!r}. 1 is the full correction.")
        wanted: dict[str, Floats] = {"train": self.records, "uniform": np.ones(len(self.records))}
        if isinstance(prior, str) and prior not in wanted:
            raise ConfigError(f"`prior` must be None, 'train', 'uniform' or one number a class; got {prior!r}.")
        goal = wanted[prior] if isinstance(prior, str) else checked_counts(prior, len(self.records), "prior")
        implied = self.shares * loss.tilt * (1.0 if self.weight is None else self.weight)
        out: Floats = tau * (np.log(goal / goal.sum()) - np.log(implied / implied.sum()))
        return out


def class_weights(setting: Any, classes: npt.NDArray[Any], records: Floats) -> Floats | None:
    """One weight a class: none, "balanced" (by the inverse of its records), or those that a mapping names."""
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
