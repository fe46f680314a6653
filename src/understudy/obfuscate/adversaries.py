"""Who reads a release: learners of one interface, for attackers and receivers alike, and the attacker's baseline.

`judge.fit(X, y, seed)` gives a function from rows to codes. Learners never see how the rows were masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from understudy.errors import ConfigError, DataError
from understudy.metrics import clopper_pearson
from understudy.nets.judges import image_judge, table_judge
from understudy.obfuscate.labelled import Labelled
from understudy.train import LoopSettings, run_loop, seeded, shuffled_batches
from understudy.types import Estimate

__all__ = [
    "KINDS",
    "Judge",
    "NetworkJudge",
    "Predict",
    "TreesJudge",
    "accuracy",
    "always",
    "codes_of",
    "label_only",
    "majority_guess",
    "make_judges",
]

Array = npt.NDArray[Any]
Predict = Callable[[Array], Array]

KINDS = ("network", "trees", "patches")
_TABLES, _IMAGES = ("network", "trees"), ("network", "patches")
# Epochs and batch: the seed's, but for batches of tables (64 there), which take twice the time for the same accuracy.
_TABLE, _IMAGE = (40, 256), (20, 64)
# Numbers that a forward pass may take at once: convolutions multiply them by about twenty.
_AT_ONCE = 2**21
# With fewer rows than these a tenth says nothing about an epoch.
_LEAST_HELD = 20


class Judge(Protocol):
    """Learns codes from rows."""

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """What it learnt, as a function from rows to codes; the same seed gives the same function."""
        ...


@dataclass(frozen=True, slots=True)
class NetworkJudge:
    """The seed's networks, for tables (n, d) and images (n, c, side, side), trained with Adam.

    A tenth of the rows is held out and the epoch that does best on it is kept; training stops `patience` epochs after
    the best. Without `epochs` there are at most 40 on tables and 20 on images, without `batch` 256 rows or 64 images
    in a batch. Rows are to lie between 0 and 1.
    """

    epochs: int | None = None
    batch: int | None = None
    lr: float = 1e-3
    patience: int | None = 5

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from `X` and its codes."""
        codes = codes_of(X, y)
        epochs, batch = _TABLE if X.ndim == 2 else _IMAGE
        settings = LoopSettings(
            max_epochs=epochs if self.epochs is None else self.epochs,
            batch_size=batch if self.batch is None else self.batch,
            learning_rate=self.lr,
            patience=self.patience,
        )
        if (codes == codes[0]).all():
            return always(codes[0])
        x, target = _tensor(X), torch.from_numpy(codes)
        order = torch.randperm(len(x), generator=seeded(seed))
        held, kept = torch.tensor_split(order, [len(x) // 10 if len(x) >= _LEAST_HELD else 0])
        # Initial weights and dropout take torch's global coins: lend it ours, and give it back its own.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = _network(X.shape, int(codes.max()) + 1)

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

        def predict(X: Array) -> Array:
            x = _tensor(X)
            with torch.no_grad():
                found = [module(x[rows]).argmax(dim=1) for rows in _pieces(torch.arange(len(x)), x)]
            return torch.cat(found).numpy()

        return predict


@dataclass(frozen=True, slots=True)
class TreesJudge:
    """Gradient-boosted trees on tables: on mixed columns often stronger than the seed's network. Takes no images."""

    iterations: int = 100

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from `X` and its codes; above 10,000 rows it stops early on a tenth of them."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        codes = codes_of(X, y)
        if X.ndim != 2:
            raise ConfigError("Trees read tables only: judge images with 'network'.")
        if (codes == codes[0]).all():
            return always(codes[0])
        model = HistGradientBoostingClassifier(max_iter=self.iterations, random_state=seed).fit(X, codes)
        predict: Predict = model.predict
        return predict


def make_judges(kinds: Sequence[str] | None, X: Array, epochs: int | None = None) -> dict[str, Judge]:
    """Judges by name for rows like `X`; `None` takes all that can read them."""
    from understudy.obfuscate.patches import PatchesJudge

    able = _TABLES if X.ndim == 2 else _IMAGES
    kinds = able if kinds is None else kinds
    if not kinds or any(kind not in KINDS for kind in kinds):
        raise ConfigError(f"`judges` must name some of {', '.join(KINDS)}; got {list(kinds)!r}.")
    if unable := [kind for kind in kinds if kind not in able]:
        read, other = ("tables", "images") if X.ndim != 2 else ("images", "tables")
        raise ConfigError(f"{unable[0].capitalize()} read {read} only: judge {other} with {' or '.join(able)}.")
    made: dict[str, Judge] = {
        "network": NetworkJudge(epochs=epochs),
        "trees": TreesJudge(),
        "patches": PatchesJudge(),
    }
    return {kind: made[kind] for kind in kinds}


def accuracy(predict: Predict, X: Array, y: Array) -> Estimate:
    """Share of rows whose code is found, with its exact interval; it covers the choice of rows, not of training."""
    return _share(predict(X) == y)


def label_only(train: Labelled, test: Labelled) -> Estimate:
    """Accuracy of an attacker who sees nothing of a record but its utility label, which a release carries by design.

    For each label (each combination, if there are several) it guesses the private code most frequent in `train`; for
    a label that `train` lacks, the most frequent of all. No obfuscation can bring an attacker below this.
    """
    labels, seen = np.unique(np.concatenate([train.utility, test.utility]), axis=0, return_inverse=True)
    seen = seen.reshape(-1)
    counts = np.zeros((len(labels), int(train.private.max()) + 1), dtype=np.int64)
    np.add.at(counts, (seen[: len(train)], train.private), 1)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0)
    return _share(counts.argmax(axis=1)[seen[len(train) :]] == test.private)


def majority_guess(train: Array, test: Array) -> Estimate:
    """Accuracy on `test` of always guessing the code most frequent in `train`."""
    return _share(test == np.bincount(train).argmax())


def _share(right: Array) -> Estimate:
    return clopper_pearson(int(np.count_nonzero(right)), len(right))


def _network(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    if len(shape) == 2:
        return table_judge(shape[1], classes)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise DataError(f"Rows must be a table (n, d) or square images (n, c, side, side); got shape {shape}.")
    return image_judge(shape[1], shape[2], classes)


def codes_of(X: Array, y: Array) -> npt.NDArray[np.int64]:
    """The codes as whole numbers, one for each of two or more rows."""
    if len(X) != len(y) or len(X) < 2:
        raise DataError(f"A judge learns from 2 rows or more, with one code each; got {len(X)} rows, {len(y)} codes.")
    return np.array(y, dtype=np.int64)


def always(code: Any) -> Predict:
    """What is learnt from one code alone."""
    return lambda X: np.full(len(X), code, dtype=np.int64)


def _tensor(X: Array) -> Tensor:
    # Frozen arrays are copied: torch cannot keep a promise not to write.
    return torch.from_numpy(np.require(X, dtype=np.float32, requirements=["C", "W"]))


def _pieces(rows: Tensor, x: Tensor) -> Iterator[Tensor]:
    yield from rows.split(max(1, _AT_ONCE // max(1, x[0].numel())))
