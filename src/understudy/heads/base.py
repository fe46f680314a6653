"""What linear and small-network heads share: scaling, training, probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn import functional

from understudy.errors import ConfigError, DataError
from understudy.train import History, LoopSettings, run_loop, seeded, shuffled_batches

__all__ = ["TorchHead"]

Pair = tuple[npt.ArrayLike, npt.ArrayLike]


class TorchHead(ClassifierMixin, BaseEstimator):
    """A classifier on embeddings, trained with Adam; subclasses give the network.

    Inputs are z-scored with the statistics of what it learns from, unless `standardize=False`.
    With `patience` it stops early on `validation`, or on a tenth of its own rows where none is given,
    and keeps the best epoch's weights.
    """

    classes_: npt.NDArray[Any]
    history_: History
    module_: nn.Module

    def __init__(
        self,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        max_epochs: int = 100,
        patience: int | None = 5,
        weight_decay: float = 0.0,
        standardize: bool = True,
        random_state: int | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, validation: Pair | None = None) -> Self:
        """Learn from rows; `validation` is a pair of rows and labels for early stopping."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("A classifier needs at least two classes; got one class. Add records of another.")
        settings = self._settings()
        keep = np.arange(len(X))
        if validation is None and self.patience is not None and (held := _held_out(codes, self._seed())) is not None:
            validation = (X[held], y[held])
            keep = np.setdiff1d(keep, held)
        x, target = self._prepare(X[keep]), torch.from_numpy(codes[keep])
        batches = shuffled_batches(len(keep), settings.batch_size)

        def pairs(coins: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
            return ((x[i], target[i]) for i in batches(coins))

        return self._train(pairs, validation)

    def fit_stream(
        self,
        stream: Iterable[tuple[Tensor, Tensor]],
        *,
        classes: npt.ArrayLike,
        samples_per_epoch: int,
        validation: Pair | None = None,
    ) -> Self:
        """Learn online from batches that never end, such as `release.stream()`: no row is seen twice.

        Class codes in the stream index `classes`. Early stopping without `validation` uses rows drawn first.
        """
        self.classes_ = np.asarray(classes)
        source = iter(stream)
        first = list(islice(source, max(1, 2048 // self.batch_size)))
        X = torch.cat([x for x, _ in first]).numpy()
        self.n_features_in_ = X.shape[1]
        self._prepare(X)
        if validation is None and self.patience is not None:
            validation = (X, self.classes_[torch.cat([c for _, c in first]).numpy()])
        steps = max(1, samples_per_epoch // len(first[0][0]))

        def pairs(_: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
            return (((x - self.mean_) / self.scale_, c) for x, c in islice(source, steps))

        return self._train(pairs, validation)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, in the order of `classes_`; not calibrated."""
        check_is_fitted(self, "module_")
        X = validate_data(self, X, dtype=np.float32, reset=False)
        with torch.no_grad():
            x = (_tensor(X) - self.mean_) / self.scale_
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

    def _settings(self) -> LoopSettings:
        return LoopSettings(self.max_epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience)

    def _seed(self) -> int:
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(np.random.SeedSequence(int(self.random_state)).generate_state(1)[0])

    def _prepare(self, X: npt.NDArray[np.float32]) -> Tensor:
        """Fit the scaler on what is learnt from, and apply it."""
        x = _tensor(X)
        if not self.standardize:
            self.mean_, self.scale_ = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
            return x
        self.mean_ = x.mean(dim=0)
        scale = x.std(dim=0, correction=0)
        # A constant feature tells nothing: leave it at zero instead of blowing it up.
        self.scale_ = torch.where(scale > 1e-6 * (self.mean_.abs() + 1e-6), scale, torch.ones_like(scale))
        return (x - self.mean_) / self.scale_

    def _train(self, pairs: Any, validation: Pair | None) -> Self:
        seed = self._seed()

        def loss(batch: tuple[Tensor, Tensor], _: torch.Generator) -> Tensor:
            return functional.cross_entropy(self.module_(batch[0]), batch[1])

        validate = None
        if validation is not None and self.patience is not None:
            v, target = self._validation(validation)

            def validate() -> float:
                return float(functional.cross_entropy(self.module_(v), target))

        # Initial weights and dropout take torch's global coins: lend it ours, and give it back its own.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module_ = self._network(self.n_features_in_, len(self.classes_))
            self.history_ = run_loop(self.module_, pairs, loss, self._settings(), seeded(seed), validate=validate)
        return self

    def _validation(self, validation: Pair) -> tuple[Tensor, Tensor]:
        X = np.asarray(validation[0], dtype=np.float32)
        y = np.asarray(validation[1])
        known = np.isin(y, self.classes_)
        if not known.any():
            raise ConfigError("The validation rows share no class with the training rows; give others.")
        order = np.argsort(self.classes_)
        codes = torch.from_numpy(order[np.searchsorted(self.classes_, y[known], sorter=order)])
        return (_tensor(X[known]) - self.mean_) / self.scale_, codes


def _tensor(X: npt.NDArray[np.float32]) -> Tensor:
    # Frozen arrays are copied: torch cannot keep a promise not to write.
    return torch.from_numpy(np.require(X, requirements=["C", "W"]))


def _held_out(codes: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64] | None:
    """A stratified tenth; none where a class is too small to spare a row."""
    counts = np.bincount(codes)
    held = round(0.1 * len(codes))
    if counts.min() < 2 or held < len(counts):
        return None
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=held, random_state=seed % 2**32)
    _, test = next(splitter.split(codes, codes))
    out: npt.NDArray[np.int64] = test
    return out
