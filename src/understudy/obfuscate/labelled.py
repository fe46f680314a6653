"""Rows with what their receiver needs and what an attacker wants: what every judge of a release works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import DataError

__all__ = ["Labelled", "Masking"]

Array = npt.NDArray[Any]
# One release of rows: (rows, codes of the utility attribute, coins) -> rows of the same shape.
Masking = Callable[[Array, Array, np.random.Generator], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows between 0 and 1, with two codes each: what they are published for, and what somebody wants to find out.

    `utility` and `private` count from 0. The private codes serve to judge a release; an obfuscator never sees them.
    """

    X: Array
    utility: Array
    private: Array

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.utility) == len(self.private):
            raise DataError(
                f"Rows and labels must be as many: got {len(self.X)} rows, {len(self.utility)} utility labels and "
                f"{len(self.private)} private ones."
            )

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: npt.ArrayLike) -> Labelled:
        """Some of the rows, by position or mask."""
        chosen = np.asarray(rows)
        return Labelled(self.X[chosen], self.utility[chosen], self.private[chosen])
