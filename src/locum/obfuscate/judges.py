"""A learner of images that is quick and strong where images are few: it compares small windows with windows seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from locum.errors import ConfigError, DataError
from locum.metrics import clopper_pearson
from locum.nets import image_judge, table_judge
from locum.obfuscate.labels import Labelled
from locum.train import LoopSettings, run_loop, seeded, shuffled_batches
from locum.types import Estimate

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


# Images whose windows are looked at together: their likenesses take `filters` times the room of the pixels.
_IMAGES_AT_ONCE = 128
_WINDOWS = 40_000
# Windows that hardly vary are noise: this much of a pixel's variance counts as such.
_FLAT = 1e-3
_PENALTIES = np.logspace(1, 6, 11)


@dataclass(frozen=True, slots=True)
class PatchesJudge:
    """Whitened windows of the images it learns from are its filters; what they find in nine places is read linearly.

    In the manner of Coates and Ng (2011), with a ridge whose penalty is picked on a tenth of the images. Of a few
    thousand small images it finds much more than a network that starts from nothing, in a fraction of the time.
    """

    filters: int = 64
    size: int = 6

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from images (n, c, side, side) and their codes."""
        codes = codes_of(X, y)
        if (codes == codes[0]).all():
            return always(codes[0])
        rng = np.random.default_rng(seed)
        white, centre = _whitening(_windows(X, self.size, rng))
        seen = (_windows(X, self.size, rng)[: self.filters] - centre) @ white
        seen /= np.linalg.norm(seen, axis=1, keepdims=True) + 1e-8
        # Whitening and comparing are both linear: one convolution does them.
        kernel = (white @ seen.T).T
        weights = torch.from_numpy(kernel.reshape(-1, X.shape[1], self.size, self.size).astype(np.float32))
        offset = torch.from_numpy((kernel @ centre).astype(np.float32))
        found = _found(X, weights, offset)
        middle, spread = found.mean(axis=0), found.std(axis=0) + 1e-6
        read = _ridge((found - middle) / spread, codes, rng)

        def predict(X: Array) -> Array:
            scores = ((_found(X, weights, offset) - middle) / spread) @ read[1:] + read[0]
            guessed: Array = scores.argmax(axis=1)
            return guessed

        return predict


def _ridge(found: Array, y: Array, rng: np.random.Generator) -> Array:
    """Weights from features to a score for each code, the mean first; a tenth of the rows picks the penalty."""
    wanted = np.eye(int(y.max()) + 1)[y]
    order = rng.permutation(len(y))
    held, kept = np.split(order, [len(y) // 10])
    mean = wanted[kept].mean(axis=0)
    values, vectors = np.linalg.eigh((found[kept].T @ found[kept]).astype(np.float64))
    turned = vectors.T @ (found[kept].T @ (wanted[kept] - mean))
    fits = [vectors @ (turned / (values.clip(0) + penalty)[:, None]) for penalty in _PENALTIES]
    right = [np.mean((found[held] @ fit + mean).argmax(axis=1) == y[held]) if len(held) else 0.0 for fit in fits]
    return np.vstack([mean, fits[int(np.argmax(right))]])


def _windows(X: Array, size: int, rng: np.random.Generator) -> Array:
    """Square pieces of the images at random places, a row each."""
    image = rng.integers(len(X), size=_WINDOWS)
    top, left = rng.integers(X.shape[2] - size + 1, size=(2, _WINDOWS))
    views = np.lib.stride_tricks.sliding_window_view(X, (size, size), axis=(2, 3))
    out: Array = views[image, :, top, left].reshape(_WINDOWS, -1).astype(np.float64)
    return out


def _whitening(windows: Array) -> tuple[Array, Array]:
    """A symmetric map after which the numbers of a window vary alike and independently, and the mean window."""
    values, vectors = np.linalg.eigh(np.cov(windows.T))
    white: Array = (vectors / np.sqrt(values + _FLAT)) @ vectors.T
    return white, windows.mean(axis=0)


def _found(X: Array, weights: Tensor, offset: Tensor) -> Array:
    """How strongly each filter answers, above its mean answer, in nine parts of each image."""
    parts = []
    with torch.no_grad():
        for some in torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).split(_IMAGES_AT_ONCE):
            likeness = functional.conv2d(some, weights) - offset[:, None, None]
            # Both signs, cut at half a spread: most windows are like few filters.
            cut = 0.5 * likeness.std(dim=1, keepdim=True)
            both = torch.cat([(likeness - cut).relu_(), (-likeness - cut).relu_()], dim=1)
            parts.append(functional.adaptive_avg_pool2d(both, 3).flatten(1))
    out: Array = torch.cat(parts).numpy()
    return out
