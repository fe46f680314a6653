"""The two knobs: how much noise, and how clearly the utility labels are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]


def checked_noise(noise: Any) -> float:
    """A valid value of the knob `noise`, or a ConfigError."""
    if isinstance(noise, bool) or not isinstance(noise, int | float | np.number) or not noise >= 0:
        raise ConfigError(f"`noise` must be 0 or more; got {noise!r}. 0 hides least.")
    return float(noise)


def checked_lambda(value: Any) -> float | None:
    """A valid value of the knob `lambda_`, or a ConfigError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not -math.inf < value <= 0:
        raise ConfigError(
            f"`lambda_` must be 0 or below, or None for C's own scores; got {value!r}. -50 writes labels fully."
        )
    return float(value)


def written(codes: Codes, sizes: Sequence[int], lambda_: float) -> Array:
    """The paper's function g: 0 for the label, `lambda_` for every other value of its attribute."""
    parts = []
    for i, size in enumerate(sizes):
        part = np.full((len(codes), size), lambda_, dtype=np.float32)
        part[np.arange(len(codes)), codes[:, i]] = 0
        parts.append(part)
    return np.concatenate(parts, axis=1)


def probabilities(logs: Array, sizes: Sequence[int]) -> Array:
    """Softmax within each attribute."""
    parts = []
    for group in np.split(logs, np.cumsum(sizes)[:-1], axis=1):
        powers = np.exp(group - group.max(axis=1, keepdims=True))
        parts.append(powers / powers.sum(axis=1, keepdims=True))
    return np.concatenate(parts, axis=1).astype(np.float32)


def plainness(sizes: Sequence[int], lambda_: float | None) -> float:
    """How far a label written by `g` stands out, from 0 (not at all) to 1, in the attribute where it does least."""
    if lambda_ is None:
        return 1.0
    # The label's share of its attribute, less an even share; as a difference it is exact at 0 and at 1.
    return min(-math.expm1(lambda_) / (1 + (size - 1) * math.exp(lambda_)) for size in sizes)
