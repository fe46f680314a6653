"""Rows on their way into a head: weights, a part held out, and how they are spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedShuffleSplit
from torch import Tensor

from understudy.errors import ConfigError, DataError

__all__ = ["checked_weight", "held_out", "known_codes", "spread", "tensor"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]


def spread(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, where a row counts `weight` times."""
    if weight is None:
        mean, scale = x.mean(dim=0), x.std(dim=0, correction=0)
    else:
        share = (weight / weight.sum()).to(x.dtype)
        mean = share @ x
        scale = (share @ (x - mean).square_()).sqrt()
    # A constant feature tells nothing: leave it at zero instead of blowing it up.
    return mean, torch.where(scale > 1e-6 * (mean.abs() + 1e-6), scale, torch.ones_like(scale))


def tensor(X: npt.NDArray[np.float32]) -> Tensor:
    """The same numbers for torch; frozen arrays are copied, since torch cannot keep a promise not to write."""
    return torch.from_numpy(np.require(X, requirements=["C", "W"]))


def checked_weight(weight: Any, n: int) -> Floats | None:
    """One weight a row, 0 or more, not all of them zero; none where none is given."""
    if weight is None:
        return None
    try:
        out = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("`sample_weight` must hold one number a row; got something else.") from None
    if out.shape != (n,):
        raise DataError(f"`sample_weight` must hold one number for each of {n} rows; got shape {out.shape}.")
    if len(wrong := out[~(np.isfinite(out) & (out >= 0))]):
        raise DataError(f"Weights in `sample_weight` must be finite, and 0 or more; got {wrong[0]:g}.")
    if not (out > 0).any():
        raise DataError("All weights in `sample_weight` are zero: there is nothing to learn from.")
    return out


def known_codes(y: Labels, classes: Labels) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which validation labels are among `classes`, in any order, and the codes of those."""
    known: npt.NDArray[np.bool_] = np.isin(y, classes)
    if not known.any():
        raise ConfigError("The validation rows share no class with the training rows; give others.")
    order = np.argsort(classes)
    return known, order[np.searchsorted(classes, y[known], sorter=order)]


def held_out(codes: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64] | None:
    """A stratified tenth; none where a class is too small to spare a row."""
    counts = np.bincount(codes)
    held = round(0.1 * len(codes))
    if counts.min() < 2 or held < len(counts):
        return None
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=held, random_state=seed % 2**32)
    _, test = next(splitter.split(codes, codes))
    out: npt.NDArray[np.int64] = test
    return out
