"""Scaling between raw vectors and the numbers of order one that a network learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from locum.train import ClassMoments

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Scaling = Literal["minmax", "zscore", "class", "public"]


@dataclass(frozen=True, slots=True, eq=False)
class Scaler:
    """Scaling to numbers of order one and back: `offset + span * scaled`. Both are released with the decoder.

    Parameters
    ----------
    offset
        One row for all classes (1, d), or one per class (classes, d).
    span
        One number per feature (d,), 0 or more. A constant feature has span 0, so it stays constant whatever the
        network returns.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import Scaler
    >>> scaler = Scaler(np.array([[10.0]], np.float32), np.array([2.0], np.float32))
    >>> scaler.forward(np.array([[13.0]], np.float32), np.array([0])).tolist()
    [[1.5]]
    """

    offset: Array
    span: Array

    def forward(self, X: Array, labels: Labels) -> Array:
        """What the network sees."""
        divisor = np.where(self.span > 0, self.span, np.float32(1)).astype(np.float32)
        out: Array = (X - self._of(labels)) / divisor
        return out

    def backward(self, scaled: Array, labels: Labels) -> Array:
        """Undo `forward`."""
        out: Array = scaled * self.span + self._of(labels)
        return out

    def _of(self, labels: Labels) -> Array:
        return self.offset if len(self.offset) == 1 else self.offset[labels]


def fit_scaler(kind: Scaling, X: Array, labels: Labels, classes: int) -> Scaler:
    """The scaler fitted to training vectors. It depends on records.

    Parameters
    ----------
    kind
        "minmax" to 0..1, "zscore", or "class": class means subtracted, then one spread per feature for all classes.
    X
        Vectors (n, d).
    labels
        The class of each vector as a whole number from 0; only "class" uses it, and every class must occur.
    classes
        The number of classes.

    Returns
    -------
    Scaler
        Features with (almost) no spread have span 0.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import fit_scaler
    >>> X = np.array([[0.0, 7.0], [4.0, 7.0]], np.float32)
    >>> scaler = fit_scaler("minmax", X, np.array([0, 1]), classes=2)
    >>> scaler.offset.tolist(), scaler.span.tolist()
    ([[0.0, 7.0]], [4.0, 0.0])
    """
    if kind == "minmax":
        offset = X.min(axis=0, keepdims=True)
        span = X.max(axis=0) - offset[0]
    elif kind == "zscore":
        offset, span = X.mean(axis=0, keepdims=True, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    else:
        offset = np.stack([X[labels == c].mean(axis=0, dtype=np.float64) for c in range(classes)])
        span = np.sqrt(np.square(X - offset[labels], dtype=np.float64).mean(axis=0))
    return _scaler(offset, span)


def scaler_of(kind: Scaling, moments: ClassMoments) -> Scaler:
    """The same from moments of the training vectors, in which every class must occur."""
    if kind == "minmax":
        offset = moments.low.min(axis=0, keepdims=True)
        return _scaler(offset, moments.high.max(axis=0) - offset[0])
    if kind == "zscore":
        return _scaler(moments.mean[None], np.sqrt(moments.variance))
    return _scaler(moments.means, np.sqrt(moments.within / moments.counts.sum()))


def _scaler(offset: npt.NDArray[Any], span: npt.NDArray[Any]) -> Scaler:
    flat = span <= 1e-6 * (np.abs(offset).max(axis=0) + 1e-6)
    return Scaler(offset.astype(np.float32), np.where(flat, 0, span).astype(np.float32))


def with_labels(scaled: Array, codes: Labels, sizes: Sequence[int]) -> Tensor:
    """Network input: scaled vectors, then class and conditions one-hot.

    Parameters
    ----------
    scaled
        Scaled vectors (n, d).
    codes
        Whole numbers from 0: the class, then one column per condition.
    sizes
        The number of values of each column; columns of `codes` beyond `sizes` are left out.

    Returns
    -------
    Tensor
        Rows of d plus the sum of `sizes` columns.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import with_labels
    >>> with_labels(np.zeros((2, 1), np.float32), np.array([[0], [2]]), [3]).tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    hot = [functional.one_hot(torch.from_numpy(codes[:, j].copy()), n).float() for j, n in enumerate(sizes)]
    return torch.cat([torch.from_numpy(scaled), *hot], dim=1)
