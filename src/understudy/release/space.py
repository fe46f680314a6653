"""The space in which released vectors live. Whatever mixes them with real ones goes through here."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from understudy.errors import ConfigError

__all__ = ["SPACES", "Space", "to_space"]

Space = Literal["raw", "unit"]
SPACES: tuple[str, ...] = get_args(Space)


def to_space(X: npt.NDArray[np.float32], space: str) -> npt.NDArray[np.float32]:
    """Vectors as they are ("raw"), or scaled to length 1 ("unit"); a zero vector stays zero.

    >>> to_space(np.array([[3.0, 4.0]], dtype=np.float32), "unit").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if space not in SPACES:
        raise ConfigError(f"`space` must be one of {', '.join(SPACES)}; got {space!r}.")
    if space == "raw":
        return X
    out: npt.NDArray[np.float32] = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-12))
    return out
