"""What can be set on a head, and what it means for classes of given sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from understudy.errors import ConfigError
from understudy.heads.balance import ClassBalance, class_weights
from understudy.heads.objective import Plan, make_plan
from understudy.heads.remix import Remix
from understudy.train import LoopSettings

__all__ = ["HeadSettings"]


class HeadSettings(ClassifierMixin, BaseEstimator):
    """The settings that all heads have.

    Those after `random_state` are for classes of unequal size; their defaults treat every record alike.

    loss
        "cross_entropy", "balanced_softmax", "class_balanced", "focal", "equalization", "ldam", or a function that
        makes a `Loss` of class counts, such as `functools.partial(Focal, gamma=1)`.
    sampler
        Which rows an epoch draws: "instance" (each once), "class_balanced", "square_root" or "progressive", which
        moves from the first to the second and so needs all its epochs: `patience=None`. All but the first draw with
        replacement.
    remix
        Mix the rows of a batch: True, or a `Remix` with other settings.
    augment, p_min, p_max
        A generator or a release: a drawn record is replaced by a fresh sample of its class with a probability that
        goes from `p_min` for the largest class to `p_max` for the smallest (`augment_probability`). With
        `sampler="class_balanced"` this is the thesis's algorithm 1. One that is not fitted is cloned, and fitted on
        the rows that the head learns from; scikit-learn's `clone` of a head makes its generator such a one.
    class_weight
        Weights in the loss: None, "balanced", or a mapping from labels.
    counts
        Which class counts the loss is built from: "records", "drawn" (classes as the sampler shows them; a replaced
        record keeps its class, so that augmentation changes nothing), one number a class in the order of `classes_`,
        or None: what fits the loss. That is "drawn" for all but LDAM, whose margins are about how few records there
        are. Balanced softmax and weights undo an imbalance, which the sampler may have undone already: with "records"
        and balanced draws frequent classes pay twice.
    prior, tau
        Which class frequencies the probabilities are meant for: None, as trained; "train", those of the records;
        "uniform"; or one number a class. The logits get tau * (log prior - log implied), where `implied` is the
        prior that training shows: the share of draws, times class weights, divided by the counts of balanced softmax
        or times the weights of the class-balanced loss. So `prior="uniform"` with cross entropy is logit adjustment
        after the fact. It is exact in the limit for proper losses; see `Loss.tilt` for the others.
    """

    classes_: npt.NDArray[Any]

    def __init__(
        self,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        max_epochs: int = 100,
        patience: int | None = 5,
        weight_decay: float = 0.0,
        standardize: bool = True,
        random_state: int | None = None,
        *,
        loss: Any = "cross_entropy",
        sampler: str = "instance",
        remix: bool | Remix = False,
        augment: Any = None,
        p_min: float = 0.01,
        p_max: float = 0.7,
        class_weight: Any = None,
        counts: Any = None,
        prior: Any = None,
        tau: float = 1.0,
    ) -> None:
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.random_state = random_state
        self.loss = loss
        self.sampler = sampler
        self.remix = remix
        self.augment = augment
        self.p_min = p_min
        self.p_max = p_max
        self.class_weight = class_weight
        self.counts = counts
        self.prior = prior
        self.tau = tau

    def _settings(self) -> LoopSettings:
        return LoopSettings(self.max_epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience)

    def _seed(self) -> int:
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(np.random.SeedSequence(int(self.random_state)).generate_state(1)[0])

    def _plan(self, records: npt.NDArray[Any]) -> Plan:
        """What the settings mean for classes of these sizes; wrong ones show here, before any work."""
        if self.sampler == "progressive" and self.patience is not None:
            raise ConfigError("`sampler='progressive'` needs all its epochs: give it `patience=None`.")
        counts = records.astype(np.float64)
        balance = ClassBalance(counts, self.sampler, class_weights(self.class_weight, self.classes_, counts))
        return make_plan(balance, self.loss, self.counts, self.remix, self.prior, self.tau)
