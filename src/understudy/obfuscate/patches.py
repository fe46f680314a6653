"""A learner of images that is quick and strong where images are few: it compares small windows with windows seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from understudy.obfuscate.adversaries import Predict, always, codes_of

__all__ = ["PatchesJudge"]

Array = npt.NDArray[Any]
# Images whose windows are looked at together: their likenesses take `filters` times the room of the pixels.
_AT_ONCE = 128
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
        for some in torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).split(_AT_ONCE):
            likeness = functional.conv2d(some, weights) - offset[:, None, None]
            # Both signs, cut at half a spread: most windows are like few filters.
            cut = 0.5 * likeness.std(dim=1, keepdim=True)
            both = torch.cat([(likeness - cut).relu_(), (-likeness - cut).relu_()], dim=1)
            parts.append(functional.adaptive_avg_pool2d(both, 3).flatten(1))
    out: Array = torch.cat(parts).numpy()
    return out
