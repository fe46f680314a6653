"""Classifiers on embeddings, trained with torch: `LinearHead` and `MLPHead`, with the settings they share.

A head scales its inputs, draws rows, trains with early stopping, and corrects its last layer for a class prior.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from itertools import islice
from threading import Lock
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from locum.errors import ConfigError, DataError
from locum.heads.augment import FreshRows
from locum.heads.balance import ClassBalance, class_weights
from locum.heads.objective import Batch, Plan, fold, make_plan
from locum.heads.remix import Remix
from locum.heads.sampling import augment_probability, row_batches
from locum.train import (
    History,
    LoopSettings,
    ShuffledRows,
    held_out_records,
    pick_device,
    run_loop,
    seeded,
    seeded_weights,
    survey,
)
from locum.types import Batches, EmbeddingSet, SetBatches

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
Pair = tuple[npt.ArrayLike, npt.ArrayLike]


# Copies in double precision, for as long as their networks live; not in the heads: predicting changes no estimator.
_DOUBLES: WeakKeyDictionary[nn.Module, tuple[object, nn.Module]] = WeakKeyDictionary()
_DOUBLES_LOCK = Lock()


def _in_double(module: nn.Module) -> nn.Module:
    """A copy of a network in double precision, made again only if the network has changed since."""
    state = [(tensor.data_ptr(), tensor._version) for tensor in (*module.parameters(), *module.buffers())]
    now = (state, [part.training for part in module.modules()])
    with _DOUBLES_LOCK:
        known = _DOUBLES.get(module)
        if known is None or known[0] != now:
            known = _DOUBLES[module] = (now, deepcopy(module).double())
    return known[1]


class HeadSettings(ClassifierMixin, BaseEstimator):
    """The settings that all heads share; `LinearHead` describes them."""

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
        device: str = "auto",
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
        self.device = device

    def _settings(self) -> LoopSettings:
        return LoopSettings(self.max_epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience)

    def _seed(self) -> int:
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(np.random.SeedSequence(int(self.random_state)).generate_state(1)[0])

    def _plan(self, records: npt.NDArray[Any]) -> Plan:
        """The settings made into objects for classes of these sizes; wrong settings fail here, before any work."""
        if self.sampler == "progressive" and self.patience is not None:
            raise ConfigError("`sampler='progressive'` needs all its epochs: give it `patience=None`.")
        counts = records.astype(np.float64)
        balance = ClassBalance(counts, self.sampler, class_weights(self.class_weight, self.classes_, counts))
        return make_plan(balance, self.loss, self.counts, self.remix, self.prior, self.tau)


class TorchHead(HeadSettings):
    """A classifier on embeddings, trained with Adam; subclasses define the network.

    Inputs are z-scored with the statistics of the training rows, unless `standardize=False`. With `patience` it stops
    early on `validation`, or on a tenth of its own rows if none is given, and keeps the best epoch's weights. It
    monitors the training loss without mixed or generated rows, with classes weighted as they are drawn: validation
    rows are assumed to have the class proportions of the training rows.

    Parameters
    ----------
    learning_rate, batch_size, max_epochs, patience, weight_decay, standardize, random_state
        Training; as in `LinearHead`.
    loss, sampler, remix, augment, p_min, p_max, class_weight, counts, prior, tau
        For classes of unequal size; as in `LinearHead`.
    device
        As in `LinearHead`.

    Attributes
    ----------
    classes_
        The labels, in the order of the probabilities.
    history_
        Losses by epoch. It depends on the rows.
    module_
        The network, from scaled vectors to logits.
    mean_, scale_
        What inputs are scaled with: 0 and 1 without `standardize`.

    Examples
    --------
    >>> from torch import nn
    >>> from locum.data import load_sample
    >>> from locum.heads import TorchHead
    >>> class NarrowHead(TorchHead):
    ...     def _network(self, inputs: int, outputs: int) -> nn.Module:
    ...         return nn.Sequential(nn.Linear(inputs, 2), nn.Linear(2, outputs))
    >>> s = load_sample("breast-cancer")
    >>> NarrowHead(max_epochs=2, random_state=0).fit(s.X, s.y).predict_proba(s.X[:3]).shape
    (3, 2)
    """

    classes_: npt.NDArray[Any]
    history_: History
    module_: nn.Module

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, validation: Pair | None = None) -> Self:
        """Learn from rows; `validation` is a pair of rows and labels for early stopping.

        A row of weight k counts like k rows: in the loss if each row is drawn once, otherwise in how often it is
        drawn within its class; also in the scaler and the class counts. A row of weight 0 is ignored.
        """
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        weight = checked_weight(sample_weight, len(X))
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("A classifier needs at least two classes; got one class. Add records of another class.")
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
        # The other samplers draw a heavy row more often; its weight must not count twice.
        charged = None if own is None or self.sampler != "instance" else (own / own.mean()).float()

        def epoch(rng: torch.Generator) -> Iterator[Batch]:
            positions = batches(rng)
            real = ((x[i], i) for i in positions)
            drawn = real if fresh is None else fresh.mixed_in(x, target, positions, rng, self._scaled)
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
        """Learn online from an endless stream of batches, such as `release.stream()`: no row is seen twice.

        Class codes in the stream index `classes`. Without `validation`, the first rows are used for early stopping,
        and also for the class counts of a loss or prior that needs them. `sampler` and `augment` cannot be used here;
        `AugmentedBatches` is a stream that does both.
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

        # A class missing from the first rows is rare, not impossible.
        plan = self._plan(np.maximum(np.bincount(codes, minlength=len(self.classes_)), 1))
        return self._train(epoch, plan, self._seed(), validation)

    def fit_batches(self, batches: Batches, *, validation: Batches | EmbeddingSet | None = None) -> Self:
        """Learn from rows that do not fit in memory; labels are class codes, those that occur.

        All rows are read once for the scaler, once for those held out, and once per epoch, in an order that is random
        over the parts of the data and over a buffer of 128 MB (`locum.train.ShuffledRows`). Without `validation`
        about a tenth is held out for early stopping, at most 65,536 rows, and never a part of a subject; labels of
        `validation` that do not occur in `batches` are ignored. `augment`, and a `sampler` other than "instance",
        need all rows in memory.
        """
        if self.sampler != "instance" or self.augment is not None:
            raise ConfigError("`sampler` and `augment` need all rows in memory: leave them out, or use `fit`.")
        settings, seed, parts = self._settings(), self._seed(), batches.parts()
        pick_device(self.device)
        names = batches.info.class_names
        found = survey(parts, lambda piece: (piece.X, piece.y[:, None]), len(names), seed)
        present = np.flatnonzero(found.moments.counts)
        if len(present) < 2:
            raise DataError("A classifier needs at least two classes; got one class. Add records of another class.")
        self.classes_, self.n_features_in_ = present, batches.dim
        mean, scale = np.zeros(batches.dim), np.ones(batches.dim)
        if self.standardize:
            mean, scale = found.moments.mean, np.sqrt(found.moments.variance)
        self._set_scaler(torch.from_numpy(mean).float(), torch.from_numpy(scale).float())
        held = found.held_out() if validation is None and self.patience is not None else None
        kept: Iterable[EmbeddingSet] = () if held is None else held_out_records(parts, held)
        if validation is not None and self.patience is not None:
            kept = SetBatches(validation) if isinstance(validation, EmbeddingSet) else validation
        rows = ShuffledRows(
            parts, lambda piece: (piece.X, np.searchsorted(present, piece.y)[:, None]), settings.batch_size, held
        )

        def epoch(rng: torch.Generator) -> Iterator[Batch]:
            return (Batch(self._scaled(tensor(X)), torch.from_numpy(codes)[:, 0]) for X, codes in rows(rng))

        def others() -> Iterator[Batch]:
            for piece in kept:
                own = _codes_in(piece, names)
                if (known := np.isin(own, present)).any():
                    codes = np.searchsorted(present, own[known])
                    yield Batch(self._scaled(tensor(piece.X[known])), torch.from_numpy(codes))

        plan = self._plan(found.moments.counts[present])
        if validation is not None and self.patience is not None and not any(True for _ in others()):
            raise ConfigError("The validation rows share no class with the training rows: give other rows.")
        return self._run(epoch, plan, seed, others)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probability of each class, in the order of `classes_`, under `prior`; not calibrated."""
        check_is_fitted(self, "module_")
        X = validate_data(self, X, dtype=np.float32, reset=False)
        with torch.no_grad():
            # In double precision: a record's figures must not depend on which others share a matrix product.
            module, x = _in_double(self.module_), self._scaled(tensor(X)).double()
            out: npt.NDArray[np.float64] = torch.softmax(module(x), dim=1).numpy()
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
        """Fit the scaler on the training rows, and apply it."""
        x = tensor(X)
        if not self.standardize:
            self._set_scaler(torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
            return x
        self._set_scaler(*spread(x, weight))
        return self._scaled(x)

    def _set_scaler(self, mean: Tensor, scale: Tensor) -> None:
        """Scale inputs with these numbers from now on."""
        # A constant feature carries no information: leave it at zero instead of dividing by a tiny number.
        self.mean_, self.scale_ = mean, torch.where(scale > 1e-6 * (mean.abs() + 1e-6), scale, torch.ones_like(scale))

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
        others: list[Batch] = []
        if validation is not None and self.patience is not None:
            others = [self._validation(validation, plan.balance.draw_weight, held_weight)]
        return self._run(epoch, plan, seed, lambda: others)

    def _run(
        self,
        epoch: Callable[[torch.Generator], Iterator[Batch]],
        plan: Plan,
        seed: int,
        others: Callable[[], Iterable[Batch]],
    ) -> Self:
        """Train a new network on batches; `others` gives rows for early stopping, if any."""
        device = pick_device(self.device)

        def network(x: Tensor) -> Tensor:
            # Logits come back: losses keep their numbers on the CPU, and there is little to compute on them.
            out: Tensor = self.module_(x.to(device)).cpu()
            return out

        def loss(batch: Batch, rng: torch.Generator) -> Tensor:
            return plan.objective(network, batch, rng)

        def validate() -> float:
            total, count = 0.0, 0
            for held in others():
                # The same seed each time, so that epochs can be compared.
                value = plan.objective.mean(network(held.x), held.target, held.weight, seeded(seed))
                total, count = total + len(held.x) * float(value), count + len(held.x)
            return total / count

        stops = any(True for _ in others())
        # Initial weights and dropout use torch's global generator.
        with seeded_weights(seed, device):
            self.module_ = self._network(self.n_features_in_, len(self.classes_)).to(device)
            self.history_ = run_loop(
                self.module_, epoch, loss, self._settings(), seeded(seed), validate=validate if stops else None
            )
        self.module_.to("cpu")
        fold(self.module_, plan.objective.loss.scale, plan.shift)
        return self

    def _validation(self, validation: Pair, draw_weight: Floats | None, weight: Floats | None) -> Batch:
        known, codes = known_codes(np.asarray(validation[1]), self.classes_)
        each = None if weight is None else weight[known]
        if draw_weight is not None:
            each = draw_weight[codes] * (1.0 if each is None else each)
        counted = None if each is None else torch.from_numpy(each / each.mean()).float()
        x = self._scaled(tensor(np.asarray(validation[0], dtype=np.float32)[known]))
        return Batch(x, torch.from_numpy(codes), counted)


class LinearHead(TorchHead):
    """Softmax regression on z-scored embeddings, trained like the probe of the papers.

    The settings from `loss` to `tau` are for classes of unequal size; their defaults treat every record alike.

    Parameters
    ----------
    learning_rate
        The learning rate of Adam, above 0.
    batch_size
        Rows in a batch, 1 or more.
    max_epochs
        The most passes over the rows, 1 or more.
    patience
        Stop after this many epochs without a better loss on `validation`, or on a tenth of the rows; None runs every
        epoch and holds out nothing.
    weight_decay
        Decoupled weight decay (AdamW), 0 or more; 0 is Adam.
    standardize
        z-score inputs with the statistics of the training rows.
    random_state
        Seed of initial weights, held-out rows, batches and generated rows.
    loss
        "cross_entropy", "balanced_softmax", "class_balanced", "focal", "equalization", "ldam", or a function that
        makes a `Loss` from class counts, such as `functools.partial(LOSSES["focal"], gamma=1)`.
    sampler
        Which rows an epoch draws: "instance" (each once), "class_balanced", "square_root" or "progressive", which
        moves from the first to the second and so needs all its epochs: `patience=None`. All but the first draw with
        replacement.
    remix
        Mix the rows of a batch: True, or a `Remix` with other settings.
    augment, p_min, p_max
        A generator or a release: a drawn record is replaced by a fresh sample of its class with a probability that
        goes from `p_min` for the largest class to `p_max` for the smallest (`augment_probability`). With
        `sampler="class_balanced"` this is algorithm 1 of the thesis. An unfitted generator is cloned and fitted on
        the rows that the head learns from; scikit-learn's `clone` of a head also resets its generator.
    class_weight
        Weights in the loss: None, "balanced", or a mapping from labels; a label that it leaves out has weight 1.
    counts
        Which class counts the loss is built from: "records", "drawn" (as the sampler draws them; a replaced record
        keeps its class, so augmentation changes nothing), one number per class in the order of `classes_`, or None
        for the loss's default. That is "drawn" for all but LDAM, whose margins depend on how few records there are.
        Balanced softmax and class weights correct an imbalance that the sampler may have corrected already: with
        "records" and balanced draws, frequent classes are penalized twice.
    prior, tau
        The class frequencies that the probabilities assume: None, as trained; "train", those of the records;
        "uniform"; or one number per class. tau * (log prior - log implied) is added to the logits, where `implied` is
        the prior that training implies: the share of draws, times class weights, divided by the counts of balanced
        softmax or times the weights of the class-balanced loss. So `prior="uniform"` with cross entropy is post-hoc
        logit adjustment. It is exact in the limit for proper losses; see `Loss.tilt` for the others.
    device
        Where to train: "auto" (a GPU if there is one), "cpu", "cuda" or "mps". Weights from another device differ in
        their last digits.

    Attributes
    ----------
    classes_
        The labels, in the order of the probabilities.
    history_
        Losses by epoch. It depends on the rows.
    module_
        The linear layer, from scaled vectors to logits.
    mean_, scale_
        What inputs are scaled with: 0 and 1 without `standardize`.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.heads import LinearHead
    >>> s = load_sample("breast-cancer")
    >>> LinearHead(max_epochs=30, random_state=0).fit(s.X, s.y).score(s.X, s.y) > 0.9
    True
    """

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs)


class MLPHead(TorchHead):
    """One hidden layer with ReLU and dropout, on z-scored embeddings.

    Parameters
    ----------
    hidden
        The width of the hidden layer.
    dropout
        The share of hidden units that each training step ignores, from 0 to 1.
    learning_rate, batch_size, max_epochs, patience, weight_decay, standardize, random_state
        Training; as in `LinearHead`.
    loss, sampler, remix, augment, p_min, p_max, class_weight, counts, prior, tau
        For classes of unequal size; as in `LinearHead`.
    device
        As in `LinearHead`.

    Attributes
    ----------
    classes_
        The labels, in the order of the probabilities.
    history_
        Losses by epoch. It depends on the rows.
    module_
        The network, from scaled vectors to logits.
    mean_, scale_
        What inputs are scaled with: 0 and 1 without `standardize`.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.heads import MLPHead
    >>> s = load_sample("breast-cancer")
    >>> MLPHead(hidden=16, max_epochs=20, random_state=0).fit(s.X, s.y).score(s.X, s.y) > 0.9
    True
    """

    def __init__(
        self,
        hidden: int = 256,
        dropout: float = 0.1,
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
        device: str = "auto",
    ) -> None:
        super().__init__(
            learning_rate,
            batch_size,
            max_epochs,
            patience,
            weight_decay,
            standardize,
            random_state,
            loss=loss,
            sampler=sampler,
            remix=remix,
            augment=augment,
            p_min=p_min,
            p_max=p_max,
            class_weight=class_weight,
            counts=counts,
            prior=prior,
            tau=tau,
            device=device,
        )
        self.hidden = hidden
        self.dropout = dropout

    def _network(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(self.hidden, outputs)
        )


def spread(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, where a row counts `weight` times."""
    if weight is None:
        mean, scale = x.mean(dim=0), x.std(dim=0, correction=0)
    else:
        share = (weight / weight.sum()).to(x.dtype)
        mean = share @ x
        scale = (share @ (x - mean).square_()).sqrt()
    return mean, scale


def tensor(X: npt.NDArray[np.float32]) -> Tensor:
    """The array as a tensor; a read-only array is copied, since torch has no read-only tensors."""
    return torch.from_numpy(np.require(X, requirements=["C", "W"]))


def checked_weight(weight: Any, n: int) -> Floats | None:
    """One weight per row, 0 or more and not all zero; None if none is given."""
    if weight is None:
        return None
    try:
        out = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("`sample_weight` must hold one number per row; got something else.") from None
    if out.shape != (n,):
        raise DataError(f"`sample_weight` must hold one number for each of {n} rows; got shape {out.shape}.")
    if len(wrong := out[~(np.isfinite(out) & (out >= 0))]):
        raise DataError(f"Weights in `sample_weight` must be finite, and 0 or more; got {wrong[0]:g}.")
    if not (out > 0).any():
        raise DataError("All weights in `sample_weight` are zero: there is nothing to learn from.")
    return out


def known_codes(y: Labels, classes: Labels) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which validation labels are among `classes`, in any order, and their codes."""
    known: npt.NDArray[np.bool_] = np.isin(y, classes)
    if not known.any():
        raise ConfigError("The validation rows share no class with the training rows: give other rows.")
    order = np.argsort(classes)
    return known, order[np.searchsorted(classes, y[known], sorter=order)]


def _codes_in(piece: EmbeddingSet, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """The place of each record's class among `names`; -1 if it is not there."""
    place = {name: code for code, name in enumerate(names)}
    return np.array([place.get(name, -1) for name in piece.info.class_names])[piece.y]


def held_out(codes: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64] | None:
    """Positions of a stratified tenth; None if a class is too small to spare a row."""
    counts = np.bincount(codes)
    held = round(0.1 * len(codes))
    if counts.min() < 2 or held < len(counts):
        return None
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=held, random_state=seed % 2**32)
    _, test = next(splitter.split(codes, codes))
    out: npt.NDArray[np.int64] = test
    return out
