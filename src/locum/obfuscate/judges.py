"""Judges: the learners that play attacker and receiver, and the guesses that they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from locum.errors import ConfigError, DataError
from locum.metrics import clopper_pearson
from locum.nets import image_judge, table_judge
from locum.obfuscate.labels import Labeled
from locum.train import LoopSettings, run_loop, seeded, shuffled_batches
from locum.types import Estimate

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
# From rows, and the codes of the utility labels if they are known, to a score for each private code.
Scores = Callable[[Array, Codes | None], Array]

# Epochs and batch size of the adjustable paper, except for tables (64 there): that takes twice the time for the same
# accuracy.
_TABLE, _IMAGE = (40, 256), (20, 64)
# Numbers in one forward pass: convolutions need about twenty times the memory.
_AT_ONCE = 2**21
# With fewer rows, a tenth is too few for validation.
_LEAST_HELD = 20


class Judge(Protocol):
    """Learns codes from rows, and from the utility labels if it is told them."""

    def read(self, X: Array) -> Array:
        """The rows as it learns from them. It depends on nothing else, so one release is read once for all uses."""
        ...

    def fit(self, rows: Array, y: Array, seed: int, known: Codes | None = None) -> Learned:
        """What it learns from rows that it has read; the same seed gives the same.

        `known` are the codes of the utility labels, (n, attributes): who learned with them predicts with them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Learned:
    """What a judge has learned: call it for codes, `scores` for how likely each is.

    Scores are logarithms of probabilities or, if `linear`, estimates of the probabilities themselves.
    """

    scores: Scores
    linear: bool = False

    def __call__(self, rows: Array, known: Codes | None = None) -> Codes:
        """The most likely code of each row."""
        guessed: Codes = self.scores(rows, known).argmax(axis=1).astype(np.int64)
        return guessed


@dataclass(frozen=True, slots=True)
class NetworkJudge:
    """The adjustable paper's networks, for tables (n, d) and images (n, c, side, side), trained with Adam.

    A tenth of the rows is held out, and the epoch that does best on it is kept; training stops `patience` epochs
    after the best. Defaults: at most 40 epochs and batches of 256 for tables, 20 and 64 for images. Rows must be
    between 0 and 1.
    """

    epochs: int | None = None
    batch: int | None = None
    lr: float = 1e-3
    patience: int | None = 5

    def read(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def fit(self, rows: Array, y: Array, seed: int, known: Codes | None = None) -> Learned:
        """Learn from rows and their codes."""
        codes = checked_codes(rows, y)
        epochs, batch = _TABLE if rows.ndim == 2 else _IMAGE
        settings = LoopSettings(
            max_epochs=epochs if self.epochs is None else self.epochs,
            batch_size=batch if self.batch is None else self.batch,
            learning_rate=self.lr,
            patience=self.patience,
        )
        if (codes == codes[0]).all():
            return always(codes[0])
        sizes = None if known is None else known.max(axis=0) + 1
        x, target = _beside(rows, known, sizes), torch.from_numpy(codes)
        order = torch.randperm(len(x), generator=seeded(seed))
        held, kept = torch.tensor_split(order, [len(x) // 10 if len(x) >= _LEAST_HELD else 0])
        # Initial weights and dropout use torch's global rng: seed it here, and restore it afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = _network(tuple(x.shape), int(codes.max()) + 1)

            def loss(rows: Tensor, _: torch.Generator) -> Tensor:
                return functional.cross_entropy(module(x[kept[rows]]), target[kept[rows]])

            def validate() -> float:
                total = sum(
                    float(functional.cross_entropy(module(x[rows]), target[rows], reduction="sum"))
                    for rows in _pieces(held, x)
                )
                return total / len(held)

            batches = shuffled_batches(len(kept), settings.batch_size)
            run_loop(module, batches, loss, settings, seeded(seed), validate=validate if len(held) else None)

        def scores(rows: Array, known: Codes | None) -> Array:
            x = _beside(rows, known, sizes)
            with torch.no_grad():
                found = [module(x[some]).log_softmax(dim=1) for some in _pieces(torch.arange(len(x)), x)]
            return torch.cat(found).numpy()

        return Learned(scores)


@dataclass(frozen=True, slots=True)
class TreesJudge:
    """Gradient-boosted trees for tables: often stronger on mixed columns than the network. No images."""

    iterations: int = 100

    def read(self, X: Array) -> Array:
        """The rows themselves."""
        return X

    def fit(self, rows: Array, y: Array, seed: int, known: Codes | None = None) -> Learned:
        """Learn from rows and their codes; above 10,000 rows it stops early on a tenth of them."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        codes = checked_codes(rows, y)
        if rows.ndim != 2:
            raise ConfigError("Trees read tables only: judge images with 'network'.")
        if (codes == codes[0]).all():
            return always(codes[0])
        model = HistGradientBoostingClassifier(max_iter=self.iterations, random_state=seed)
        model.fit(_joined(rows, known), codes)

        def scores(rows: Array, known: Codes | None) -> Array:
            out = np.full((len(rows), int(codes.max()) + 1), -np.inf)
            out[:, model.classes_] = np.log(model.predict_proba(_joined(rows, known)).clip(1e-12))
            return out

        return Learned(scores)


def accuracy(learned: Learned, rows: Array, y: Array, known: Codes | None = None) -> Estimate:
    """Share of rows with the right code, with its exact interval; it covers the choice of rows, not of training."""
    return share(learned(rows, known) == y)


@dataclass(frozen=True, slots=True, eq=False)
class LabelCounts:
    """How often each private code comes with each combination of utility labels."""

    combinations: Codes
    counts: Codes

    @classmethod
    def fit(cls, rows: Labeled) -> Self:
        """Count in `rows`. The last row of `counts` is for combinations that are not there: all rows."""
        combinations, which = np.unique(columns(rows.utility), axis=0, return_inverse=True)
        counts = np.zeros((len(combinations) + 1, int(rows.private.max()) + 1), dtype=np.int64)
        np.add.at(counts, (which.reshape(-1), rows.private), 1)
        counts[-1] = counts.sum(axis=0)
        return cls(combinations, counts)

    def of(self, utility: Array) -> Codes:
        """The counts for each row's labels."""
        same = {tuple(row): i for i, row in enumerate(self.combinations.tolist())}
        return self.counts[[same.get(tuple(row), -1) for row in columns(utility).tolist()]]


def label_only(train: Labeled, test: Labeled) -> Estimate:
    """Accuracy of an attacker who sees only a record's utility label, which a release carries by design.

    For each label (each combination, if there are several) it guesses the most frequent private code in `train`; for
    a label that `train` lacks, the most frequent of all. No obfuscation can push an attacker below this.
    """
    return share(LabelCounts.fit(train).of(test.utility).argmax(axis=1) == test.private)


def majority_guess(train: Array, test: Array) -> Estimate:
    """Accuracy on `test` of always guessing the most frequent code in `train`."""
    return share(test == np.bincount(train).argmax())


def columns(utility: Array) -> Codes:
    """Codes of utility labels with one column per attribute."""
    return np.asarray(utility, dtype=np.int64).reshape(len(utility), -1)


def checked_codes(X: Array, y: Array) -> Codes:
    """The codes as integers, one for each of two or more rows."""
    if len(X) != len(y) or len(X) < 2:
        raise DataError(f"A judge needs 2 or more rows, with one code each; got {len(X)} rows, {len(y)} codes.")
    return np.array(y, dtype=np.int64)


def always(code: Any) -> Learned:
    """Always `code`, for rows that all have it."""
    return Learned(lambda rows, known: np.repeat(np.eye(int(code) + 1)[-1:], len(rows), axis=0))


def share(right: Array) -> Estimate:
    """The share of true values, with its exact interval."""
    return clopper_pearson(int(np.count_nonzero(right)), len(right))


def _joined(rows: Array, known: Codes | None) -> Array:
    return rows if known is None else np.column_stack([rows, known])


def _beside(rows: Array, known: Codes | None, sizes: Codes | None) -> Tensor:
    """The rows as a tensor; known labels are one-hot columns of a table, or planes of an image."""
    x = _tensor(rows)
    if known is None or sizes is None:
        return x
    # A code above `sizes` was not there when the judge learned: no column stands for it.
    hot = np.concatenate([known[:, [i]] == np.arange(size) for i, size in enumerate(sizes)], axis=1)
    extra = torch.from_numpy(hot.astype(np.float32))
    if x.ndim == 4:
        extra = extra[:, :, None, None].expand(-1, -1, *x.shape[2:])
    return torch.cat([x, extra], dim=1)


def _network(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    if len(shape) == 2:
        return table_judge(shape[1], classes)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise DataError(f"Rows must be a table (n, d) or square images (n, c, side, side); got shape {shape}.")
    return image_judge(shape[1], shape[2], classes)


def _tensor(X: Array) -> Tensor:
    # Read-only arrays are copied: torch has no read-only tensors.
    return torch.from_numpy(np.require(X, dtype=np.float32, requirements=["C", "W"]))


def _pieces(rows: Tensor, x: Tensor) -> Iterator[Tensor]:
    yield from rows.split(max(1, _AT_ONCE // max(1, x[0].numel())))
