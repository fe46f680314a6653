"""Judges: the learners that play attacker and receiver, and the guesses that they are compared with."""

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
from locum.obfuscate.labels import Labeled
from locum.train import LoopSettings, run_loop, seeded, shuffled_batches
from locum.types import Estimate

Array = npt.NDArray[Any]
Predict = Callable[[Array], Array]

KINDS = ("network", "trees", "patches")
_TABLES, _IMAGES = ("network", "trees"), ("network", "patches")
# Epochs and batch size of the adjustable paper, except for tables (64 there): that takes twice the time for the same
# accuracy.
_TABLE, _IMAGE = (40, 256), (20, 64)
# Numbers in one forward pass: convolutions need about twenty times the memory.
_AT_ONCE = 2**21
# With fewer rows, a tenth is too few for validation.
_LEAST_HELD = 20
# Patches. Images at once: the filter responses take `filters` times the memory of the pixels.
_IMAGES_AT_ONCE = 128
_WINDOWS = 40_000
# Added to the variances, so that windows that hardly vary count as noise.
_FLAT = 1e-3
_PENALTIES = np.logspace(1, 6, 11)


class Judge(Protocol):
    """Learns codes from rows."""

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """A function from rows to codes; the same seed gives the same function."""
        ...


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

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from `X` and its codes."""
        codes = _codes(X, y)
        epochs, batch = _TABLE if X.ndim == 2 else _IMAGE
        settings = LoopSettings(
            max_epochs=epochs if self.epochs is None else self.epochs,
            batch_size=batch if self.batch is None else self.batch,
            learning_rate=self.lr,
            patience=self.patience,
        )
        if (codes == codes[0]).all():
            return _always(codes[0])
        x, target = _tensor(X), torch.from_numpy(codes)
        order = torch.randperm(len(x), generator=seeded(seed))
        held, kept = torch.tensor_split(order, [len(x) // 10 if len(x) >= _LEAST_HELD else 0])
        # Initial weights and dropout use torch's global rng: seed it here, and restore it afterwards.
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
    """Gradient-boosted trees for tables: often stronger on mixed columns than the network. No images."""

    iterations: int = 100

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from `X` and its codes; above 10,000 rows it stops early on a tenth of them."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        codes = _codes(X, y)
        if X.ndim != 2:
            raise ConfigError("Trees read tables only: judge images with 'network'.")
        if (codes == codes[0]).all():
            return _always(codes[0])
        model = HistGradientBoostingClassifier(max_iter=self.iterations, random_state=seed).fit(X, codes)
        predict: Predict = model.predict
        return predict


@dataclass(frozen=True, slots=True)
class PatchesJudge:
    """Filters images with whitened windows of the training images, pools in nine regions, and reads that linearly.

    After Coates and Ng (2011), with a ridge regression whose penalty is chosen on a tenth of the images. With a few
    thousand small images it is much more accurate than a network trained from scratch, in a fraction of the time.
    """

    filters: int = 64
    size: int = 6

    def fit(self, X: Array, y: Array, seed: int) -> Predict:
        """Learn from images (n, c, side, side) and their codes."""
        codes = _codes(X, y)
        if (codes == codes[0]).all():
            return _always(codes[0])
        rng = np.random.default_rng(seed)
        white, center = _whitening(_windows(X, self.size, rng))
        seen = (_windows(X, self.size, rng)[: self.filters] - center) @ white
        seen /= np.linalg.norm(seen, axis=1, keepdims=True) + 1e-8
        # Whitening and filtering are both linear: one convolution does both.
        kernel = (white @ seen.T).T
        weights = torch.from_numpy(kernel.reshape(-1, X.shape[1], self.size, self.size).astype(np.float32))
        offset = torch.from_numpy((kernel @ center).astype(np.float32))
        found = _features(X, weights, offset)
        middle, spread = found.mean(axis=0), found.std(axis=0) + 1e-6
        read = _ridge((found - middle) / spread, codes, rng)

        def predict(X: Array) -> Array:
            scores = ((_features(X, weights, offset) - middle) / spread) @ read[1:] + read[0]
            guessed: Array = scores.argmax(axis=1)
            return guessed

        return predict


def make_judges(kinds: Sequence[str] | None, X: Array, epochs: int | None = None) -> dict[str, Judge]:
    """Judges by name for rows like `X`; None: all that can read them."""
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
    """Share of rows with the right code, with its exact interval; it covers the choice of rows, not of training."""
    return _share(predict(X) == y)


def label_only(train: Labeled, test: Labeled) -> Estimate:
    """Accuracy of an attacker who sees only a record's utility label, which a release carries by design.

    For each label (each combination, if there are several) it guesses the most frequent private code in `train`; for
    a label that `train` lacks, the most frequent of all. No obfuscation can push an attacker below this.
    """
    labels, seen = np.unique(np.concatenate([train.utility, test.utility]), axis=0, return_inverse=True)
    seen = seen.reshape(-1)
    counts = np.zeros((len(labels), int(train.private.max()) + 1), dtype=np.int64)
    np.add.at(counts, (seen[: len(train)], train.private), 1)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0)
    return _share(counts.argmax(axis=1)[seen[len(train) :]] == test.private)


def majority_guess(train: Array, test: Array) -> Estimate:
    """Accuracy on `test` of always guessing the most frequent code in `train`."""
    return _share(test == np.bincount(train).argmax())


def _codes(X: Array, y: Array) -> npt.NDArray[np.int64]:
    """The codes as integers, one for each of two or more rows."""
    if len(X) != len(y) or len(X) < 2:
        raise DataError(f"A judge needs 2 or more rows, with one code each; got {len(X)} rows, {len(y)} codes.")
    return np.array(y, dtype=np.int64)


def _always(code: Any) -> Predict:
    """A predictor that always returns `code`, for rows that all have it."""
    return lambda X: np.full(len(X), code, dtype=np.int64)


def _share(right: Array) -> Estimate:
    return clopper_pearson(int(np.count_nonzero(right)), len(right))


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


def _ridge(found: Array, y: Array, rng: np.random.Generator) -> Array:
    """Weights from features to a score for each code, intercept first; a tenth of the rows chooses the penalty."""
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
    """Square windows at random places in the images, one per row."""
    image = rng.integers(len(X), size=_WINDOWS)
    top, left = rng.integers(X.shape[2] - size + 1, size=(2, _WINDOWS))
    views = np.lib.stride_tricks.sliding_window_view(X, (size, size), axis=(2, 3))
    out: Array = views[image, :, top, left].reshape(_WINDOWS, -1).astype(np.float64)
    return out


def _whitening(windows: Array) -> tuple[Array, Array]:
    """A symmetric matrix that makes the pixels of a window uncorrelated with equal variance, and the mean window."""
    values, vectors = np.linalg.eigh(np.cov(windows.T))
    white: Array = (vectors / np.sqrt(values + _FLAT)) @ vectors.T
    return white, windows.mean(axis=0)


def _features(X: Array, weights: Tensor, offset: Tensor) -> Array:
    """How strongly each filter responds in nine regions of each image."""
    parts = []
    with torch.no_grad():
        for some in torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).split(_IMAGES_AT_ONCE):
            response = functional.conv2d(some, weights) - offset[:, None, None]
            # Both signs, thresholded at half a standard deviation: most windows resemble few filters.
            cut = 0.5 * response.std(dim=1, keepdim=True)
            both = torch.cat([(response - cut).relu_(), (-response - cut).relu_()], dim=1)
            parts.append(functional.adaptive_avg_pool2d(both, 3).flatten(1))
    out: Array = torch.cat(parts).numpy()
    return out
