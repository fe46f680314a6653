"""Judges of images that turn them into features and read these linearly: windows of the images, and a backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from locum.embed import DEFAULT_BACKBONE, Backbone, load_backbone
from locum.obfuscate.judges import Learned, always, checked_codes

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]

# Images at once: the filter responses take `filters` times the memory of the pixels.
_IMAGES_AT_ONCE = 128
_WINDOWS = 40_000
# Added to the variances, so that windows that hardly vary count as noise.
_FLAT = 1e-3
_PENALTIES = np.logspace(1, 6, 11)
_VECTORS_AT_ONCE = 32
# Vectors that a judge remembers, of 5 kB each: a substitution shows the same few images again and again.
_REMEMBERED = 20_000
# A label with this many rows may get weights of its own.
_OWN = 200


@dataclass(frozen=True, slots=True)
class PatchesJudge:
    """Filters images with whitened windows of the training images, pools in nine regions, and reads that linearly.

    After Coates and Ng (2011), with a ridge regression whose penalty is chosen on a tenth of the images. With a few
    thousand small images it is much more accurate than a network trained from scratch, in a fraction of the time.
    """

    filters: int = 64
    size: int = 6

    def read(self, X: Array) -> Array:
        """The images themselves."""
        return X

    def fit(self, rows: Array, y: Array, seed: int, known: Codes | None = None) -> Learned:
        """Learn from images (n, c, side, side) and their codes."""
        X, codes = rows, checked_codes(rows, y)
        if (codes == codes[0]).all():
            return always(codes[0])
        rng = np.random.default_rng(seed)
        white, center = _whitening(_windows(X, self.size, rng))
        seen = (_windows(X, self.size, rng)[: self.filters] - center) @ white
        seen /= np.linalg.norm(seen, axis=1, keepdims=True) + 1e-8
        # Whitening and filtering are both linear: one convolution does both.
        kernel = (white @ seen.T).T
        weights = torch.from_numpy(kernel.reshape(-1, X.shape[1], self.size, self.size).astype(np.float32))
        offset = torch.from_numpy((kernel @ center).astype(np.float32))
        read = LinearReader.fit(_features(X, weights, offset), codes, known, rng)
        return Learned(lambda rows, known: read.scores(_features(rows, weights, offset), known), linear=True)


@dataclass(frozen=True, slots=True)
class BackboneJudge:
    """Reads the vectors of a frozen, pretrained vision model linearly: an attacker or receiver who brings one.

    With a few thousand images it finds much more in them than a network that is trained from scratch.
    """

    backbone: str = DEFAULT_BACKBONE
    _vectors: dict[bytes, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, X: Array) -> Array:
        """The vectors of images (n, channels, side, side) between 0 and 1. Equal images are looked at once."""
        pixels = np.rint(np.asarray(X) * 255).clip(0, 255).astype(np.uint8)
        names = [blake2b(image.tobytes(), digest_size=16).digest() for image in pixels]
        place = {name: i for i, name in enumerate(names)}
        new = [name for name in place if name not in self._vectors]
        found = {name: self._vectors[name] for name in place if name in self._vectors}
        found |= zip(new, self._look(pixels[[place[name] for name in new]]), strict=True)
        if len(self._vectors) + len(new) > _REMEMBERED:
            self._vectors.clear()
        self._vectors.update({name: found[name] for name in new[:_REMEMBERED]})
        return np.stack([found[name] for name in names])

    def _look(self, pixels: Array) -> Array:
        from PIL import Image

        model = _loaded(self.backbone)
        out = np.empty((len(pixels), model.dim), dtype=np.float32)
        for start in range(0, len(pixels), _VECTORS_AT_ONCE):
            some = pixels[start : start + _VECTORS_AT_ONCE]
            planes = [image[0] if len(image) == 1 else image.transpose(1, 2, 0) for image in some]
            prepared = [model.preprocessing.apply(Image.fromarray(plane).convert("RGB")) for plane in planes]
            out[start : start + len(some)] = model.run(np.stack(prepared))
        return out

    def fit(self, rows: Array, y: Array, seed: int, known: Codes | None = None) -> Learned:
        """Learn from vectors and their codes."""
        codes = checked_codes(rows, y)
        if (codes == codes[0]).all():
            return always(codes[0])
        return Learned(LinearReader.fit(rows, codes, known, np.random.default_rng(seed)).scores, linear=True)


@dataclass(frozen=True, slots=True, eq=False)
class LinearReader:
    """Ridge regressions from features to codes, with a penalty chosen on a tenth of the rows.

    Where labels are known, scores start from how often each code comes with the label, and features count as
    deviations from their mean for that label. Frequent labels get weights of their own if that tenth is then
    predicted better. `parts` has one regression per combination of labels; `rest` is for all other rows.
    """

    parts: Mapping[tuple[int, ...], Regression]
    rest: Regression

    @classmethod
    def fit(cls, found: Array, y: Codes, known: Codes | None, rng: np.random.Generator) -> Self:
        """From features and their codes."""
        found, wanted = found.astype(np.float64), np.eye(int(y.max()) + 1)[y]
        held, kept = np.split(rng.permutation(len(y)), [len(y) // 10])
        scale = found.std(axis=0) + 1e-6
        if known is None:
            return cls({}, Regression.fit(found, wanted, scale, held, kept))
        rows = {key: which for key, which in _groups(known).items() if len(which) > 1}
        # Everything as a deviation from the mean of its label.
        means = [np.repeat(part.mean(axis=0)[None], len(y), axis=0) for part in (found, wanted)]
        for which in rows.values():
            for part, mean in zip((found, wanted), means, strict=True):
                mean[which] = part[which].mean(axis=0)
        pooled = Regression.fit(found - means[0], wanted - means[1], scale, held, kept, base=means[1])
        rest = Regression(found.mean(axis=0), wanted.mean(axis=0), pooled.weights)
        shared, own = {}, {}
        for key, which in rows.items():
            middle, prior = found[which].mean(axis=0), wanted[which].mean(axis=0)
            shared[key] = own[key] = Regression(middle, prior, pooled.weights)
            if len(which) >= _OWN and len(rows) > 1:
                mine = [np.intersect1d(part, which) for part in (held, kept)]
                own[key] = Regression.fit(found, wanted, scale, *mine)
        readers = [cls(parts, rest) for parts in (shared, own)]
        right = [np.mean(one.scores(found[held], known[held]).argmax(axis=1) == y[held]) for one in readers]
        return readers[int(right[1] > right[0])]

    def scores(self, found: Array, known: Codes | None) -> Array:
        """A score for each code."""
        if known is None or not self.parts:
            return self.rest.scores(found)
        out = np.empty((len(found), len(self.rest.prior)))
        for key, which in _groups(known).items():
            out[which] = self.parts.get(key, self.rest).scores(found[which])
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """Scores = prior + (features - middle) @ weights."""

    middle: Array
    prior: Array
    weights: Array

    @classmethod
    def fit(
        cls, found: Array, wanted: Array, scale: Array, held: Codes, kept: Codes, base: Array | float = 0.0
    ) -> Self:
        """From the rows `kept`; the rows `held` choose the penalty, on features divided by `scale`.

        `base` is what was taken off `wanted`, and is added to scores where the penalty is chosen.
        """
        middle, prior = found[kept].mean(axis=0), wanted[kept].mean(axis=0)
        scaled, targets = (found[kept] - middle) / scale, wanted[kept] - prior
        # With fewer rows than features the same weights come from products between rows.
        few = len(kept) < scaled.shape[1]
        values, vectors = np.linalg.eigh(scaled @ scaled.T if few else scaled.T @ scaled)
        turned, back = (vectors.T @ targets, scaled.T @ vectors) if few else (vectors.T @ scaled.T @ targets, vectors)
        tried = (back @ (turned / (values.clip(0) + penalty)[:, None]) for penalty in _PENALTIES)
        made = [cls(middle, prior, weights / scale[:, None]) for weights in tried]
        start = np.broadcast_to(base, wanted.shape)[held]
        truth = (start + wanted[held]).argmax(axis=1)
        guesses = ((start + one.scores(found[held])).argmax(axis=1) for one in made)
        right = [np.mean(guess == truth) if len(held) else 0.0 for guess in guesses]
        return made[int(np.argmax(right))]

    def scores(self, found: Array) -> Array:
        """A score for each code."""
        out: Array = self.prior + (found - self.middle) @ self.weights
        return out


def _groups(known: Codes) -> dict[tuple[int, ...], Codes]:
    """The rows of each combination of labels."""
    combinations, which = np.unique(known, axis=0, return_inverse=True)
    return {tuple(key): np.flatnonzero(which.reshape(-1) == i) for i, key in enumerate(combinations.tolist())}


@cache
def _loaded(name: str) -> Backbone:
    return load_backbone(name)


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
