"""What linear and small-network heads share: scaling, training, probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from understudy.errors import ConfigError, DataError
from understudy.heads.augment import FreshRows
from understudy.heads.objective import Batch, Plan, fold
from understudy.heads.rows import checked_weight, held_out, known_codes, spread, tensor
from understudy.heads.sampling import augment_probability, row_batches
from understudy.heads.settings import HeadSettings
from understudy.train import History, run_loop, seeded

__all__ = ["TorchHead"]

Pair = tuple[npt.ArrayLike, npt.ArrayLike]
Floats = npt.NDArray[np.float64]


class TorchHead(HeadSettings):
    """A classifier on embeddings, trained with Adam; subclasses give the network.

    Inputs are z-scored with the statistics of what it learns from, unless `standardize=False`.
    With `patience` it stops early on `validation`, or on a tenth of its own rows where none is given,
    and keeps the best epoch's weights. It watches the training loss, nothing mixed or generated, with classes
    weighing as they are drawn: validation rows are taken to come in the proportions of the training rows.
    What can be set for classes of unequal size is in `HeadSettings`.
    """

    classes_: npt.NDArray[Any]
    history_: History
    module_: nn.Module

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, validation: Pair | None = None) -> Self:
        """Learn from rows; `validation` is a pair of rows and labels for early stopping.

        A row of weight k counts as k rows do: in the loss where each row is drawn once, else in how often it is drawn
        among its class; in the scaler and the class counts too. One of weight 0 is as if it were not there.
        """
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        weight = checked_weight(sample_weight, len(X))
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("A classifier needs at least two classes; got one class. Add records of another.")
        settings, seed = self._settings(), self._seed()
        keep, held_weight = np.arange(len(X)), None
        if validation is None and self.patience is not None and (held := held_out(codes, seed)) is not None:
            validation, held_weight = (X[held], y[held]), None if weight is None else weight[held]
            keep = np.setdiff1d(keep, held)
        own = None if weight is None else torch.from_numpy(weight[keep])
        plan = self._plan(np.bincount(codes[keep], own, len(self.classes_)))
        fresh = None
        if self.augment is not None:
            p = augment_probability(plan.balance.records, self.p_min, self.p_max)
            fresh = FreshRows(self.augment, X[keep], y[keep], self.classes_, p, seed)
        x, target = self._prepare(X[keep], own), torch.from_numpy(codes[keep])
        batches = row_batches(
            target, len(self.classes_), settings.batch_size, self.sampler, weight=own, epochs=settings.max_epochs
        )
        # The other samplers draw a heavy row more often: it must not count twice.
        charged = None if own is None or self.sampler != "instance" else (own / own.mean()).float()

        def epoch(coins: torch.Generator) -> Iterator[Batch]:
            positions = batches(coins)
            real = ((x[i], i) for i in positions)
            drawn = real if fresh is None else fresh.mixed_in(x, target, positions, coins, self._scaled)
            return (Batch(rows, target[i], None if charged is None else charged[i]) for rows, i in drawn)

        return self._train(epoch, plan, seed, validation, held_weight)

    def fit_stream(
        self,
        stream: Iterable[tuple[Tensor, Tensor]],
        *,
        classes: npt.ArrayLike,
        samples_per_epoch: int,
        validation: Pair | None = None,
    ) -> Self:
        """Learn online from batches that never end, such as `release.stream()`: no row is seen twice.

        Class codes in the stream index `classes`. Early stopping without `validation` uses rows drawn first, and so
        do class counts, for a loss or a prior that needs them. `sampler` and `augment` have no rows to work on here;
        `AugmentedBatches` is a stream that does what they do.
        """
        if self.sampler != "instance" or self.augment is not None:
            raise ConfigError(
                "A stream is taken as it comes: leave out `sampler` and `augment`, or stream AugmentedBatches."
            )
        self.classes_ = np.asarray(classes)
        source = iter(stream)
        first = list(islice(source, max(1, 2048 // self.batch_size)))
        X, codes = torch.cat([x for x, _ in first]).numpy(), torch.cat([c for _, c in first]).numpy()
        self.n_features_in_ = X.shape[1]
        self._prepare(X)
        if validation is None and self.patience is not None:
            validation = (X, self.classes_[codes])
        steps = max(1, samples_per_epoch // len(first[0][0]))

        def epoch(_: torch.Generator) -> Iterator[Batch]:
            return (Batch(self._scaled(x), c) for x, c in islice(source, steps))

        # A class that the first rows lack is rare, not impossible.
        plan = self._plan(np.maximum(np.bincount(codes, minlength=len(self.classes_)), 1))
        return self._train(epoch, plan, self._seed(), validation)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, in the order of `classes_`, under `prior`; not calibrated."""
        check_is_fitted(self, "module_")
        X = validate_data(self, X, dtype=np.float32, reset=False)
        with torch.no_grad():
            x = self._scaled(tensor(X))
            out: npt.NDArray[np.float64] = torch.softmax(self.module_(x).double(), dim=1).numpy()
        return out

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most likely class."""
        best = self.predict_proba(X).argmax(axis=1)
        out: npt.NDArray[Any] = self.classes_[best]
        return out

    @abstractmethod
    def _network(self, inputs: int, outputs: int) -> nn.Module:
        """The layers between z-scored inputs and logits."""

    def _prepare(self, X: npt.NDArray[np.float32], weight: Tensor | None = None) -> Tensor:
        """Fit the scaler on what is learnt from, and apply it."""
        x = tensor(X)
        if not self.standardize:
            self.mean_, self.scale_ = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
            return x
        self.mean_, self.scale_ = spread(x, weight)
        return self._scaled(x)

    def _scaled(self, x: Tensor) -> Tensor:
        return (x - self.mean_) / self.scale_

    def _train(
        self,
        epoch: Callable[[torch.Generator], Iterator[Batch]],
        plan: Plan,
        seed: int,
        validation: Pair | None,
        held_weight: Floats | None = None,
    ) -> Self:
        def loss(batch: Batch, coins: torch.Generator) -> Tensor:
            return plan.objective(self.module_, batch, coins)

        validate = None
        if validation is not None and self.patience is not None:
            held = self._validation(validation, plan.balance.likeness, held_weight)

            def validate() -> float:
                # The same coins each time: epochs are compared.
                return float(plan.objective.mean(self.module_(held.x), held.target, held.weight, seeded(seed)))

        # Initial weights and dropout take torch's global coins: lend it ours, and give it back its own.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module_ = self._network(self.n_features_in_, len(self.classes_))
            self.history_ = run_loop(self.module_, epoch, loss, self._settings(), seeded(seed), validate=validate)
        fold(self.module_, plan.objective.loss.scale, plan.shift)
        return self

    def _validation(self, validation: Pair, likeness: Floats | None, weight: Floats | None) -> Batch:
        known, codes = known_codes(np.asarray(validation[1]), self.classes_)
        each = None if weight is None else weight[known]
        if likeness is not None:
            each = likeness[codes] * (1.0 if each is None else each)
        counted = None if each is None else torch.from_numpy(each / each.mean()).float()
        x = self._scaled(tensor(np.asarray(validation[0], dtype=np.float32)[known]))
        return Batch(x, torch.from_numpy(codes), counted)
